"""Replays and calls of one library take turns, since they share its workspace; others go on beside them.

As in ``tests/device/test_mutations.py`` each check runs as the code is, and without the safeguard, where it must fail.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest
from tests.device.steps import Left, Right, StepsBackend, events

import callboard as cb
from callboard.core import registry
from callboard.device.host.context.plans.plan import Plan
from callboard.device.host.context.timelines import Timeline

BOUND = 20.0
MOMENT = 0.25
"""Seconds that an op which must not run yet gets to run anyway; without the safeguard it takes a fraction of this."""


@asynccontextmanager
async def opened() -> AsyncIterator[cb.Device]:
    events.clear()
    undo = registry.register("steps", StepsBackend())
    try:
        async with cb.device("steps", isolation="thread") as dev:
            try:
                yield dev
            finally:
                for event in list(events.values()):
                    event.set()
    finally:
        undo()


async def a_call_waits_for_the_replay(dev: cb.Device) -> None:
    x, y, z = [await dev.put(np.ones(8, "f4")) for _ in range(3)]
    with dev.record() as rec:
        rec.returns(dev.ask(Left(x=x, after="go")))
    replayed = rec.replay()
    called = dev.ask(Left(x=y, sets="ran"))
    await dev.ask(Right(x=z))  # another library
    assert not events["ran"].wait(MOMENT)
    events["go"].set()
    assert (await called.get())[0] == (await replayed.get())[0] == 2


async def a_replay_waits_for_the_call(dev: cb.Device) -> None:
    x, y, z = [await dev.put(np.ones(8, "f4")) for _ in range(3)]
    with dev.record() as rec:
        rec.returns(dev.ask(Left(x=x, sets="ran")))
    with dev.record() as other:
        other.returns(dev.ask(Right(x=z)))
    await other.replay()
    called = dev.ask(Left(x=y, after="go"))
    replayed = rec.replay()
    dev._port.flush()
    assert not events["ran"].wait(MOMENT)
    events["go"].set()
    assert (await called.get())[0] == (await replayed.get())[0] == 2


CHECKS: dict[str, tuple[Callable[[cb.Device], Awaitable[None]], Callable[[pytest.MonkeyPatch], None]]] = {
    "call": (a_call_waits_for_the_replay, lambda patch: patch.setattr(Timeline, "catch_up", lambda self: None)),
    "replay": (a_replay_waits_for_the_call, lambda patch: patch.setattr(Plan, "beside", property(_none, _none))),
}


def _none(*_: object) -> tuple[()]:
    return ()


@pytest.mark.parametrize("name", CHECKS)
async def test_replays_and_calls_take_turns(name: str) -> None:
    async with opened() as dev:
        await CHECKS[name][0](dev)


@pytest.mark.parametrize("name", CHECKS)
async def test_without_the_safeguard_they_do_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check, switch_off = CHECKS[name]
    switch_off(monkeypatch)
    monkeypatch.setitem(globals(), "MOMENT", BOUND / 2)  # the op comes now, if late on a busy machine
    async with opened() as dev:
        with pytest.raises(AssertionError):
            await check(dev)
        for event in ("go", "ran"):
            events[event].set()
        await dev.drain()


async def test_a_replay_stays_behind_what_is_parked_of_its_libraries() -> None:
    """A replay whose array is not there yet: it waits, and others of its libraries behind it."""
    async with opened() as dev:
        x, y = [await dev.put(np.ones(8, "f4")) for _ in range(2)]
        with dev.record(x=x) as rec:
            rec.returns(dev.ask(Right(x=dev.ask(Left(x=x)))))
        late = dev.ask(Left(x=y, after="go"))
        replayed = rec.replay(x=late)
        again = dev.ask(Left(x=replayed))
        events["go"].set()
        assert (await replayed.get())[0] == 4
        assert (await again.get())[0] == 5
