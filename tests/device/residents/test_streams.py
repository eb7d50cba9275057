"""Generators of resident actors: items, order, back-pressure, and all ways in which a stream ends."""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.device.residents.lab import Gate, OwnError
from tests.device.residents.stream_lab import Streamer

import callboard as cb
from callboard.actors.errors import ActorStopped

pytestmark = pytest.mark.leaves_nothing

SOON = 20.0


@pytest.fixture
def actor(dev: cb.Device) -> cb.ResidentRef[Streamer]:
    return dev.actor_of(cb.Props(Streamer), name="streamer")


async def taken(stream: cb.Stream[Any]) -> list[Any]:
    async with asyncio.timeout(SOON):
        return [item async for item in stream]


async def first(stream: cb.Stream[Any], n: int) -> list[Any]:
    async with asyncio.timeout(SOON):
        return [await anext(stream) for _ in range(n)]


# -- items -------------------------------------------------------------------------------------------------------------


async def test_items_come_in_order_and_end(actor: cb.ResidentRef[Streamer]) -> None:
    stream = actor.stream(Streamer.count, 50)
    assert await taken(stream) == list(range(50))
    assert await taken(stream) == []  # it is over
    assert await actor.call(Streamer.state) == (50, ["count done", "count closed"])
    assert await actor.call(Streamer.open_streams) == 0
    assert repr(stream) == "<Stream of streamer.count, over>"
    assert await taken(actor.stream(Streamer.count, 0)) == []
    assert await taken(actor.stream(Streamer.iterator, 3)) == [0, 1, 2]
    await actor.call(Streamer.state)  # behind what was asked for and is not there
    assert actor.in_flight == 0


async def test_items_and_arguments_of_all_kinds_travel(dev: cb.Device, actor: cb.ResidentRef[Streamer]) -> None:
    parts: list[Any] = [None, (), [], {"a": (1,)}, "x" * 300_000, np.arange(100_000)]
    got = await taken(actor.stream(Streamer.echo, parts, times=2, name="x", stream=3))
    assert got[:5] == parts[:5]
    assert got[6:11] == parts[:5]
    for array in (got[5], got[11]):
        np.testing.assert_array_equal(array, parts[5])
    for size in (3, 200_000):
        arrays = await taken(actor.stream(Streamer.arrays, 9, size))
        assert [(a.shape, a[-1]) for a in arrays] == [((size,), i) for i in range(9)]
    refs = await taken(actor.stream(Streamer.lend, 3))
    np.testing.assert_array_equal(await dev.copy(refs[2]).get(), [2, 2, 2])


@pytest.mark.parametrize("prefetch", [0, 1, 4, 9])
async def test_the_generator_is_never_further_than_the_items_asked_for(
    actor: cb.ResidentRef[Streamer], prefetch: int
) -> None:
    stream = actor.stream(Streamer.count, 40).with_prefetch(prefetch)
    assert (await actor.call(Streamer.state))[0] == 0  # nothing runs before the iteration begins
    for consumed in range(1, 31):
        assert await anext(stream) == consumed - 1
        assert (await actor.call(Streamer.state))[0] == consumed + prefetch  # behind what was asked for
    assert await taken(stream) == list(range(30, 40))
    with pytest.raises(ValueError, match="must not be negative, but is -1"):
        stream.with_prefetch(-1)


async def test_streams_and_calls_take_turns(actor: cb.ResidentRef[Streamer]) -> None:
    one = actor.stream(Streamer.letters, "abc").with_prefetch(0)
    two = actor.stream(Streamer.letters, "xyz").with_prefetch(0)
    for _ in range(3):
        await anext(one)
        await actor.call(Streamer.mark, "-")
        await anext(two)
    assert (await actor.call(Streamer.state))[1] == ["a", "-", "x", "b", "-", "y", "c", "-", "z"]


@pytest.mark.slow
async def test_a_hundred_streams_progress_together(actor: cb.ResidentRef[Streamer]) -> None:
    streams = [actor.stream(Streamer.count, 12, str(i)) for i in range(100)]
    assert await asyncio.gather(*(first(s, 3) for s in streams)) == [[0, 1, 2]] * 100
    assert await actor.call(Streamer.open_streams) == 100
    assert await asyncio.gather(*map(taken, streams)) == [list(range(3, 12))] * 100
    assert await actor.call(Streamer.open_streams) == 0


async def test_streams_in_threads_and_on_other_loops(actor: cb.ResidentRef[Streamer]) -> None:
    def consume() -> list[int]:
        return asyncio.run(taken(actor.stream(Streamer.count, 20)))

    assert await asyncio.gather(*(asyncio.to_thread(consume) for _ in range(4))) == [list(range(20))] * 4


@pytest.mark.slow
async def test_where_there_is_little_room_fewer_items_are_asked_for(dev: cb.Device, gate: Gate) -> None:
    actor = dev.actor_of(cb.Props(Narrow))
    stream = actor.stream(Streamer.count, 20).with_prefetch(50)
    assert await taken(stream) == list(range(20))
    await dev.drain()
    waiting = [actor.call(Streamer.wait, gate.path) for _ in range(2)]
    stream = actor.stream(Streamer.count, 3)
    with pytest.raises(cb.MailboxFull, match="max_in_flight"):
        await anext(stream)
    gate.open_for_good()
    await asyncio.gather(*map(awaited, waiting))
    await stream._steps.opened
    assert await taken(stream) == [0, 1, 2]  # it went on


async def test_a_stream_of_an_actor_that_takes_one_call_at_a_time(dev: cb.Device, gate: Gate) -> None:
    actor = dev.actor_of(cb.Props(Single))
    assert await taken(actor.stream(Streamer.count, 5)) == list(range(5))
    stream = actor.stream(Streamer.count, 2)
    await awaited(stream._steps.opened)
    waiting = actor.call(Streamer.wait, gate.path)
    with pytest.raises(cb.MailboxFull, match="max_in_flight"):
        await anext(stream)
    gate.open_for_good()
    await awaited(waiting)
    assert await taken(stream) == [0, 1]  # it went on


async def test_items_that_are_asked_for_ahead_take_no_calls_place(dev: cb.Device, gate: Gate) -> None:
    actor = dev.actor_of(cb.Props(Newest))
    running = actor.call(Streamer.wait, gate.path)
    await gate.reached()
    stream = actor.stream(Streamer.count, 20)
    first_item = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)  # it has asked
    assert actor.in_flight == 3  # the call that waits, the opening, and one item
    gate.open_for_good()
    assert await awaited(first_item) == 0
    assert await taken(stream) == list(range(1, 20))
    await awaited(running)


class Narrow(Streamer):
    max_in_flight = 3


class Single(Streamer):
    max_in_flight = 1


class Newest(Narrow):
    overflow = "drop_old"


async def awaited(reply: cb.Reply[Any]) -> Any:
    async with asyncio.timeout(SOON):
        return await reply


# -- leaving -----------------------------------------------------------------------------------------------------------


async def test_a_closed_stream_closes_its_generator(actor: cb.ResidentRef[Streamer]) -> None:
    stream = actor.stream(Streamer.count, 100)
    assert await first(stream, 2) == [0, 1]
    await stream.aclose()
    steps, log = await actor.call(Streamer.state)
    assert steps <= 6
    assert log == ["count closed"]
    assert await taken(stream) == []
    await stream.aclose()
    assert await actor.call(Streamer.open_streams) == 0


async def test_a_break_closes_the_generator_before_later_calls(actor: cb.ResidentRef[Streamer]) -> None:
    async with actor.stream(Streamer.count, 100, "with") as stream:
        async for item in stream:
            if item == 2:
                break
    assert (await actor.call(Streamer.state))[1] == ["with closed"]
    async for item in actor.stream(Streamer.count, 100, "loop"):
        if item == 2:
            break
    assert (await actor.call(Streamer.state))[1] == ["with closed", "loop closed"]


async def test_a_dropped_stream_closes_its_generator(actor: cb.ResidentRef[Streamer]) -> None:
    stream = actor.stream(Streamer.count, 100)
    await anext(stream)
    knot: list[Any] = [stream]
    knot.append(knot)
    del stream, knot
    gc.collect()
    assert (await actor.call(Streamer.state))[1] == ["count closed"]
    actor.stream(Streamer.count, 100)  # never started: nothing to clean up
    assert await actor.call(Streamer.open_streams) == 0
    assert (await actor.call(Streamer.state))[1] == ["count closed"]


@pytest.mark.slow
async def test_a_stream_dropped_on_another_thread_is_closed(actor: cb.ResidentRef[Streamer]) -> None:
    held = [actor.stream(Streamer.count, 100)]
    await anext(held[0])
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert (await actor.call(Streamer.state))[1] == ["count closed"]


async def test_a_cancelled_consumer_leaves(actor: cb.ResidentRef[Streamer], gate: Gate) -> None:
    stream = actor.stream(Streamer.gated, gate.path, 10)
    task = asyncio.ensure_future(taken(stream))
    await gate.reached()  # it is in its second step, and the consumer waits
    with pytest.raises(RuntimeError, match=r"streamer.gated: another task waits for an item"):
        await anext(stream)
    with pytest.raises(RuntimeError, match="another task waits"):
        await stream.aclose()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    late = actor.call(Streamer.state)
    await gate.let_through()
    steps, log = await awaited(late)
    assert log == ["gated closed"]
    assert steps >= 2
    assert await taken(stream) == []


async def test_items_that_were_asked_for_are_not_made_when_the_consumer_has_left(
    dev: cb.Device, actor: cb.ResidentRef[Streamer], gate: Gate
) -> None:
    stream = actor.stream(Streamer.gated, gate.path, 100).with_prefetch(20)
    assert await first(stream, 1) == [0]
    await gate.reached()  # 19 more are queued behind this step
    closing = asyncio.ensure_future(stream.aclose())
    for _ in range(3):  # it is sent behind the first, and queued for the actor before the third is received
        await dev.stats()
    await gate.let_through()
    async with asyncio.timeout(SOON):
        await closing
    assert await actor.call(Streamer.state) == (2, ["gated closed"])


@pytest.mark.slow
async def test_a_generator_that_fails_to_close_tells_who_closes_it(
    actor: cb.ResidentRef[Streamer], caplog: pytest.LogCaptureFixture
) -> None:
    stream = actor.stream(Streamer.fails_to_close, 10)
    await anext(stream)
    with pytest.raises(OwnError, match="cleaning up"):
        await stream.aclose()
    stream = actor.stream(Streamer.fails_to_close, 10)
    await anext(stream)
    del stream  # nobody is told: the log is
    async with asyncio.timeout(SOON):
        while not [r for r in caplog.records if "cleaning up" in r.message]:
            await actor.call(Streamer.state)
            gc.collect()


@pytest.mark.slow
async def test_a_stream_that_cannot_be_closed_at_once_is_closed_later(
    dev: cb.Device, actor: cb.ResidentRef[Streamer], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = actor.stream(Streamer.count, 100)
    assert await first(stream, 1) == [0]
    await dev.drain()
    monkeypatch.setattr(dev._actor.port, "_room", 0)
    closing = asyncio.ensure_future(stream.aclose())
    await dev.stats()
    assert not closing.done()
    monkeypatch.undo()
    async with asyncio.timeout(SOON):
        await closing
    assert (await actor.call(Streamer.state))[1] == ["count closed"]


# -- failures ----------------------------------------------------------------------------------------------------------


async def test_an_exception_comes_once_in_its_class_behind_the_items(actor: cb.ResidentRef[Streamer]) -> None:
    stream = actor.stream(Streamer.fails, 5, "own")
    assert await first(stream, 5) == [0, 1, 2, 3, 4]
    with pytest.raises(OwnError, match="bad") as caught:
        await anext(stream)
    assert caught.value.number == 7
    assert any(f"streamer.fails, made at {__file__}" in note for note in caught.value.__notes__)
    assert await taken(stream) == []
    assert await actor.call(Streamer.state) == (5, ["own closed"])
    assert await actor.call(Streamer.open_streams) == 0
    with pytest.raises(RuntimeError, match="generator raised StopIteration"):
        await taken(actor.stream(Streamer.fails, 0, "stop"))
    assert actor.restarts == 0


async def test_an_item_that_cannot_travel_ends_the_stream(actor: cb.ResidentRef[Streamer]) -> None:
    stream = actor.stream(Streamer.fails, 2, "unsendable")
    assert await first(stream, 2) == [0, 1]
    with pytest.raises(TypeError, match="object cannot travel"):
        await anext(stream)
    assert await taken(stream) == []
    assert await actor.call(Streamer.state) == (2, ["unsendable closed"])  # the items behind it were not made


async def test_a_method_that_raises_before_it_yields(actor: cb.ResidentRef[Streamer]) -> None:
    stream = actor.stream(Streamer.refuses)
    with pytest.raises(OwnError, match="not today"):
        await anext(stream)
    assert await taken(stream) == []


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["key", "exit"])
async def test_a_restart_ends_all_streams_with_its_failure(actor: cb.ResidentRef[Streamer], how: str) -> None:
    kind: type[Exception] = KeyError if how == "key" else cb.RemoteError
    own = actor.stream(Streamer.fails, 2, how)
    other = actor.stream(Streamer.count, 100).with_prefetch(1)
    assert await first(other, 3) == [0, 1, 2]
    assert await first(own, 2) == [0, 1]
    with pytest.raises(kind) as caught:
        await anext(own)
    assert await first(other, 1) == [3]  # which was made before
    with pytest.raises(kind, match=str(caught.value)) as broken:
        await anext(other)
    assert any("restarted the resident actor, which closed the generator" in n for n in broken.value.__notes__)
    assert await taken(other) == []
    assert await taken(actor.stream(Streamer.count, 3)) == [0, 1, 2]
    assert await actor.call(Streamer.open_streams) == 0
    assert actor.restarts == 1


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["key", "exit"])
async def test_another_calls_failure_ends_streams(dev: cb.Device, how: str, tmp_path: Path) -> None:
    actor = dev.actor_of(cb.Props(Streamer, str(tmp_path / "ended")))
    stream = actor.stream(Streamer.count, 100).with_prefetch(0)
    left = actor.stream(Streamer.count, 100, "left").with_prefetch(0)
    assert await first(stream, 3) == [0, 1, 2]
    assert await first(left, 3) == [0, 1, 2]
    with pytest.raises(KeyError if how == "key" else cb.RemoteError):
        await actor.call(Streamer.fail, how)
    with pytest.raises(KeyError if how == "key" else cb.RemoteError):
        await anext(stream)
    assert sorted((tmp_path / "ended").read_text().split("\n")[:2]) == ["count closed", "left closed"]
    await left.aclose()
    assert await actor.call(Streamer.open_streams) == 0
    assert await actor.call(Streamer.state) == (0, [])


async def test_a_stopped_actor_closes_its_generators(dev: cb.Device, tmp_path: Path) -> None:
    actor = dev.actor_of(cb.Props(Streamer, str(tmp_path / "ended")))
    stream, left = actor.stream(Streamer.count, 100).with_prefetch(0), actor.stream(Streamer.count, 100, "left")
    assert await first(stream, 2) == await first(left, 2) == [0, 1]
    await actor.stop_and_wait()
    assert sorted((tmp_path / "ended").read_text().split()) == ["closed", "closed", "count", "left"]
    with pytest.raises(ActorStopped):
        await anext(stream)
    assert await taken(stream) == []
    await left.aclose()


async def test_a_time_limit_is_that_of_each_item(actor: cb.ResidentRef[Streamer], gate: Gate) -> None:
    assert await taken(actor.with_timeout(SOON).stream(Streamer.count, 10)) == list(range(10))
    stream = actor.with_timeout(0.01).stream(Streamer.gated, gate.path, 10)
    with pytest.raises(cb.AskTimeout, match=r"streamer.gated: no item within 0.01 s; the stream is closed"):
        await taken(stream)
    gate.open_for_good()
    assert set((await actor.call(Streamer.state))[1][2:]) <= {"gated closed"}  # the first item may have been late
    assert await actor.call(Streamer.open_streams) == 0


# -- a lost context ----------------------------------------------------------------------------------------------------


def kill(dev: cb.Device) -> None:
    pid = dev.health().host_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


@pytest.mark.fault
async def test_a_lost_context_ends_its_streams(gates: Callable[[str], Gate]) -> None:
    gate = gates("gate")
    async with cb.device("cpu", isolation="process", standby="hot") as dev:
        actor = dev.actor_of(cb.Props(Streamer))
        waiting, idle = actor.stream(Streamer.gated, gate.path, 9), actor.stream(Streamer.count, 9).with_prefetch(2)
        assert await first(idle, 3) == [0, 1, 2]
        fresh = actor.stream(Streamer.count, 9)
        await dev.drain()
        assert await first(waiting, 1) == [0]
        since = dev.watch_generation().value
        kill(dev)
        with pytest.raises(cb.ContextPoisoned):
            await first(waiting, 1)
        async with asyncio.timeout(SOON):
            await dev.watch_generation().changed(since)
        assert await first(idle, 2) == [3, 4]  # they had come
        with pytest.raises(cb.ContextPoisoned, match=r"count: the context in which the generator ran was lost"):
            await anext(idle)
        with pytest.raises(cb.ContextPoisoned):
            await anext(fresh)
        for stream in (waiting, idle, fresh):
            assert await taken(stream) == []
            await stream.aclose()
        assert await taken(actor.stream(Streamer.count, 3)) == [0, 1, 2]
        assert await actor.call(Streamer.open_streams) == 0


@pytest.mark.slow
@pytest.mark.fault
async def test_a_host_that_does_not_know_the_stream_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread may ask for an item while the context is being replaced: the next one is asked then."""
    async with cb.device("cpu", isolation="process", standby="hot") as dev:
        actor = dev.actor_of(cb.Props(Streamer))
        stream = actor.stream(Streamer.count, 9).with_prefetch(0)
        assert await first(stream, 3) == [0, 1, 2]
        since = dev.watch_generation().value
        kill(dev)
        async with asyncio.timeout(SOON):
            await dev.watch_generation().changed(since)
        monkeypatch.setattr(stream._steps, "_generation", dev._actor.port.generation)
        with pytest.raises(cb.ContextPoisoned, match="was lost; open the stream again"):
            await anext(stream)
        assert await taken(stream) == []


# -- refusals ----------------------------------------------------------------------------------------------------------


async def test_what_is_called_and_what_is_streamed(dev: cb.Device, actor: cb.ResidentRef[Streamer]) -> None:
    with pytest.raises(TypeError, match=r"streamer.count yields its results; use `stream` in place of `call`"):
        actor.call(Streamer.count, 3)
    with pytest.raises(TypeError, match="returned generator, an iterator; use `stream`"):
        await actor.call(Streamer.hidden)
    assert await taken(actor.stream(Streamer.hidden)) == [0, 1, 2]
    with pytest.raises(TypeError, match=r"streamer.listed returned list, not an iterator; use `call`"):
        await taken(actor.stream(Streamer.listed))
    with pytest.raises(TypeError, match=r"streamer.count\(self, n.*: missing a required argument"):
        actor.stream(Streamer.count)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"streamer.count: n: .*object cannot travel"):
        actor.stream(Streamer.count, object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"streamer.takes: array has a GpuRef that the method may write, .* cb.In"):
        actor.stream(Streamer.takes, dev.zeros(3))
    assert await taken(actor.stream(Streamer.takes, np.ones(200_000))) == [200_000.0]
    await actor.call(Streamer.state)
    assert actor.in_flight == 0


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "body", [["next"], ["next", "1"], ["close", {}], ["open", 5], ["open"], ["close", None], ["other", 1], []]
)
async def test_a_malformed_step_is_that_calls_error(actor: cb.ResidentRef[Streamer], body: list[Any]) -> None:
    from callboard.device.client.residents.calls import Arguments

    arguments = Arguments("test", body, (), {}, None, frozenset())
    with pytest.raises(TypeError, match="is not a step of a stream"):
        await actor._residents.caller.call(actor._actor, arguments, None)
    assert (await actor.call(Streamer.state))[0] == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("value", [5, [1], (1, 2), "x"])
async def test_a_malformed_answer_ends_the_stream(actor: cb.ResidentRef[Streamer], value: Any) -> None:
    stream = actor.stream(Streamer.count, 3)
    await anext(stream)
    with pytest.raises(cb.ReplyError, match="neither an item nor the end"):
        stream._steps.take(value)


# -- on the caller's loop ----------------------------------------------------------------------------------------------


async def test_streams_on_the_callers_loop() -> None:
    async with cb.device("cpu", isolation="thread", dispatcher="caller", standby=None) as dev:
        actor = dev.actor_of(cb.Props(Streamer))
        assert await taken(actor.stream(Streamer.count, 20)) == list(range(20))
        async for _ in actor.stream(Streamer.count, 20):
            break
        assert (await actor.call(Streamer.state))[1][2:] == ["count closed"]
