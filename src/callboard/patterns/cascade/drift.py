"""``Drift``: detects that a cascade deviates from its calibration. No clock, no I/O."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from callboard.patterns.cascade.reliability import ReliabilityMonitor

__all__ = ["Drift", "DriftAlarm", "DriftMonitor", "ShareMonitor"]


@dataclass(frozen=True)
class DriftAlarm:
    """A share, or an error, that deviates from the expected one.

    Attributes:
        signal: ``"escalation of stage 0"`` (share of all answers that come from later stages) and so on, or
            ``"agreement"`` (of early answers with the last stage's, in shadow runs), or ``"calibration error"`` (of
            early answers' confidences as the probability of that agreement).
        expected: The value of the calibration, or of the first window.
        observed: The value of the last window.
        window: Answers in it.
    """

    signal: str
    expected: float
    observed: float
    window: int


@dataclass(frozen=True)
class Drift:
    """Criterion for a drifted share: its last ``window`` answers are beyond chance, and beyond ``tolerance``.

    The share of a window varies by chance with the standard deviation ``sqrt(p * (1 - p) / window)``.

    Attributes:
        window: Answers in the window.
        deviations: Standard deviations that are taken for chance.
        tolerance: Difference that is no concern even if it is real.
        alarm: Called with a :class:`DriftAlarm` when a share has drifted, once until it is back; None: drift is only
            visible in the log and in ``stats().drifted``.
    """

    window: int = 500
    deviations: float = 4.0
    tolerance: float = 0.02
    alarm: Callable[[DriftAlarm], object] | None = None

    def __post_init__(self) -> None:
        if self.window < 10:
            raise ValueError(f"window must be at least 10 answers, but is {self.window}")
        for name in ("deviations", "tolerance"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a number of at least 0, but is {value}")


class ShareMonitor:
    """One share over a sliding window.

    Args:
        settings: When it has drifted.
        expected: The expected share; None takes that of the first full window.
    """

    def __init__(self, settings: Drift, expected: float | None) -> None:
        self.expected = expected
        self.drifted = False
        self._settings = settings
        self._last: deque[bool] = deque(maxlen=settings.window)
        self._count = 0

    @property
    def observed(self) -> float:
        """The share in the window; 0 while that is empty."""
        return self._count / len(self._last) if self._last else 0.0

    def add(self, yes: bool) -> bool:
        """Count an answer; returns whether the share has drifted with it."""
        settings, last = self._settings, self._last
        if len(last) == settings.window:
            self._count -= last[0]
        last.append(yes)
        self._count += yes
        if len(last) < settings.window:
            return False
        if self.expected is None:
            self.expected = self.observed
        chance = math.sqrt(max(self.expected * (1 - self.expected), 1 / settings.window) / settings.window)
        allowed = settings.tolerance + settings.deviations * chance
        off = abs(self.observed - self.expected)
        was, self.drifted = self.drifted, off > (allowed / 2 if self.drifted else allowed)
        return self.drifted and not was


class DriftMonitor:
    """All shares of a cascade, and the error of its confidences.

    Args:
        settings: When they have drifted.
        stages: The number of stages.
    """

    def __init__(self, settings: Drift, stages: int) -> None:
        self._settings = settings
        self._stages = stages
        self._monitors: dict[str, ShareMonitor] = {}
        self.expect(None)

    def expect(self, escalated: tuple[float, ...] | None, error: float | None = None) -> None:
        """Start again with new thresholds; with these shares and this error, or with those of the next window."""
        for stage in range(self._stages - 1):
            expected = None if escalated is None else escalated[stage]
            self._monitors[f"escalation of stage {stage}"] = ShareMonitor(self._settings, expected)
        self._monitors["agreement"] = ShareMonitor(self._settings, None)
        now = self._settings
        self._reliability = ReliabilityMonitor(now.window, now.deviations, now.tolerance, error)

    def answered(self, stage: int) -> list[DriftAlarm]:
        """This stage has given an answer; returns the shares that have drifted with it."""
        found = [self._add(f"escalation of stage {each}", stage > each) for each in range(self._stages - 1)]
        return [alarm for alarm in found if alarm is not None]

    def compared(self, agreed: bool, confidence: float) -> list[DriftAlarm]:
        """Add the result of a shadow run; returns the alarms that it caused."""
        alarm = self._add("agreement", agreed)
        found = [] if alarm is None else [alarm]
        monitor = self._reliability
        if monitor.add(confidence, agreed):
            assert monitor.expected is not None
            found.append(DriftAlarm("calibration error", monitor.expected, monitor.observed, self._settings.window))
        return found

    @property
    def drifted(self) -> tuple[str, ...]:
        """The signals that are off now."""
        found = [signal for signal, monitor in self._monitors.items() if monitor.drifted]
        return (*found, *(["calibration error"] if self._reliability.drifted else []))

    def _add(self, signal: str, yes: bool) -> DriftAlarm | None:
        monitor = self._monitors[signal]
        if not monitor.add(yes):
            return None
        assert monitor.expected is not None
        return DriftAlarm(signal, monitor.expected, monitor.observed, self._settings.window)
