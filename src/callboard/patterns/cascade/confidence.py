"""Confidence measures on a row of logits, for ``confidence=`` of a stage: larger is more confident."""

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["margin", "max_probability", "negative_entropy"]


def _probabilities(logits: ArrayLike) -> np.ndarray:
    row = np.asarray(logits, np.float64)
    if row.ndim != 1 or row.size < 2:
        raise ValueError(f"logits must be one row of at least 2 numbers, but their shape is {list(row.shape)}")
    with np.errstate(invalid="ignore"):
        powers = np.exp(row - row.max())
        probabilities: np.ndarray = powers / powers.sum()
    return probabilities


def max_probability(logits: ArrayLike) -> float:
    """The probability of the best class, after a softmax: 1/n to 1. NaN if a logit is."""
    return float(_probabilities(logits).max())


def margin(logits: ArrayLike) -> float:
    """The difference between the probabilities of the best two classes: 0 to 1. NaN if a logit is."""
    second, first = np.sort(_probabilities(logits))[-2:]
    return float(first - second)


def negative_entropy(logits: ArrayLike) -> float:
    """1 minus the entropy relative to its largest value, log n: 0 (all alike) to 1 (certain). NaN if a logit is."""
    probabilities = _probabilities(logits)
    terms = probabilities * np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    return float(1 + terms.sum() / np.log(probabilities.size))
