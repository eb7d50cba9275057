"""``DeviceDecision``: what a device's supervisor decides about a failure, and the table of what it may decide. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from callboard.actors.supervision import Directive

__all__ = ["PIECES", "DeviceDecision", "FailureKind", "checked_decision"]


@dataclass(frozen=True, slots=True)
class DeviceDecision:
    """A decision of a :class:`DeviceSupervisor`. A :class:`Directive` alone is a decision without pause and trim.

    Attributes:
        directive: The action.
        pause: Seconds before another context is made; a positive pause makes the device half-open meanwhile. Only with
            ``Directive.RESTART`` of a context.
        trim: Out of memory only: release all cached memory and retry the op once, before the directive is applied to
            an op that still has none.
        reason: With ``Directive.STOP``: the text of the :class:`DeviceStopped`; empty: the error's text.

    Raises:
        TypeError, ValueError: A field of the wrong type, or out of range.
    """

    directive: Directive
    pause: float = 0.0
    trim: bool = False
    reason: str = ""

    def __post_init__(self) -> None:
        given: Any = self.directive
        if not isinstance(given, Directive):
            raise TypeError(f"DeviceDecision: directive is {given!r:.200}; use a cb.Directive")
        pause: Any = self.pause
        if isinstance(pause, bool) or not isinstance(pause, int | float):
            raise TypeError(f"DeviceDecision: pause is {pause!r:.200}; use a number of seconds")
        if not (math.isfinite(pause) and pause >= 0):
            raise ValueError(f"DeviceDecision: pause is {pause!r}; use a finite number of seconds, not negative")
        trim: Any = self.trim
        if not isinstance(trim, bool):
            raise TypeError(f"DeviceDecision: trim is {trim!r:.200}; use True or False")
        reason: Any = self.reason
        if not isinstance(reason, str):
            raise TypeError(f"DeviceDecision: reason is {reason!r:.200}; use a text")


class FailureKind(NamedTuple):
    """One method of :class:`DeviceSupervisor`.

    Attributes:
        failure: What has happened.
        directives: The directives that it may return, each with its effect.
        pause, trim: Whether its decision may have these.
    """

    failure: str
    directives: Mapping[Directive, str]
    pause: bool = False
    trim: bool = False


_CONTEXT: Final = {
    Directive.RESTART: "another context is made; a standby takes over",
    Directive.STOP: "the device stops",
}
_ESCALATE: Final = "the context counts as lost; on_context_lost decides"

PIECES: Final[Mapping[str, FailureKind]] = {
    "on_context_lost": FailureKind("a context was lost", _CONTEXT, pause=True),
    "on_unrecoverable": FailureKind("the device reported an unrecoverable error", _CONTEXT, pause=True),
    "on_out_of_memory": FailureKind(
        "an op has no memory",
        {
            Directive.RESUME: "the op fails with OutOfMemory",
            Directive.ESCALATE: _ESCALATE,
            Directive.STOP: "the device stops",
        },
        trim=True,
    ),
    "on_library_failure": FailureKind(
        "a library has failed; its op fails with LibraryError",
        {
            Directive.RESUME: "the library keeps its handle and plans",
            Directive.RESTART: "the library's handle and plans are made again",
            Directive.ESCALATE: _ESCALATE,
            Directive.STOP: "the device stops",
        },
    ),
    "on_actor_stopped": FailureKind(
        "a resident actor has stopped after a failure",
        {
            Directive.RESUME: "the device and its other actors continue",
            Directive.ESCALATE: _ESCALATE,
            Directive.STOP: "the device stops",
        },
    ),
}
"""The pieces of a supervisor, by the name of the method."""


def checked_decision(piece: str, given: Any) -> DeviceDecision:
    """What a method of a supervisor has returned, as a decision.

    Raises:
        TypeError: It is not one that this method may return; the text names the value and what it may return.
    """
    decision = DeviceDecision(given) if isinstance(given, Directive) else given
    allowed = PIECES[piece]
    if (
        not isinstance(decision, DeviceDecision)
        or decision.directive not in allowed.directives
        or (decision.pause and not (allowed.pause and decision.directive is Directive.RESTART))
        or (decision.trim and not allowed.trim)
    ):
        raise TypeError(f"it returned {given!r:.300}; return {_choices(allowed)}")
    return decision


def _choices(piece: FailureKind) -> str:
    words = ", ".join(f"cb.Directive.{directive.name}" for directive in piece.directives)
    if piece.pause:
        return f"one of {words}, or cb.DeviceDecision(cb.Directive.RESTART, pause=seconds)"
    if piece.trim:
        return f"one of {words}, or cb.DeviceDecision(directive, trim=True)"
    return f"one of {words}"
