"""Exact search: products in blocks, a bound for the k-th best of them, and exact scores of what passes it."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.agents.index.coding import decode
from callboard.agents.index.protocol import Metric
from callboard.agents.index.scanning import FEW, scanned
from callboard.agents.index.snapshot import Snapshot

__all__ = ["by_score_and_id", "exact_scores", "nearest", "ranked", "rounding"]

Floats = NDArray[np.float32]
Rows = Callable[[NDArray[np.intp]], Floats]
SPARSE = 128
"""A search in one of so many rows, or fewer, takes these rows; a scan would look at all."""
QUERIES = 64
"""Queries that are scored at once."""
DECODED = 512
"""Rows of f16 or i8 that are converted at once: a block that stays in the cache."""
GROUP = 64
"""Scores whose maximum stands for them in the search for a bound."""


def nearest(
    snapshot: Snapshot, queries: Floats, k: int, metric: Metric, allowed: NDArray[np.bool_] | None
) -> tuple[NDArray[np.intp], Floats]:
    """Rows and scores of the ``k`` best of each query, ``[queries, min(k, allowed)]``.

    Args:
        snapshot: The content of the index.
        queries: ``[queries, dim]``; of a cosine index, of length 1.
        k: Number of results.
        metric: What is nearest.
        allowed: Mask of the rows that count; None for all.
    """
    living = snapshot.count if allowed is None else int(np.count_nonzero(allowed))
    k = min(k, living)
    numbers, scores = np.empty((len(queries), k), np.intp), np.empty((len(queries), k), np.float32)
    if not k:
        return numbers, scores
    slack = rounding(snapshot, queries)
    if 0 < len(queries) <= FEW.get(snapshot.rows.dtype.name, 0) and SPARSE * living > snapshot.count:
        few = [scanned(snapshot, each, k, metric, float(slack[n]), allowed) for n, each in enumerate(queries)]
        known = [each for each in few if each is not None]
        if len(known) == len(few):
            who = np.repeat(np.arange(len(queries)), [len(each) for each in known])
            return ranked(snapshot, queries, who, np.concatenate(known), k, metric)
    for start in range(0, len(queries), QUERIES):
        part = slice(start, start + QUERIES)
        found = [
            _passed(_products(snapshot, queries[part], piece, metric, allowed), k, slack[part], piece)
            for piece in snapshot.pieces(allowed, living)
        ]
        who, places = _candidates(found, k, slack[part])
        numbers[part], scores[part] = ranked(snapshot, queries[part], who, places, k, metric)
    return numbers, scores


def rounding(snapshot: Snapshot, queries: Floats) -> Floats:
    """Error of a sum of products of each query: a row whose product is this much lower may be the nearer one."""
    norms = np.sqrt(np.einsum("ij,ij->i", queries, queries))
    unit = queries.shape[1] * np.float32(2.0**-23) * snapshot.largest
    return np.asarray(unit * (norms + snapshot.largest) + np.float32(1e-30), np.float32)


def ranked(
    snapshot: Snapshot, queries: Floats, who: NDArray[np.intp], places: NDArray[np.intp], k: int, metric: Metric
) -> tuple[NDArray[np.intp], Floats]:
    """The ``k`` best of each query's candidates by their exact scores, equal ones by id.

    Args:
        snapshot: The content of the index.
        queries: ``[queries, dim]``; of a cosine index, of length 1.
        who: The query of each candidate; each query has ``k`` at least.
        places: Its row.
        k: Number of results.
        metric: What is nearest.
    """
    alone = len(queries) == 1
    exact = exact_scores(snapshot.decoded, queries if alone else queries[who], places[:, None], metric)[:, 0]
    order = by_score_and_id(exact, snapshot.ids[places], metric)
    if alone:
        best = order[None, :k]
        return places[best], exact[best]
    order = order[np.argsort(who[order], kind="stable")]
    firsts = np.searchsorted(who[order], np.arange(len(queries)))
    best = order[firsts[:, None] + np.arange(k)]
    return places[best], exact[best]


def _products(
    snapshot: Snapshot, queries: Floats, piece: Any, metric: Metric, allowed: NDArray[np.bool_] | None
) -> Floats:
    """``[rows, queries]``: BLAS multiplies many rows by few columns faster than the transposed matrices."""
    rows, columns = snapshot.rows[piece], queries.T
    if rows.dtype == np.float32:
        products: Floats = rows @ columns if len(queries) > 1 else (rows @ queries[0])[:, None]
    else:
        scales = None if snapshot.scales is None else snapshot.scales[piece]
        products = np.empty((len(rows), len(queries)), np.float32)
        for start in range(0, len(rows), DECODED):
            block = slice(start, start + DECODED)
            np.matmul(decode(rows[block], None if scales is None else scales[block]), columns, out=products[block])
    if metric == "l2":  # the same order as the distance
        products *= 2
        products -= snapshot.squares[piece][:, None]
    if allowed is not None and isinstance(piece, slice):
        products[~allowed[piece]] = -np.inf
    return products


Passed = tuple[NDArray[np.intp], NDArray[np.intp], Floats]


def _passed(products: Floats, k: int, slack: Floats, piece: Any) -> Passed:
    """Query, row and product of what may be among the ``k`` best of a piece, query by query."""
    count, most = len(products), np.finfo(np.float32).min
    whole = count // GROUP
    tops = products[: whole * GROUP].reshape(whole, GROUP, len(slack)).max(axis=1)
    if count > whole * GROUP:
        tops = np.concatenate([tops, products[whole * GROUP :].max(axis=0, keepdims=True)])
    tops = np.ascontiguousarray(tops.T)
    if count <= k:
        least = np.full(len(slack), most)
    else:  # k groups have such a maximum, so k products are at least as large
        of = tops if tops.shape[1] >= 4 * k else products.T
        least = np.maximum(np.partition(of, of.shape[1] - k, axis=1)[:, -k] - slack, most)
    who, groups = np.nonzero(tops >= least[:, None])
    places = groups[:, None] * GROUP + np.arange(GROUP)
    values = products[np.minimum(places, count - 1), who[:, None]]
    keep = (values >= least[who][:, None]) & (places < count)
    places = places[keep]
    return (
        np.repeat(who, np.count_nonzero(keep, axis=1)),
        places + piece.start if isinstance(piece, slice) else piece[places],
        values[keep],
    )


def _candidates(found: list[Passed], k: int, slack: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Queries and rows of what may be among the ``k`` best of all pieces."""
    if len(found) == 1:
        return found[0][:2]
    who, places, values = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.lexsort((-values, who))
    firsts = np.searchsorted(who[order], np.arange(len(slack)))
    least = values[order[firsts + k - 1]] - slack
    keep = values >= least[who]
    return who[keep], places[keep]


def exact_scores(rows: Rows, queries: Floats, numbers: NDArray[np.intp], metric: Metric) -> Floats:
    """Scores of some rows, summed in f64: they depend on the row and the query only, not on what else is searched.

    Args:
        rows: Returns the rows of some numbers in f32.
        queries: ``[n, dim]``, or one for all.
        numbers: ``[n, k]``: rows for each query.
        metric: What is nearest.
    """
    if numbers.size <= DECODED:
        return _scores(rows(numbers), queries, metric)
    scores, step = np.empty(numbers.shape, np.float32), max(1, DECODED // numbers.shape[1])
    for start in range(0, len(numbers), step):
        part = slice(start, start + step)
        scores[part] = _scores(rows(numbers[part]), queries if len(queries) == 1 else queries[part], metric)
    return scores


def _scores(rows: Floats, queries: Floats, metric: Metric) -> Floats:
    wide, asked = rows.astype(np.float64), queries[:, None].astype(np.float64)
    if metric == "l2":
        wide -= asked
    products = np.sqrt(np.vecdot(wide, wide)) if metric == "l2" else np.vecdot(wide, asked)
    return np.asarray(products, np.float32)


def by_score_and_id(scores: Floats, ids: NDArray[Any], metric: Metric) -> NDArray[np.intp]:
    """The order of results along the last axis: nearest first, equal ones by id."""
    order: NDArray[np.intp] = np.lexsort((ids, scores if metric == "l2" else -scores), axis=-1)
    return order
