"""``calibrate``: thresholds of a cascade from answers whose truth is known."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from callboard.patterns.cascade.reliability import calibration_error

__all__ = ["Calibration", "calibrate"]

TRIED = 20_000
"""Combinations of thresholds that are tried at most."""


@dataclass(frozen=True)
class Calibration:
    """Thresholds, and their results on the calibration items.

    Attributes:
        thresholds: Thresholds of all stages but the last.
        accuracy: Share of right answers.
        interval: 95 % confidence interval of the accuracy (Wilson's score interval).
        last_accuracy: The accuracy of the last stage alone.
        escalated: For each stage but the last, the share of all items that pass beyond it.
        cost: Mean cost of an item.
        errors: For each stage but the last, the expected calibration error of its confidences over all items; NaN if
            the confidences are not probabilities.
    """

    thresholds: tuple[float, ...]
    accuracy: float
    interval: tuple[float, float]
    last_accuracy: float
    escalated: tuple[float, ...]
    cost: float
    errors: tuple[float, ...]


def calibrate(
    confidences: ArrayLike,
    correct: ArrayLike,
    costs: ArrayLike,
    *,
    max_loss: float | None = None,
    budget: float | None = None,
) -> Calibration:
    """Choose the thresholds of a cascade by items that it will not be judged by.

    Thresholds only compare confidences of one stage, so a monotone recalibration of them (isotonic, by temperature)
    would give the same decisions and is not needed. Up to :data:`TRIED` combinations of quantiles are tried.

    Args:
        confidences: ``[items, stages - 1]``, of all stages but the last. NaN clears no threshold.
        correct: ``[items, stages]``, whether each stage's answer is right.
        costs: ``[stages]``, of one item.
        max_loss: The cheapest cascade whose accuracy is at most this much below the last stage's.
        budget: The most accurate cascade whose mean cost is at most this.

    Raises:
        ValueError: The shapes do not fit, not one of ``max_loss`` and ``budget`` is given, or no cascade is that cheap.
    """
    sure, right, price = np.asarray(confidences, float), np.asarray(correct, bool), np.asarray(costs, float)
    if sure.ndim != 2 or right.ndim != 2 or not sure.size:
        raise ValueError(f"confidences and correct must be filled matrices, but are {sure.shape} and {right.shape}")
    if right.shape != (sure.shape[0], sure.shape[1] + 1) or price.shape != right.shape[1:]:
        raise ValueError(f"shapes do not fit: confidences {sure.shape}, correct {right.shape}, costs {price.shape}")
    if (max_loss is None) == (budget is None):
        raise ValueError(f"give one of max_loss and budget, not max_loss={max_loss} and budget={budget}")
    gates = sure.shape[1]
    steps = max(2, int(TRIED ** (1 / gates)) - 1)
    paid = np.cumsum(price)
    last = float(right[:, -1].mean())
    best: tuple[tuple[float, float], tuple[float, ...]] | None = None
    for thresholds in itertools.product(*(_candidates(sure[:, gate], steps) for gate in range(gates))):
        stage = _stages(sure, thresholds)
        accuracy, cost = float(_picked(right, stage).mean()), float(paid[stage].mean())
        if max_loss is not None:
            fits, rank = accuracy >= last - max_loss - 1e-12, (cost, -accuracy)
        else:
            fits, rank = budget is not None and cost <= budget + 1e-12, (-accuracy, cost)
        if fits and (best is None or rank < best[0]):
            best = rank, thresholds
    if best is None:
        raise ValueError(f"no cascade has a mean cost of at most {budget:g}: its first stage alone costs {paid[0]:g}")
    stage = _stages(sure, best[1])
    accuracy = float(_picked(right, stage).mean())
    return Calibration(
        thresholds=best[1],
        accuracy=accuracy,
        interval=_wilson(accuracy, len(right)),
        last_accuracy=last,
        escalated=tuple(float((stage > gate).mean()) for gate in range(gates)),
        cost=float(paid[stage].mean()),
        errors=tuple(calibration_error(zip(sure[:, gate], right[:, gate], strict=True)) for gate in range(gates)),
    )


def _candidates(sure: np.ndarray, steps: int) -> list[float]:
    """Values of confidences at which to cut, and infinity, beyond which there is nothing."""
    values = np.unique(sure[~np.isnan(sure)])
    if len(values) > steps:
        values = np.unique(np.quantile(values, np.linspace(0, 1, steps), method="lower"))
    return [*(float(value) for value in values), math.inf]


def _stages(sure: np.ndarray, thresholds: tuple[float, ...]) -> np.ndarray:
    """The stage that answers each item."""
    cleared = sure >= np.asarray(thresholds)
    found: np.ndarray = np.where(cleared.any(axis=1), cleared.argmax(axis=1), sure.shape[1])
    return found


def _picked(right: np.ndarray, stage: np.ndarray) -> np.ndarray:
    found: np.ndarray = right[np.arange(len(right)), stage]
    return found


def _wilson(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # Rounding is not to leave the share itself outside, which is at an end of the interval if it is 0 or 1.
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))
