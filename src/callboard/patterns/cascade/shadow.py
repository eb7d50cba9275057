"""``ShadowRuns``: the last stage runs behind answers of earlier ones, to be compared; and alarms of drift."""

import asyncio
import logging
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from callboard.patterns.batching.server import DynamicBatchingServer
from callboard.patterns.cascade.drift import Drift, DriftAlarm, DriftMonitor
from callboard.patterns.cascade.reliability import calibration_error
from callboard.patterns.contract.atcall import as_given
from callboard.patterns.contract.hooks import truth
from callboard.patterns.contract.taking import taken
from callboard.patterns.requests.server import RequestServer

__all__ = ["ShadowRuns"]

_log = logging.getLogger(__name__)


class ShadowRuns:
    """Compares the answers of earlier stages with the last stage's, and watches for drift.

    Args:
        owner: The server whose answers these are.
        last: The server of the last stage.
        answer: Gives the answer and its confidence, of a result of the last stage.
        draft: The last stage takes pairs of an item and an earlier answer.
        share: Share of the early answers that are compared.
        agree: The user's function: True if two answers are equal.
        seed: Of the choice.
        drift: When an alarm is raised; None: never.
        stages: The number of stages.

    Attributes:
        compared: Answers that were compared so far.
        agreed: Those of them that were equal.
    """

    def __init__(
        self,
        owner: RequestServer[Any, Any],
        last: DynamicBatchingServer[Any, Any],
        answer: Callable[[Any], tuple[Any, float]],
        *,
        draft: bool,
        share: float,
        agree: Callable[[Any, Any], bool],
        seed: int,
        drift: Drift | None,
        stages: int,
    ) -> None:
        if not 0 <= share <= 1:
            raise ValueError(f"shadow must be a share from 0 to 1, but is {share}")
        self._owner = owner
        self._last = last
        self._answer = answer
        self._draft = draft
        self._share = share
        self._agree = agree
        self._random = random.Random(seed)
        self._drift = drift
        self._monitor = None if drift is None else DriftMonitor(drift, stages)
        self.compared = self.agreed = 0

    @property
    def drifted(self) -> tuple[str, ...]:
        """The signals that are off now."""
        return () if self._monitor is None else self._monitor.drifted

    def expect(self, escalated: tuple[float, ...] | None, early: Sequence[tuple[Any, float, Any]] = ()) -> None:
        """Start again with new thresholds.

        Args:
            escalated: The expected shares beyond each stage; None: those of the next window.
            early: Early answers, their confidences, and the last stage's answers, of a calibration.
        """
        if self._monitor is not None:
            error = calibration_error([(sure, bool(self._agree(answer, last))) for answer, sure, last in early])
            self._monitor.expect(escalated, None if math.isnan(error) else error)

    def answered(self, index: int, *, degraded: bool) -> None:
        """A stage has given a request its answer."""
        if self._monitor is not None and not degraded:
            self._alarm_of(self._monitor.answered(index))

    def run(self, item: Any, response: Any, confidence: float) -> None:
        """Maybe run the last stage as well, at the lowest priority, and compare."""
        if self._random.random() >= self._share:
            return
        response = taken(response)  # its caller has it, too, and may write it

        def compare(future: "asyncio.Future[Any]") -> None:
            if future.cancelled() or future.exception() is not None:
                return
            try:
                agreed = truth("agree", self._agree(response, self._answer(future.result())[0]))
            except Exception:  # of a hook, in a run whose result no caller awaits
                text = "%s: `agree` or `confidence` failed in a shadow run, which is not counted"
                _log.exception(text, self._owner.name)
                return
            self.compared += 1
            self.agreed += agreed
            if self._monitor is not None:
                self._alarm_of(self._monitor.compared(agreed, confidence))

        try:
            future = as_given(self._last.submit_nowait)((item, response) if self._draft else item, priority=-1)
        except Exception:  # no room for a run whose result is not awaited
            return
        future.add_done_callback(compare, context=self._owner._context)

    def _alarm_of(self, alarms: list[DriftAlarm]) -> None:
        for alarm in alarms:
            _log.warning(
                "%s: %s is %.3f in the last %d answers, and %.3f is expected: calibrate again",
                *(self._owner.name, alarm.signal, alarm.observed, alarm.window, alarm.expected),
            )
            if self._drift is not None and self._drift.alarm is not None:
                try:
                    self._drift.alarm(alarm)
                except Exception:  # of the user's hook: no request depends on it
                    _log.exception("%s: the alarm of a drift failed", self._owner.name)
