"""``fuse``: one ranking of several, by reciprocal ranks."""

from collections.abc import Iterable, Sequence

import numpy as np

from callboard.agents.checks import positive
from callboard.agents.index.protocol import Id, Neighbours

__all__ = ["fuse"]


def fuse(
    *rankings: Neighbours | Sequence[Id], k: int = 10, constant: float = 60.0, weights: Sequence[float] | None = None
) -> Neighbours:
    """One ranking of several of the same query, such as those of vectors and of words.

    The score of an id is the sum of ``weight / (constant + rank)`` over the rankings that have it; the first rank is 1.
    Scores of the rankings do not count, so they need no common scale. The sum does not say how well a text fits: the
    first of a ranking gets the same, however bad it is. A least score belongs to the rankings: ``min_score`` of their
    searches.

    Args:
        rankings: Results of a search with a single query, or ids, best first.
        k: Number of results.
        constant: The larger it is, the less the first ranks stand out.
        weights: One for each ranking; 1 by default.

    Raises:
        ValueError: There is another number of weights than of rankings, or a ranking is of several queries.
    """
    if weights is not None and len(weights) != len(rankings):
        raise ValueError(f"weights has {len(weights)} numbers for {len(rankings)} rankings; give one for each")
    scores: dict[Id, float] = {}
    for ranking, weight in zip(rankings, weights or [1.0] * len(rankings), strict=True):
        for rank, each in enumerate(_ids(ranking), 1):
            scores[each] = scores.get(each, 0.0) + weight / (constant + rank)
    by_id = sorted(scores)
    best = sorted(by_id, key=lambda each: -scores[each])[: positive("k", k)]
    kind = object if any(isinstance(each, str) for each in best) else np.int64
    return Neighbours(np.array(best, kind), np.array([scores[each] for each in best], np.float32))


def _ids(ranking: Neighbours | Sequence[Id]) -> Iterable[Id]:
    if not isinstance(ranking, Neighbours):
        return ranking
    if ranking.ids.ndim != 1:
        raise ValueError(f"a ranking has ids of shape {list(ranking.ids.shape)}; search with a single query")
    ids: list[Id] = ranking.ids.tolist()
    return ids
