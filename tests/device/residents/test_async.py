"""Async methods of resident actors: concurrency, order, device arrays, failures, stop, and async generators."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.device.residents.async_lab import AsyncPrepare, AsyncSetup, Later, Plain
from tests.device.residents.lab import Add, OwnError, interrupt_once
from tests.device.residents.stream_lab import Streamer
from tests.device.residents.test_streams import SOON, awaited, first, taken

import callboard as cb
from callboard.actors.errors import ActorStopped
from callboard.device.host.residents.thread import coroutines

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture
def actor(dev: cb.Device) -> cb.ResidentRef[Later]:
    return dev.actor_of(cb.Props(Later), name="later")


async def restarted(actor: cb.ResidentRef[Later], times: int) -> None:
    """The application has heard of so many restarts, and of no more."""
    async with asyncio.timeout(SOON):
        while actor.restarts < times:
            await actor.call(Later.state)
    assert actor.restarts == times


async def begun(actor: cb.ResidentRef[Later], text: str) -> None:
    """Wait until the actor has logged this."""
    async with asyncio.timeout(SOON):
        while text not in (await actor.call(Later.state))[2]:
            pass


# -- calls -------------------------------------------------------------------------------------------------------------


async def test_coroutines_run_at_once_and_plain_methods_in_between(actor: cb.ResidentRef[Later]) -> None:
    waiting = {name: actor.call(Later.wait, name) for name in "abc"}
    await begun(actor, "c begins")
    await actor.call(Later.open, "b")
    assert await awaited(waiting["b"]) == "b"
    assert not waiting["a"].done()
    await actor.call(Later.open, "c")
    assert await awaited(waiting["c"]) == "c"
    await actor.call(Later.open, "a")
    assert await awaited(waiting["a"]) == "a"
    assert actor.in_flight == 0


async def test_at_most_max_concurrency_run_and_calls_begin_in_order(actor: cb.ResidentRef[Later]) -> None:
    await actor.call(Later.open, "background")
    names = [str(i) for i in range(10)]
    waiting = [actor.call(Later.wait, name) for name in names]
    running, _, _ = await actor.call(Later.state)  # a plain method waits for no coroutine
    assert running <= 4
    for name in reversed(names):
        await actor.call(Later.open, name)
    assert [await awaited(reply) for reply in waiting] == names
    _, most, log = await actor.call(Later.state)
    assert most == 4, (running, log)
    begins = [line for line in log if line.endswith("begins") and line != "background begins"]
    assert begins == [f"{name} begins" for name in names]


async def test_values_arrays_refs_and_messages(dev: cb.Device, actor: cb.ResidentRef[Later]) -> None:
    array = np.random.default_rng(0).random(300_000)
    got = await asyncio.gather(*(awaited(actor.call(Later.echo, [i, array])) for i in range(20)))
    for i, (number, back) in enumerate(got):
        assert number == i
        np.testing.assert_array_equal(back, array)
    np.testing.assert_array_equal(await (await actor.call(Later.lend, 4)).get(), [0, 1, 2, 3])
    assert await actor.ask(Add(n=4)) == 5
    assert await actor.call(Later.plain_later, 3) == 3
    with pytest.raises(TypeError, match="the coroutine returned an awaitable"):
        await actor.call(Later.nested)
    with pytest.raises(ValueError, match="memory is the caller's"):
        await actor.call(Later.lend_argument, dev.zeros(3))
    with pytest.raises(TypeError, match="object cannot travel"):
        actor.call(Later.echo, object())


async def test_a_class_without_async_methods_has_no_loop(dev: cb.Device) -> None:
    plain = dev.actor_of(cb.Props(Plain))
    assert not await plain.call(Plain.has_loop)
    with pytest.raises(TypeError, match="no method of its class is async; make it `async def`"):
        await plain.call(Plain.waits)
    with pytest.raises(TypeError, match="no method of its class is async; declare"):
        await taken(plain.stream(Plain.yields))
    assert coroutines.has_coroutines(Later)
    assert coroutines.has_coroutines(AsyncSetup)
    assert not coroutines.has_coroutines(Streamer)


async def test_setup_may_be_async_and_prepare_may_not(dev: cb.Device) -> None:
    assert await dev.actor_of(cb.Props(AsyncSetup)).call(AsyncSetup.get) == 5
    with pytest.raises(ActorStopped, match=r"AsyncPrepare.prepare is async"):
        await dev.actor_of(cb.Props(AsyncPrepare)).call(AsyncPrepare.get)


# -- device arrays -----------------------------------------------------------------------------------------------------


async def test_calls_that_write_an_array_do_not_run_at_once(dev: cb.Device, actor: cb.ResidentRef[Later]) -> None:
    x = dev.zeros(4, "f64")
    replies = [actor.call(Later.increment, x if i % 2 else x[1:]) for i in range(50)]
    late = dev.copy(x)
    for reply in replies:
        await awaited(reply)
    np.testing.assert_array_equal(await late.get(), [25, 50, 50, 50])
    log = [line for line in (await actor.call(Later.state))[2] if line.startswith("writ")]
    assert log == ["writing", "written"] * 50


async def test_readers_share_and_writers_wait_for_them(dev: cb.Device, actor: cb.ResidentRef[Later]) -> None:
    x, y = dev.full(4, 2.0, "f64"), dev.full(4, 1.0, "f64")
    readers = [actor.call(Later.total, x, "read") for _ in range(2)]
    other = actor.call(Later.increment, y, "write")
    opens = [actor.call(Later.open, "write"), actor.call(Later.open, "read")]
    writer = actor.call(Later.increment, x)
    last = actor.call(Later.total, x)
    for reply in (*opens, other):
        await awaited(reply)
    assert [await awaited(r) for r in readers] == [8.0, 8.0]
    await awaited(writer)
    assert await awaited(last) == 12.0
    log = [line for line in (await actor.call(Later.state))[2] if line[:4] in ("writ", "read")]
    assert log[:3] == ["reading", "reading", "writing"]  # at once
    assert log[-3:] == ["writing", "written", "reading"]  # one after the other
    np.testing.assert_array_equal(await y.get(), np.full(4, 2.0))


async def test_a_failed_writer_fails_the_calls_behind_it(dev: cb.Device, actor: cb.ResidentRef[Later]) -> None:
    x = dev.zeros(3, "f64")
    failed, behind, late = actor.call(Later.spoil, x), actor.call(Later.increment, x), dev.copy(x)
    for reply in (failed, behind, late):
        with pytest.raises(OwnError, match="spoilt"):
            await awaited(reply)
    assert "writing" not in (await actor.call(Later.state))[2]
    dev.fill(x, 1.0)
    await awaited(actor.call(Later.increment, x))
    np.testing.assert_array_equal(await x.get(), np.full(3, 2.0))


# -- failures ----------------------------------------------------------------------------------------------------------


async def test_an_exception_is_an_answer_and_the_others_run_on(actor: cb.ResidentRef[Later]) -> None:
    waiting = actor.call(Later.wait, "a")
    failing = [actor.call(Later.fail, "own") for _ in range(5)]
    for reply in failing:
        with pytest.raises(OwnError, match="bad") as caught:
            await awaited(reply)
        assert caught.value.number == 7
    with pytest.raises(cb.Withdrawn, match="was cancelled"):
        await awaited(actor.call(Later.fail, "cancelled"))
    await actor.call(Later.open, "a")
    assert await awaited(waiting) == "a"
    assert actor.restarts == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("method", [Later.fail, Later.fail_at_once])
@pytest.mark.parametrize("how", ["key", "exit"])
async def test_a_restart_cancels_the_other_coroutines(dev: cb.Device, how: str, method: Any, tmp_path: Path) -> None:
    actor = dev.actor_of(cb.Props(Later, str(tmp_path / "ended")), name="later")
    waiting = actor.call(Later.wait, "a")
    stubborn = actor.call(Later.stubborn, "b")
    stream = actor.stream(Later.count, 100).with_prefetch(0)
    assert await first(stream, 2) == [0, 1]
    failing = actor.call(method, how)
    behind = actor.call(Later.echo, 5)
    kind: type[Exception] = KeyError if how == "key" else cb.RemoteError
    with pytest.raises(kind) as caught:
        await awaited(failing)
    with pytest.raises(kind, match=str(caught.value)) as cancelled:
        await awaited(waiting)
    assert any(
        "restarted or stopped the resident actor, which cancelled this call" in n for n in cancelled.value.__notes__
    )
    assert await awaited(stubborn) == "in the end"  # it has returned all the same
    with pytest.raises(kind):
        await anext(stream)
    assert await awaited(behind) == 5
    assert sorted(set((tmp_path / "ended").read_text().split("\n"))) == ["", "a cancelled", "count closed"]
    assert (await actor.call(Later.state))[2][:1] != ["a begins"]  # a new instance
    await restarted(actor, 1)


async def test_several_failures_at_once_restart_it_once(actor: cb.ResidentRef[Later]) -> None:
    names = [str(n) for n in range(Later.max_concurrency)]
    failing = [actor.call(Later.fail_after, name) for name in names]
    await begun(actor, f"{names[-1]} begins")
    await actor.call(Later.open_all, names)  # in one call: all of them fail in the next iteration of the loop
    for reply in failing:
        with pytest.raises(KeyError):
            await awaited(reply)
    assert await awaited(actor.call(Later.echo, 1)) == 1
    await restarted(actor, 1)


async def test_a_coroutine_that_does_not_end_is_left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coroutines, "GRACE", 0.05)
    async with cb.device("cpu", isolation="thread", standby=None) as dev:
        actor = dev.actor_of(cb.Props(Later))
        endless = actor.call(Later.endless)
        with pytest.raises(KeyError):
            await awaited(actor.call(Later.fail, "key"))
        with pytest.raises(KeyError):
            await awaited(endless)
        assert await awaited(actor.call(Later.echo, 1)) == 1
        endless = actor.call(Later.endless)
        await actor.call(Later.state)
        await actor.stop_and_wait(timeout=SOON)
        with pytest.raises(ActorStopped):
            await awaited(endless)


@pytest.mark.slow
async def test_cancelling_a_reply_cancels_its_coroutine(actor: cb.ResidentRef[Later]) -> None:
    waiting = actor.call(Later.wait, "a")
    await begun(actor, "a begins")
    waiting.cancel()
    with pytest.raises(cb.Withdrawn):
        await awaited(waiting)
    await begun(actor, "a cancelled")
    assert actor.restarts == 0


async def test_a_call_can_be_cancelled(actor: cb.ResidentRef[Later]) -> None:
    waiting = [actor.call(Later.wait, name) for name in "abcdef"]  # more than run at once
    await begun(actor, "c begins")
    for at in (0, 5):
        await actor.call(Later.cancel, waiting[at]._op)
        with pytest.raises(cb.Withdrawn, match="the coroutine of the call was cancelled"):
            await awaited(waiting[at])
    for name in "bcde":
        await actor.call(Later.open, name)
    assert [await awaited(reply) for reply in waiting[1:5]] == list("bcde")
    log = (await actor.call(Later.state))[2]
    assert "a cancelled" in log
    assert "f begins" not in log
    assert actor.restarts == 0


# -- the end -----------------------------------------------------------------------------------------------------------


async def test_stop_cancels_what_runs(dev: cb.Device, tmp_path: Path) -> None:
    actor = dev.actor_of(cb.Props(Later, str(tmp_path / "ended")))
    waiting = [actor.call(Later.wait, name) for name in "abcdefg"]  # more than run at once
    stream = actor.stream(Later.count, 100)
    await dev.stats()
    await actor.stop_and_wait(timeout=SOON)
    for reply in waiting:
        with pytest.raises(ActorStopped):
            await awaited(reply)
    with pytest.raises(ActorStopped):
        await anext(stream)
    ended = (tmp_path / "ended").read_text().split("\n") if (tmp_path / "ended").exists() else []
    assert {"e cancelled", "f cancelled", "g cancelled"}.isdisjoint(ended)  # they had not begun


async def test_a_closed_device_ends_its_coroutines(isolation: str, tmp_path: Path) -> None:
    async with cb.device("cpu", isolation=isolation, standby=None, close_timeout=SOON) as dev:
        actor = dev.actor_of(cb.Props(Later, str(tmp_path / "ended")))
        waiting = actor.call(Later.wait, "a")
        stream = actor.stream(Later.gated, 5, "stream")
        assert await first(stream, 1) == [0]
        await begun(actor, "stream begins")
    with pytest.raises((ActorStopped, cb.DeviceStopped)):
        await awaited(waiting)
    assert {"a cancelled", "stream closed", "background cancelled"} <= set((tmp_path / "ended").read_text().split("\n"))


@pytest.mark.slow
@pytest.mark.fault
async def test_a_lost_context_ends_its_coroutines() -> None:
    async with cb.device("cpu", isolation="process", standby="hot") as dev:
        actor = dev.actor_of(cb.Props(Later))
        waiting = [actor.call(Later.wait, str(i)) for i in range(3)]
        stream = actor.stream(Later.count, 100)
        assert await first(stream, 2) == [0, 1]
        since = dev.watch_generation().value
        pid = dev.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        for reply in waiting:
            with pytest.raises(cb.ContextPoisoned):
                await awaited(reply)
        async with asyncio.timeout(SOON):
            await dev.watch_generation().changed(since)
        with pytest.raises(cb.ContextPoisoned):
            await taken(stream)
        assert await awaited(actor.call(Later.echo, 1)) == 1


async def test_on_the_callers_loop() -> None:
    async with cb.device("cpu", isolation="thread", dispatcher="caller", standby=None) as dev:
        actor = dev.actor_of(cb.Props(Later))
        waiting = actor.call(Later.wait, "a")
        await actor.call(Later.open, "a")
        assert await awaited(waiting) == "a"
        assert await taken(actor.stream(Later.count, 10)) == list(range(10))


# -- async generators --------------------------------------------------------------------------------------------------


async def test_async_generators_are_streams(actor: cb.ResidentRef[Later]) -> None:
    assert await taken(actor.stream(Later.count, 30)) == list(range(30))
    assert await taken(actor.stream(Later.plain_count, 30)) == list(range(30))
    streams = [actor.stream(Later.count, 12, str(i)) for i in range(100)]
    assert await asyncio.gather(*(first(s, 3) for s in streams)) == [[0, 1, 2]] * 100
    assert await asyncio.gather(*map(taken, streams)) == [list(range(3, 12))] * 100
    assert await actor.call(Later.open_streams) == 0
    stream = actor.stream(Later.fails, 3, "own")
    assert await first(stream, 3) == [0, 1, 2]
    with pytest.raises(OwnError, match="bad"):
        await anext(stream)
    assert await taken(stream) == []
    assert await actor.call(Later.open_streams) == 0


async def test_a_stream_that_waits_does_not_hold_up_others(actor: cb.ResidentRef[Later]) -> None:
    slow = actor.stream(Later.gated, 3, "gate").with_prefetch(9)
    assert await first(slow, 1) == [0]
    assert await taken(actor.stream(Later.count, 20)) == list(range(20))
    assert await awaited(actor.call(Later.echo, 1)) == 1
    await actor.call(Later.open, "gate")
    assert await taken(slow) == [1, 2]


@pytest.mark.slow
async def test_leaving_cancels_the_step_and_closes_before_later_calls(actor: cb.ResidentRef[Later]) -> None:
    stream = actor.stream(Later.gated, 100, "gate").with_prefetch(9)
    assert await first(stream, 1) == [0]
    await begun(actor, "gate begins")
    del stream
    log = (await awaited(actor.call(Later.state)))[2]
    assert log[-2:] == ["gate cancelled", "gate closed"]
    assert await actor.call(Later.open_streams) == 0
    async with actor.stream(Later.count, 100, "with") as other:
        assert await first(other, 5) == [0, 1, 2, 3, 4]
    assert (await actor.call(Later.state))[2][-1] == "with closed"


@pytest.mark.parametrize("stops", [False, True])
async def test_a_step_that_was_cancelled_behind_another_ends_once_when_the_actor_fails(
    dev: cb.Device, actor: cb.ResidentRef[Later], stops: bool
) -> None:
    stream = actor.stream(Later.count, 5).with_prefetch(0)
    assert await first(stream, 1) == [0]
    waiting = [actor.call(Later.wait, name) for name in "abcd"]  # as many as may run
    await begun(actor, "d begins")
    stream._steps.ask_ahead(2)
    step, cancelled = stream._steps.asked  # the first waits for its turn, the second one behind it
    await actor.call(Later.state)
    assert cancelled.cancel()
    with pytest.raises(cb.Withdrawn):
        await awaited(cancelled)
    if stops:
        await actor.stop_and_wait(timeout=SOON)
    else:
        with pytest.raises(KeyError):
            await awaited(actor.call(Later.fail_at_once, "key"))
        await awaited(actor.call(Later.state))
    for reply in (*waiting, step):
        with pytest.raises((KeyError, ActorStopped)):
            await awaited(reply)
    assert (await dev.stats()).restarts == 0  # the host goes on
    assert dev.health().state == "ready"


@pytest.mark.slow
async def test_an_exit_of_a_task_of_the_actors_own_restarts_it(dev: cb.Device, actor: cb.ResidentRef[Later]) -> None:
    for restarts in (1, 2, 3):
        waiting = actor.call(Later.wait, "a")
        await begun(actor, "a begins")
        await actor.call(Later.leave)
        with pytest.raises(cb.RemoteError, match="SystemExit: 3"):
            await awaited(waiting)
        assert (await awaited(actor.call(Later.state)))[2] == ["background begins"]  # another instance
        await restarted(actor, restarts)
    await actor.call(Later.leave)
    with pytest.raises(ActorStopped, match="SystemExit: 3"):
        await awaited(actor.call(Later.wait, "a"))
    await dev.stats()


async def test_a_call_that_an_error_of_the_host_interrupts_fails_with_the_actor(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cb.device(backend, isolation="thread") as dev, asyncio.timeout(SOON):
        actor = dev.actor_of(cb.Props(Later), name="later")
        waiting = actor.call(Later.wait, "a")
        await begun(actor, "a begins")
        interrupt_once(monkeypatch)
        interrupted = actor.call(Later.state)
        with pytest.raises(ActorStopped, match="later has stopped"):
            await waiting
        with pytest.raises(ActorStopped, match=r"later has stopped: .*RuntimeError: internal"):
            await interrupted
