"""Requests in flight at each loss, and requests that may run together: against naive models."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.patterns.quarantine.blame import KEPT, Blame, Loss, Standing
from callboard.patterns.quarantine.gate import Gate, Ticket

KEYS = "abcd"
STEPS = st.one_of(
    st.tuples(st.just("lost"), st.sampled_from(KEYS), st.sampled_from([None, 1, 2, 3, 4])),
    st.tuples(st.just("forget"), st.sampled_from(KEYS), st.none()),
    st.tuples(st.just("convict"), st.sampled_from(KEYS), st.none()),
    st.tuples(st.just("time"), st.just(""), st.integers(1, 12)),
)


@given(st.lists(STEPS, max_size=40), st.integers(1, 3))
def test_blame_is_what_a_list_of_all_that_happened_says(steps: list[tuple[str, str, Any]], most: int) -> None:
    blame, now = Blame(10.0, most), 0.0
    losses: list[tuple[str, Loss]] = []  # in order; of keys that are remembered
    until: dict[str, float] = {}
    for step, key, number in steps:
        mine = [loss for name, loss in losses if name == key]
        if step == "lost":
            new = number is None or Loss("cpu:0", number) not in mine[-KEPT:]
            assert blame.lost(key, Loss("cpu:0", number)) is new
            if new:
                losses.append((key, Loss("cpu:0", number)))
            latest = list(dict.fromkeys(name for name, _ in reversed(losses)))
            losses = [each for each in losses if each[0] in latest[:most]]
            until = {name: end for name, end in until.items() if name in latest[:most]}
        elif step == "forget":
            assert blame.forget(key) is bool(mine)
            losses = [each for each in losses if each[0] != key]
            until.pop(key, None)
        elif step == "convict":
            if mine:
                blame.convict(key, now)
                until[key] = now + 10
        else:
            now += number
        assert len(blame) == len({name for name, _ in losses}) <= most
        for name in KEYS:
            count = sum(each == name for each, _ in losses)
            assert blame.standing(name) == min(count, 2)
            assert blame.losses(name) == tuple(loss for each, loss in losses if each == name)[-KEPT:]
            assert (blame.until(name) > now) is (until.get(name, 0) > now)
        assert blame.held(now) == {name: end - now for name, end in until.items() if end > now}


@given(st.booleans(), st.lists(st.tuples(st.sampled_from(Standing), st.integers(0, 7)), max_size=60))
def test_the_gate_lets_in_whom_a_search_would(spare: bool, steps: list[tuple[Standing, int]]) -> None:
    gate = Gate(spare=spare)
    waiting: list[Ticket] = []
    running: list[Ticket] = []

    def count(standing: Standing) -> int:
        return sum(ticket.standing is standing for ticket in running)

    def may_run(ticket: Ticket) -> bool:
        if ticket.standing is Standing.ALONE:
            return not (count(Standing.ALONE) if spare else running)
        if not spare and any(other.standing is Standing.ALONE for other in running + waiting):
            return False
        return ticket.standing is Standing.CLEAR or not count(Standing.SUSPECT)

    def settled(found: list[Ticket]) -> None:
        expected = []
        while (ready := next((ticket for ticket in waiting if may_run(ticket)), None)) is not None:
            waiting.remove(ready)
            running.append(ready)
            expected.append(ready)
        assert set(found) == set(expected)
        assert all(ticket.running for ticket in running)
        assert not any(ticket.running for ticket in waiting)
        assert (gate.running, gate.waiting) == (len(running), len(waiting))

    for standing, leaver in steps:
        everybody = running + waiting
        if leaver < len(everybody):
            gone = everybody[leaver]
            (running if gone in running else waiting).remove(gone)
            settled(gate.leave(gone))
        ticket = Ticket(standing)
        waiting.append(ticket)
        settled(gate.enter(ticket))
    for _ in itertools.count():
        if not running:
            break
        settled(gate.leave(running.pop()))
    assert not waiting  # each had its turn


@pytest.mark.parametrize("hold, keys, says", [(0.0, 1, "hold"), (float("inf"), 1, "hold"), (1.0, 0, "max_keys")])
def test_settings_out_of_range(hold: float, keys: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Blame(hold, keys)
