"""The table of a device's life, exhaustively."""

import pytest

from callboard.device.supervision.lifecycle import TABLE, Event, State, after

S, E = State, Event

ALLOWED = {
    S.STARTING: {E.CONTEXT_READY: S.READY, E.CONTEXT_LOST: S.REBUILDING, E.BUDGET_SPENT: S.HALF_OPEN},
    S.READY: {E.CONTEXT_LOST: S.REBUILDING, E.BUDGET_SPENT: S.HALF_OPEN},
    S.REBUILDING: {E.CONTEXT_READY: S.READY, E.CONTEXT_LOST: S.REBUILDING, E.BUDGET_SPENT: S.HALF_OPEN},
    S.HALF_OPEN: {E.RETRY_DUE: S.REBUILDING},
    S.STOPPED: {},
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_every_pair(state: State, event: Event) -> None:
    expected = S.STOPPED if event in (E.STOP, E.UNRECOVERABLE) else ALLOWED[state].get(event)
    assert after(state, event) is expected


def test_stopped_is_final_and_every_other_state_can_be_left() -> None:
    assert all(to is S.STOPPED for (state, _), to in TABLE.items() if state is S.STOPPED)
    for state in set(State) - {S.STOPPED}:
        assert {to for (of, _), to in TABLE.items() if of is state} - {state}
