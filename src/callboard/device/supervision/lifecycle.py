"""The state machine of a device, as a table: state and event give the next state. Pure: no I/O, no clock."""

import enum

__all__ = ["TABLE", "Event", "State", "after"]


class State(enum.Enum):
    """The states of a device."""

    STARTING = "starting"
    """The first context is being opened; ops are queued."""
    READY = "ready"
    REBUILDING = "rebuilding"
    """The context was lost and another is being opened; ops are queued and belong to the next generation."""
    HALF_OPEN = "half_open"
    """The restart budget is spent: one attempt per window is made; ops are queued."""
    STOPPED = "stopped"


class Event(enum.Enum):
    """The events that change the state of a device."""

    CONTEXT_READY = "context ready"
    CONTEXT_LOST = "context lost"
    """Poisoned, killed, hung, or ended while starting; the budget allows another."""
    BUDGET_SPENT = "budget spent"
    """Like CONTEXT_LOST, but with more losses in the window than the budget allows."""
    RETRY_DUE = "retry due"
    UNRECOVERABLE = "unrecoverable"
    STOP = "stop"


S, E = State, Event

TABLE: dict[tuple[State, Event], State] = {
    (S.STARTING, E.CONTEXT_READY): S.READY,
    (S.STARTING, E.CONTEXT_LOST): S.REBUILDING,
    (S.STARTING, E.BUDGET_SPENT): S.HALF_OPEN,
    (S.READY, E.CONTEXT_LOST): S.REBUILDING,
    (S.READY, E.BUDGET_SPENT): S.HALF_OPEN,
    (S.REBUILDING, E.CONTEXT_READY): S.READY,
    (S.REBUILDING, E.CONTEXT_LOST): S.REBUILDING,
    (S.REBUILDING, E.BUDGET_SPENT): S.HALF_OPEN,
    (S.HALF_OPEN, E.RETRY_DUE): S.REBUILDING,
    **{(state, E.UNRECOVERABLE): S.STOPPED for state in S},
    **{(state, E.STOP): S.STOPPED for state in S},
}
"""Pairs that are not listed cannot happen, or change nothing."""


def after(state: State, event: Event) -> State | None:
    """The next state; None if the event changes nothing (a report from an earlier generation, a late timer)."""
    return TABLE.get((state, event))
