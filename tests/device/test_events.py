"""Events and ``dev.time()``: ordering across streams, processes and contexts."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.device import steps
from tests.device.steps import Left, Right, StepsBackend, events

import callboard as cb
from callboard.core import registry
from callboard.testing.faulty import FaultyBackend

BOUND = 20.0
MOMENT = 0.25
"""Seconds that an op which must not run yet gets to run anyway; without the fence it takes a fraction of this."""

pytestmark = [pytest.mark.leaves_nothing]


@pytest.fixture
async def dev() -> AsyncIterator[cb.Device]:
    events.clear()
    undo = registry.register("steps", StepsBackend())
    try:
        async with cb.device("steps", isolation="thread") as opened:
            try:
                yield opened
            finally:
                for event in list(events.values()):
                    event.set()
    finally:
        undo()


def ones() -> Any:
    return np.ones(4, np.float32)


async def test_an_event_is_reached_when_all_ops_before_are_done(dev: cb.Device) -> None:
    a = await dev.put(ones())
    held = dev.ask(Left(x=a, after="go"))  # kept, as its memory would be that of the next result
    event = dev.event.create().record()
    await dev.ask(Right(x=a))
    assert not event.query()
    assert not held.done()
    events["go"].set()
    async with asyncio.timeout(BOUND):
        await event
    assert event.query()


async def test_an_event_behind_an_array_does_not_wait_for_others(dev: cb.Device) -> None:
    a = await dev.put(ones())
    held = dev.ask(Left(x=a, after="go"))
    event = dev.event.create().record(dev.ask(Right(x=a)))
    async with asyncio.timeout(BOUND):
        await event
    assert not held.done()


async def test_an_event_behind_a_failed_array_fails_likewise(dev: cb.Device) -> None:
    event = dev.event.create().record(dev.ask(Left(x=dev.put(ones()), fails=True)))
    with pytest.raises(cb.LibraryError, match="it was told to fail"):
        await event
    with pytest.raises(cb.LibraryError, match="it was told to fail"):
        event.query()


async def test_what_waits_for_an_event_stays_behind_it(dev: cb.Device) -> None:
    a, b = await dev.put(ones()), await dev.put(ones())
    held = dev.ask(Left(x=a, after="go"))  # kept, as its memory would be that of the next result
    event = dev.event.create().record(held)
    event.wait(b)
    behind, free = dev.ask(Right(x=b, sets="behind")), dev.ask(Right(x=a, sets="free"))
    assert not await asyncio.to_thread(events["behind"].wait, MOMENT)
    events["go"].set()
    np.testing.assert_array_equal(await behind.get(), 2 * ones())
    np.testing.assert_array_equal(await free.get(), 2 * ones())


@pytest.mark.parametrize("known", [True, False], ids=["a stream that is there", "a new stream"])
async def test_a_wait_for_all_holds_every_stream(dev: cb.Device, known: bool) -> None:
    a = await dev.put(ones())
    if known:
        await dev.ask(Right(x=a))
    held = dev.ask(Left(x=a, after="go", sets="left"))  # kept, as its memory would be that of the next result
    event = dev.event.create().record(held)
    event.wait()
    right = dev.ask(Right(x=a, sets="right"))
    assert not await asyncio.to_thread(events["right"].wait, MOMENT)
    events["go"].set()
    await right
    assert events["left"].is_set()


async def test_the_block_of_a_measurement_begins_behind_the_work_before_and_ends_with_its_own(dev: cb.Device) -> None:
    a = await dev.put(ones())
    await dev.ask(Right(x=a))
    held = dev.ask(Left(x=a, after="before"))
    with dev.time() as t:
        inside = dev.ask(Right(x=a, sets="inside"))
    assert not await asyncio.to_thread(events["inside"].wait, MOMENT), "the block waits for what was called before it"
    assert not inside.done()
    assert not held.done()
    events["before"].set()
    async with asyncio.timeout(BOUND):
        seconds = await t
    assert events["inside"].is_set()
    assert 0 < seconds < BOUND
    assert await t == seconds


async def test_a_measurement_takes_in_what_its_ops_wait_for(dev: cb.Device) -> None:
    a = await dev.put(ones())
    await dev.ask(Left(x=a))
    with dev.time() as none:
        pass
    loop = asyncio.get_running_loop()
    with dev.time() as t:
        began = loop.time()
        kept = [dev.ask(Left(x=a, sets="begun")), dev.ask(Left(x=a, after="go"))]
    await asyncio.to_thread(events["begun"].wait, BOUND)
    reached = loop.time()
    while loop.time() < reached + 0.02:
        await dev.stats()
    events["go"].set()
    ended = reached + 0.02
    assert await t >= 0.02
    assert all(ref.done() for ref in kept)
    assert await none < ended - began + BOUND


async def test_a_block_that_raises_measures_nothing(dev: cb.Device) -> None:
    with pytest.raises(ZeroDivisionError), dev.time() as t:
        1 / 0  # noqa: B018
    with pytest.raises(RuntimeError, match="has not ended, or has failed"):
        await t
    with pytest.raises(RuntimeError, match="entered before"), t:
        pass


async def test_misuse_is_refused_at_the_call(dev: cb.Device) -> None:
    event, other = dev.event.create(), dev.event.create(timing=False).record()
    for call, text in (
        (event.wait, "wait: the event has not been recorded"),
        (event.query, "query: the event has not been recorded"),
        (lambda: event.elapsed(other), "elapsed: start: the event has not been recorded"),
        (other.export, "interprocess=True"),
        (lambda: dev.event.create(timing=True, interprocess=True), "timing=False"),
        (lambda: dev.event.open(b"nonsense"), "not an IpcEventHandle"),
        (lambda: event.record().elapsed(other), "end keeps no times"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(TypeError, match="pass an IpcEventHandle"):
        dev.event.open("handle")  # type: ignore[arg-type]


async def test_events_that_are_garbage_are_given_back(dev: cb.Device) -> None:
    event = dev.event.create().record()
    await event
    destroyed: list[Any] = []
    await dev.trace(lambda record: destroyed.append(record.tag))
    del event
    dev.event.create()
    await dev.drain()
    await dev.stats()
    assert destroyed == ["event.destroy"]


async def test_an_event_is_of_one_context(tmp_path: Path) -> None:
    backend = FaultyBackend("cpu", poison_at=3, once=str(tmp_path / "once"))
    async with cb.device(backend.spec, isolation="process") as dev:
        event = dev.event.create().record()
        await event
        a = dev.put(ones())
        with pytest.raises(cb.ContextLost):
            await dev.copy(a)
        event.wait()
        with pytest.raises(cb.GpuRefStale, match="record it again"):
            await event.elapsed(event)
        async with asyncio.timeout(BOUND):
            await event.record()
        assert await event.elapsed(event) == 0


class Inside(cb.ResidentActor):
    """Measures where it lives."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.dev = ctx.device

    def measure(self) -> tuple[float, float]:
        a = self.dev.put(np.ones((64, 64)))
        with self.dev.time() as t:
            b = self.dev.blas.gemm(a, a)
        start, end = self.dev.event.create().record(a), self.dev.event.create().record(b)
        return t.result(), start.elapsed(end).result()


async def test_a_resident_actor_measures_its_own_ops(dev: cb.Device) -> None:
    actor = dev.actor_of(cb.Props(Inside))
    async with asyncio.timeout(BOUND):
        seconds, between = await actor.call(Inside.measure)
    assert 0 < seconds < BOUND
    assert 0 <= between < BOUND


OTHER = """
import sys, callboard as cb
with cb.sync.device("cpu", isolation=sys.argv[1]) as dev:
    event = dev.event.open(bytes.fromhex(sys.stdin.readline()))
    event.wait()
    print("opened", flush=True)
    a = dev.full((3,), 7.0)
    print(a.get()[0], flush=True)
"""


@pytest.mark.parametrize("isolation", ["thread", pytest.param("process", marks=pytest.mark.slow)])
async def test_another_process_waits_for_an_event(
    dev: cb.Device, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "PATIENCE", 600.0)  # the op waits while a process starts
    a = await dev.put(ones())
    event = dev.event.create(timing=False, interprocess=True).record(dev.ask(Left(x=a, after="go")))
    handle = await event.export()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OTHER, isolation, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    async with asyncio.timeout(3 * BOUND):
        child.stdin.write(handle.as_bytes().hex().encode() + b"\n")
        assert await child.stdout.readline() == b"opened\n"
        told = asyncio.ensure_future(child.stdout.readline())
        await dev.stats()
        assert not told.done()
        events["go"].set()
        assert await told == b"7.0\n"
        child.stdin.close()
        await child.wait()
