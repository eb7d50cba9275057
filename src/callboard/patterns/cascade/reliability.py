"""The reliability of confidences: the expected calibration error of answers, at once and over a window."""

import math
from collections import deque
from collections.abc import Iterable

__all__ = ["BINS", "ReliabilityMonitor", "calibration_error"]

BINS = 10
"""Bins of equal width for confidences from 0 to 1."""


class _Bins:
    """Answers by the bin of their confidence: how many, their summed confidence, how many are right."""

    def __init__(self) -> None:
        self.count = [0] * BINS
        self.sure = [0.0] * BINS
        self.right = [0] * BINS

    def add(self, confidence: float, right: bool, sign: int = 1) -> None:
        at = min(int(confidence * BINS), BINS - 1)
        self.count[at] += sign
        self.sure[at] += sign * confidence
        self.right[at] += sign * right

    @property
    def error(self) -> float:
        """Mean distance, by bin, of the confidence from the share of right answers."""
        total = sum(self.count)
        off = sum(abs(sure - right) for sure, right in zip(self.sure, self.right, strict=True))
        return off / total if total else math.nan

    def chance(self) -> tuple[float, float]:
        """Mean and standard deviation of the error of ``window`` answers whose confidences are exact."""
        total, mean, variance = sum(self.count), 0.0, 0.0
        for count, sure in zip(self.count, self.sure, strict=True):
            if count:
                p = min(max(sure / count, 0.0), 1.0)
                spread = count * max(p * (1 - p), 1 / total)
                mean += math.sqrt(2 / math.pi * spread) / total
                variance += spread / total**2
        return mean, math.sqrt(variance)


def is_probability(confidence: float) -> bool:
    """True if a confidence can be compared with a share; NaN cannot."""
    return 0 <= confidence <= 1


def calibration_error(answers: Iterable[tuple[float, bool]]) -> float:
    """The expected calibration error of answers: each bin's ``|mean confidence - share right|``, weighted by size.

    Args:
        answers: Confidence, and whether the answer is right.

    Returns:
        0 to 1. NaN if there is no answer, or a confidence that is no probability.
    """
    bins = _Bins()
    for confidence, right in answers:
        if not is_probability(confidence):
            return math.nan
        bins.add(confidence, right)
    return bins.error


class ReliabilityMonitor:
    """The calibration error over a sliding window, and whether it is larger than expected.

    Args:
        window: Answers in the window.
        deviations: Standard deviations that are taken for chance.
        tolerance: Difference that is no concern even if it is real.
        expected: The expected error; None takes that of the first full window. The deviation that chance alone explains
            is always allowed.
    """

    def __init__(self, window: int, deviations: float, tolerance: float, expected: float | None) -> None:
        self.expected = expected
        self.drifted = False
        self._deviations = deviations
        self._tolerance = tolerance
        self._last: deque[tuple[float, bool]] = deque()
        self._window = window
        self._bins = _Bins()

    @property
    def observed(self) -> float:
        """The error in the window; NaN while that is empty."""
        return self._bins.error

    def add(self, confidence: float, right: bool) -> bool:
        """Count an answer; returns whether the error has become too large with it.

        An answer whose confidence is no probability is not counted.
        """
        if not is_probability(confidence):
            return False
        self._last.append((confidence, right))
        self._bins.add(confidence, right)
        if len(self._last) < self._window:
            return False
        if len(self._last) > self._window:
            self._bins.add(*self._last.popleft(), sign=-1)
        observed = self.observed
        if self.expected is None:
            self.expected = observed
        mean, deviation = self._bins.chance()
        allowed = self._tolerance + self._deviations * deviation
        off = observed - max(self.expected, mean)
        was, self.drifted = self.drifted, off > (allowed / 2 if self.drifted else allowed)
        return self.drifted and not was
