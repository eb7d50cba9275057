"""``min_score``: results below it are left out."""

import math
from typing import Any

import numpy as np

from callboard.agents.index.protocol import Metric, Neighbours

__all__ = ["at_least", "checked_score"]

MOST = 1.125
"""Largest cosine that is no mistake: that of a vector with its own row, which rounding made longer, is above 1."""


def checked_score(value: Any, metric: Metric | None = None, *, queries: int = 1) -> float | None:
    """A least score; None if there is none.

    Args:
        value: ``min_score`` of a search.
        metric: Of the index; None: of any.
        queries: Dimensions of the operand: 1 for a single vector.

    Raises:
        TypeError: It is no number.
        ValueError: No score is comparable with it, or it is given for several queries.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"min_score is {value!r}; it must be a number, or None for no limit")
    try:
        score = float(value)
    except OverflowError:  # an int that no float is as large as
        score = math.inf
    if not math.isfinite(score) or (metric == "cosine" and abs(score) > MOST):
        within = "between -1 and 1, as cosines are" if metric == "cosine" else "finite"
        raise ValueError(f"min_score is {value!s:.40}; it must be {within}")
    if metric == "l2":
        raise ValueError(f"min_score is {value}, and scores of 'l2' are distances: keep found.scores <= a distance")
    if queries > 1:
        raise ValueError("min_score with several queries, whose numbers of results differ; use found.scores >= a score")
    return score


def at_least(found: Neighbours, score: float | None) -> Neighbours:
    """The results of a single query whose scores are not below a score."""
    if score is None:
        return found
    with np.errstate(over="ignore"):  # no score is above all f32
        least = np.float32(score)
    count = int(np.count_nonzero(found.scores >= least))
    return Neighbours(found.ids[:count], found.scores[:count])
