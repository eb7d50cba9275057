"""Exact search: products in blocks, a bound for the k-th best of them, and exact scores of what passes it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.agents.index.coding import decode
from callboard.agents.index.protocol import Metric
from callboard.agents.index.snapshot import Snapshot

__all__ = ["by_score_and_id", "exact_scores", "nearest", "scaled"]

Floats = NDArray[np.float32]
QUERIES = 64
"""Queries that are scored at once."""
DECODED = 1024
"""Rows of f16 or i8 that are converted at once: a block that stays in the cache."""
GROUP = 64
"""Scores whose maximum stands for them in the search for a bound."""


def scaled(queries: Floats, metric: Metric) -> Floats:
    """Queries as the products need them.

    Raises:
        ValueError: A query of a cosine index is zero.
    """
    if metric != "cosine":
        return queries
    norms = np.sqrt(np.einsum("ij,ij->i", queries, queries, dtype=np.float64))
    if not norms.all():
        raise ValueError(f"row {int(np.argmin(norms))} is zero, which has no direction; leave it out, or use 'ip'")
    return np.asarray(queries / norms[:, None], np.float32)


def nearest(
    snapshot: Snapshot, queries: Floats, k: int, metric: Metric, allowed: NDArray[np.bool_] | None
) -> tuple[NDArray[np.intp], Floats]:
    """Rows and scores of the ``k`` best of each query, ``[queries, min(k, allowed)]``.

    Args:
        snapshot: The content of the index.
        queries: From :func:`scaled`.
        k: Number of results.
        metric: What is nearest.
        allowed: Mask of the rows that count; None for all.
    """
    living = snapshot.count if allowed is None else int(np.count_nonzero(allowed))
    k = min(k, living)
    numbers, scores = np.empty((len(queries), k), np.intp), np.empty((len(queries), k), np.float32)
    if not k:
        return numbers, scores
    norms = np.sqrt(np.einsum("ij,ij->i", queries, queries))
    # Rounding of a sum of products: a row whose product is this much lower may be the nearer one.
    slack = queries.shape[1] * np.float32(2.0**-23) * snapshot.largest * (norms + snapshot.largest) + np.float32(1e-30)
    for start in range(0, len(queries), QUERIES):
        part = slice(start, start + QUERIES)
        found: list[list[tuple[Any, Any]]] = [[] for _ in queries[part]]
        for piece in snapshot.pieces(allowed, living):
            products = _products(snapshot, queries[part], piece, metric)
            if allowed is not None and isinstance(piece, slice):
                products[:, ~allowed[piece]] = -np.inf
            for lists, row, least in zip(found, products, _bounds(products, k) - slack[part], strict=True):
                passed = np.flatnonzero(row >= max(least, np.finfo(np.float32).min))
                places = passed + piece.start if isinstance(piece, slice) else piece[passed]
                lists.append((places, row[passed]))
        for n, lists in enumerate(found, start):
            candidates = _candidates(lists, k, float(slack[n]))
            exact = exact_scores(snapshot, queries[n], candidates, metric)
            best = by_score_and_id(exact, snapshot.ids[candidates], metric)[:k]
            numbers[n], scores[n] = candidates[best], exact[best]
    return numbers, scores


def _products(snapshot: Snapshot, queries: Floats, piece: Any, metric: Metric) -> Floats:
    rows = snapshot.rows[piece]
    if rows.dtype == np.float32:
        products: Floats = queries @ rows.T
    else:
        scales = None if snapshot.scales is None else snapshot.scales[piece]
        products = np.empty((len(queries), len(rows)), np.float32)
        for start in range(0, len(rows), DECODED):
            block = slice(start, start + DECODED)
            decoded = decode(rows[block], None if scales is None else scales[block])
            products[:, block] = queries @ decoded.T
    if metric == "l2":  # the same order as the distance
        products *= 2
        products -= snapshot.squares[piece]
    return products


def _bounds(products: Floats, k: int) -> Floats:
    """A number for each query that at least ``k`` of its products reach; the lowest product if there are fewer."""
    count = products.shape[1]
    if count <= k:
        return np.asarray(products.min(axis=1))
    groups = count // GROUP
    if groups >= 4 * k:  # k groups have such a maximum, so k products are at least as large
        products = products[:, : groups * GROUP].reshape(len(products), groups, GROUP).max(axis=2)
    return np.asarray(np.partition(products, products.shape[1] - k, axis=1)[:, -k])


def _candidates(lists: list[tuple[Any, Any]], k: int, slack: float) -> NDArray[np.intp]:
    """Rows that may be among the ``k`` best, of all pieces."""
    if len(lists) == 1:
        return np.asarray(lists[0][0])
    places, products = (np.concatenate(each) for each in zip(*lists, strict=True))
    if len(products) > k:
        places = places[products >= np.partition(products, len(products) - k)[-k] - slack]
    return places


def exact_scores(snapshot: Snapshot, query: Floats, numbers: NDArray[np.intp], metric: Metric) -> Floats:
    """Scores of some rows, summed in f64: they depend on the row and the query only, not on what else is searched."""
    scores = np.empty(len(numbers), np.float32)
    for start in range(0, len(numbers), DECODED):
        rows = snapshot.decoded(numbers[start : start + DECODED]).astype(np.float64)
        if metric == "l2":
            rows -= query
            found = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        else:
            found = np.einsum("ij,j->i", rows, query.astype(np.float64))
        scores[start : start + DECODED] = found
    return scores


def by_score_and_id(scores: Floats, ids: NDArray[Any], metric: Metric) -> NDArray[np.intp]:
    """The order of results: nearest first, equal ones by id."""
    by_id = np.argsort(ids, kind="stable")
    keys = scores[by_id] if metric == "l2" else -scores[by_id]
    return by_id[np.argsort(keys, kind="stable")]
