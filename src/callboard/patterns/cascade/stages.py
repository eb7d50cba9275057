"""``CascadeStage``: one model of a cascade, its answers and figures; and the decision after an answer or a failure."""

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, SupportsFloat, TypeVar

from callboard.actors.errors import printable
from callboard.patterns.batching.figures import BatchingStats
from callboard.patterns.cascade.confidence import margin, max_probability, negative_entropy
from callboard.patterns.contract.checks import OneOf
from callboard.patterns.requests.stats import ServerStats

__all__ = [
    "CascadeReply",
    "CascadeStage",
    "CascadeStats",
    "NoConfidence",
    "OnError",
    "StageStats",
    "clears",
    "on_failure",
]

R = TypeVar("R")


class NoConfidence(TypeError):
    """A stage's results have no confidence: a mistake in the program, which no other stage's answer makes good."""


CONFIDENCES: dict[str, Callable[[Any], float]] = {
    function.__name__: function for function in (margin, max_probability, negative_entropy)
}
"""Confidence functions by name, for ``CascadeStage.confidence``."""


class OnError(OneOf):
    """Treatment of a request for which a stage fails. Members equal their texts."""

    ESCALATE = "escalate"
    """The item goes to the next stage; after the last one, as with ``fallback``."""
    FALLBACK = "fallback"
    """It gets the answer of the last stage that has given one, marked as degraded; without one, the error."""
    FAIL = "fail"
    """It gets the error."""


@dataclass(frozen=True)
class CascadeStage:
    """One model of a cascade.

    Attributes:
        function: Function that receives a list of items and returns (or awaits) one result for each, in order: a pair
            of answer and confidence, or only the answer if ``confidence`` is set. As for ``DynamicBatchingServer``.
        threshold: The smallest confidence at which its answer is given. Not used of the last stage.
        confidence: Finds the confidence of an answer: a function, or the name of one of a row of logits, ``"margin"``,
            ``"max_probability"`` or ``"negative_entropy"``. A NaN clears no threshold.
        draft: True if the function gets pairs of an item and the last answer of the stages before, None without one.
        timeout: Seconds that a request spends in this stage at most; None means no limit.
        on_error: Policy when the stage fails, or exceeds ``timeout``, and no stage has answered yet.
        cost: Cost relative to other stages, for :meth:`InferenceCascade.calibrate`.
        batching: Further arguments of its ``DynamicBatchingServer``, such as ``max_batch``.
    """

    function: Callable[[list[Any]], Any]
    threshold: float = 0.0
    confidence: Callable[[Any], float] | str | None = None
    draft: bool = False
    timeout: float | None = None
    on_error: OnError | Literal["escalate", "fallback", "fail"] = OnError.ESCALATE
    cost: float = 1.0
    batching: Mapping[str, Any] = field(default_factory=dict)
    _confidence: Any = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "on_error", OnError(self.on_error))
        found = CONFIDENCES.get(self.confidence) if isinstance(self.confidence, str) else self.confidence
        object.__setattr__(self, "_confidence", found)
        if self.confidence is not None and not callable(self._confidence):
            names = ", ".join(CONFIDENCES)
            raise ValueError(f"confidence must be a function or one of {names}, but is {self.confidence!r}")
        if math.isnan(self.threshold):
            raise ValueError("threshold is NaN; no confidence would clear it")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"timeout must be positive seconds, but is {self.timeout}")
        if not 0 <= self.cost < math.inf:
            raise ValueError(f"cost must be a finite number of at least 0, but is {self.cost}")

    def _confidence_of(self, result: Any) -> float:
        try:
            found = self._confidence(result)
        except Exception as e:  # of a hook
            raise NoConfidence(f"confidence failed for {result!r:.100}: {printable(e, repr)}") from e
        return _number(found, result)

    def answer(self, result: Any) -> tuple[Any, float]:
        """Answer and confidence of a result of the function.

        Raises:
            NoConfidence: It is not a pair of an answer and a number, and there is no ``confidence``; or that failed.
        """
        if self._confidence is not None:
            return result, self._confidence_of(result)
        if isinstance(result, tuple) and len(result) == 2:
            try:
                return result[0], float(result[1])
            except (TypeError, ValueError):  # no number
                pass
        raise NoConfidence(
            f"a stage without confidence= must return pairs of answer and confidence, but returned {result!r:.100}; "
            "return such pairs, of the last stage too, or set confidence="
        )


@dataclass(frozen=True)
class CascadeReply(Generic[R]):
    """A reply of a cascade.

    Attributes:
        response: The answer of a stage.
        stage_index: Index of the stage, from 0.
        confidence: Its confidence in the answer.
        degraded: A further stage was to answer, but failed, was full, or was too late.
    """

    response: R
    stage_index: int
    confidence: float
    degraded: bool = False


@dataclass(frozen=True)
class StageStats:
    """Figures of one stage.

    Attributes:
        answered: Requests that got its answer, also degraded ones.
        escalated: Answers of its own that did not clear its threshold.
        failed: Requests that it failed for, or was full or too late for.
        batching: Of its server, where shadow runs and calibrations count too.
        ahead: Requests that entered it before the stage before it had answered (``ahead`` of the cascade).
    """

    answered: int
    escalated: int
    failed: int
    batching: BatchingStats
    ahead: int


@dataclass(frozen=True)
class CascadeStats(ServerStats):
    """Figures of a cascade. ``running`` has all open requests; those of each stage have its queue.

    Attributes:
        degraded: Requests that ended in a degraded answer.
        shadowed: Answers of earlier stages that were compared with the last stage's.
        agreed: Those of them that were equal.
        drifted: What is not as it was calibrated, now; see :class:`DriftAlarm`.
        stages: Of each stage.
    """

    degraded: int
    shadowed: int
    agreed: int
    drifted: tuple[str, ...]
    stages: tuple[StageStats, ...]


def _number(found: Any, result: Any) -> float:
    if isinstance(found, SupportsFloat) and not isinstance(found, bool | str | bytes):
        with contextlib.suppress(TypeError, ValueError):  # of an array of several, for example
            return float(found)
    raise NoConfidence(f"confidence returned {found!r:.100} for {result!r:.100}; it must return a number")


def clears(confidence: float, threshold: float, *, last: bool) -> bool:
    """True if an answer is accepted: always in the last stage, else from the threshold on; NaN never."""
    return last or confidence >= threshold


def on_failure(on_error: OnError, *, last: bool, answered: bool, late: bool) -> OnError:
    """The action after a stage that failed, or was too late.

    Args:
        on_error: The stage's policy.
        last: There is no further stage.
        answered: An earlier stage has given an answer.
        late: The stage was too late: an existing answer is returned, whatever the policy.
    """
    if late and answered:
        return OnError.FALLBACK
    if on_error is OnError.ESCALATE and not last:
        return OnError.ESCALATE
    return OnError.FALLBACK if answered and on_error is not OnError.FAIL else OnError.FAIL
