"""A lost context as users see it: generations, refs, budgets, events, suspects, retries."""

import asyncio
import gc
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from tests.device.probes import EVENTS, Add, ProbeBackend
from tests.faults.load import BOUND, lost_and_recovered, signal_host

import callboard as cb
from callboard.actors import ManualClock
from callboard.backends.cpu.device import CpuBackend
from callboard.core import registry
from callboard.device.client.line.copying import Copier

pytestmark = [pytest.mark.fault, pytest.mark.leaves_nothing]

Opener = Callable[..., Any]


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape or (4,), np.float32)


def kill(dev: cb.Device) -> None:
    pid = dev.health().host_pid
    assert pid is not None
    assert pid != os.getpid()
    os.kill(pid, signal.SIGKILL)


@asynccontextmanager
async def process(**options: Any) -> AsyncIterator[cb.Device]:
    async with cb.device("cpu", **{"isolation": "process", "standby": None, "max_restarts": None, **options}) as dev:
        yield dev


async def ended(reply: Any) -> BaseException:
    """The error that a reply ends in."""
    async with asyncio.timeout(BOUND):
        with pytest.raises(cb.AccelError) as caught:
            await reply
    return caught.value


# -- generations -------------------------------------------------------------------------------------------------------


async def test_refs_of_a_lost_generation_are_stale_at_the_call_and_only_there() -> None:
    async with process() as dev:
        x = dev.put(ones())
        view = x[1:]
        token = x.token()
        await x
        before = dev.generation
        lost, recovered = await lost_and_recovered(dev, lambda: kill(dev))
        assert (lost.generation, recovered.generation) == (before, dev.generation)
        assert dev.generation > before
        for call in (lambda: dev.copy(x), lambda: view.get(), lambda: dev.blas.nrm2(x), lambda: x.token()):
            with pytest.raises(cb.GpuRefStale, match="context rebuilt") as caught:
                call()
            assert caught.value.reason == "context rebuilt"
            assert caught.value.generation == before
        with pytest.raises(cb.GpuRefStale, match="context rebuilt"):
            dev.resolve(token)
        assert x.is_stale
        x.free()  # harmless
        np.testing.assert_array_equal(await dev.put(ones()).get(), ones())


async def test_ops_called_during_a_rebuild_belong_to_the_next_generation_and_work() -> None:
    async with process() as dev:
        await dev.put(ones())
        events = dev.events()
        kill(dev)
        assert isinstance(await anext(events), cb.Lost)
        assert dev.health().state == "rebuilding"
        a = dev.put(np.full((3, 3), 2, np.float32))
        b = dev.blas.gemm(a, a)
        reply = b.get()
        assert a.generation == dev.generation
        np.testing.assert_array_equal(await reply, np.full((3, 3), 12, np.float32))
        assert (dev.health().state, dev.health().ordinal, (await dev.stats()).ordinal) == ("ready", 2, 2)
        await events.aclose()  # type: ignore[attr-defined]


@pytest.mark.slow
async def test_generations_only_grow_and_are_watched() -> None:
    async with process() as dev:

        async def watch() -> list[int]:
            return [generation async for generation in dev.watch_generation()]

        watcher = asyncio.create_task(watch())
        for _ in range(3):
            await lost_and_recovered(dev, lambda: kill(dev))
        last = dev.generation
        await dev.close()
        seen = await asyncio.wait_for(watcher, BOUND)
        assert seen == sorted(set(seen))
        assert seen[-1] == last
        assert all(g >> 20 > 1_600_000_000_000 for g in seen)  # milliseconds since 1970: later runs are higher


@pytest.mark.slow
async def test_what_was_sent_and_what_was_not_fail_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    async with process() as dev:
        await dev.put(ones())
        kill(dev)
        sent = dev.put(ones())
        dev._port.flush()
        unsent = dev.copy(sent)
        with cb.request_key("request-7"):
            keyed = dev.copy(unsent)
        for reply in (sent, unsent, keyed):
            error = await ended(reply)
            assert type(error) is cb.ContextPoisoned
            assert error.generation is not None
            assert error.generation < dev.generation
            assert "SIGKILL" in str(error)
            assert [s.op for s in error.suspects] == ["memory.upload", "memory.copy", "memory.copy"]
            assert error.suspects[2].request_key == "request-7"
            assert all(s.where.startswith(f"{__file__}:") for s in error.suspects)
            assert any("made at " + __file__ in note for note in error.__notes__)
        assert any("request request-7" in note for note in error.__notes__)
        assert len({id(e) for e in [(await ended(r)) for r in (sent, unsent)]}) == 2  # each op has an error of its own


@pytest.mark.slow
async def test_a_failure_of_a_loss_that_nobody_awaits_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "callboard"):
        async with process() as dev:
            await dev.put(ones())
            await lost_and_recovered(dev, lambda: (kill(dev), [dev.put(ones()) for _ in range(20)]))
            gc.collect()
            await dev.put(ones())
    lines = [r for r in caplog.records if "was not awaited: ContextPoisoned" in r.message]
    assert len(lines) == 1


@pytest.mark.slow
async def test_a_loss_that_somebody_sees_is_not_logged_for_what_it_made_on_the_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR, "callboard"):
        async with process() as dev:
            await dev.put(ones())
            kill(dev)
            chain = dev.copy(dev.copy(dev.put(ones())))
            await dev._actor.watch_generation.changed()
            assert isinstance(await ended(chain), cb.ContextPoisoned)
            del chain
            gc.collect()
            await dev.put(ones())
    assert not [r for r in caplog.records if "was not awaited: ContextPoisoned" in r.message]


@pytest.mark.slow
async def test_a_view_of_a_pending_ref_outlives_the_ref() -> None:
    async with process() as dev:
        view = dev.put(np.arange(6, dtype=np.float32))[2:][:2]
        gc.collect()
        assert not view.done()
        async with asyncio.timeout(BOUND):
            assert await view is view
        kill(dev)
        lost = dev.put(ones())[1:]
        gc.collect()
        assert isinstance(await ended(lost), cb.ContextPoisoned)


# -- budget ------------------------------------------------------------------------------------------------------------


async def test_the_fourth_loss_within_a_minute_stops_the_device() -> None:
    async with process(max_restarts=3) as dev:
        events = dev.events()
        for _ in range(3):
            await lost_and_recovered(dev, lambda: kill(dev))
        kill(dev)
        reply = dev.put(ones())
        told = [e async for e in events]
        assert [type(e).__name__ for e in told] == ["Lost", "Recovered"] * 3 + ["Lost", "Stopped"]
        recovered, last = told[-3:-1]
        assert isinstance(recovered, cb.Recovered)
        assert isinstance(last, cb.Lost)
        assert isinstance(last.error, cb.ContextPoisoned)
        assert (last.generation, last.failed) == (recovered.generation, 1)
        error = await ended(reply)
        assert type(error) is cb.DeviceStopped
        assert "more than 3 contexts lost within 60.0 s" in str(error)
        assert dev.stopped
        assert dev.health().state == "stopped"
        with pytest.raises(cb.DeviceStopped, match="more than 3 contexts"):
            dev.put(ones())
        for control in (dev.ready(), dev.stats(), dev.trim(), dev.room(1)):
            with pytest.raises(cb.DeviceStopped):
                await control
        await dev.drain()


async def test_a_stopped_device_leaves_no_host_behind_and_can_be_opened_again() -> None:
    options = {"isolation": "process", "standby": "hot", "max_restarts": 0}
    async with cb.System("test") as system:
        dev = await system.device("cpu", **options)
        events = dev.events()
        kill(dev)
        assert [type(e).__name__ async for e in events] == ["Lost", "Stopped"]
        async with asyncio.timeout(BOUND):
            for host in list(dev._actor.fleet.hosts):
                await asyncio.shield(host.reaped)
        again = await system.device("cpu", **options)
        assert again is not dev
        np.testing.assert_array_equal(await again.put(ones()).get(), ones())
        with pytest.raises(cb.DeviceStopped):
            dev.put(ones())


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("standby", ["hot", "warm", None])
async def test_half_open_tries_again_after_a_pause(standby: str | None) -> None:
    clock = ManualClock()
    async with cb.System("test", clock=clock) as system:
        dev = await system.device(
            "cpu", isolation="process", standby=standby, max_restarts=1, within=60.0, on_exhausted="half_open"
        )
        dev._actor.clock = clock.time
        await lost_and_recovered(dev, lambda: kill(dev))
        assert await asyncio.wait_for(dev.standby_ready(), BOUND) == (standby is not None)
        events = dev.events()
        kill(dev)
        assert isinstance(await anext(events), cb.Lost)
        assert dev.health().state == "half_open"
        waiting = dev.put(ones()).get()  # waits for the attempt
        clock.advance(0.9)
        await asyncio.sleep(0)
        assert dev.health().state == "half_open"
        spare = dev._actor._standby.host
        clock.advance(0.2)
        async with asyncio.timeout(BOUND):
            recovered = await anext(events)
            assert isinstance(recovered, cb.Recovered)
            if spare is not None:  # it has waited through the pause, and takes over
                assert (recovered.standby, dev.health().host_pid) == (standby, spare.pid)
            else:
                assert recovered.standby == "cold"
            np.testing.assert_array_equal(await waiting, ones())
        await events.aclose()  # type: ignore[attr-defined]


# -- users -------------------------------------------------------------------------------------------------------------


async def test_per_generation_and_retrying_carry_a_request_over_a_loss() -> None:
    async with process(standby="hot") as dev:
        made = 0

        def make(d: cb.Device) -> cb.GpuRef:
            nonlocal made
            made += 1
            return d.put(np.full((2, 2), 3, np.float32))

        weights = dev.per_generation(make)
        first, second = await asyncio.gather(weights(), weights())
        assert first is second
        assert made == 1
        attempts = 0

        @cb.retrying(cb.ContextLost, attempts=3, delay=0.0)
        async def request() -> np.ndarray:
            nonlocal attempts
            attempts += 1
            w = await weights()
            if attempts == 1:
                kill(dev)
            result: np.ndarray = await dev.blas.gemm(w, w).get()
            return result

        np.testing.assert_array_equal(await request(), np.full((2, 2), 18, np.float32))
        assert attempts == 2
        assert made == 2


def test_retrying_without_arguments_says_how_it_is_written() -> None:
    async def answer() -> int:
        return 42

    with pytest.raises(TypeError, match=r"is not a class of errors; write @cb\.retrying\(cb\.ContextLost\)"):
        cb.retrying(answer)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one error class"):
        cb.retrying()


@pytest.mark.slow
async def test_retrying_gives_up_with_the_last_error() -> None:
    async with process() as dev:

        @cb.retrying(cb.ContextLost, attempts=2, delay=0.0)
        async def request() -> None:
            await dev.ready()
            kill(dev)
            await dev.put(ones())

        with pytest.raises(cb.ContextPoisoned) as caught:
            await request()
        assert "attempt 2 of 2" in caught.value.__notes__


@pytest.mark.slow
async def test_control_requests_end_typed_when_the_context_is_lost_meanwhile() -> None:
    async with process() as dev:
        signal_host(dev, signal.SIGSTOP)
        requests = [asyncio.create_task(make()) for make in (dev.stats, dev.trim)]
        await asyncio.sleep(0)
        kill(dev)
        async with asyncio.timeout(BOUND):
            for outcome in await asyncio.gather(*requests, return_exceptions=True):
                assert isinstance(outcome, cb.ContextLost), outcome
            assert (await dev.stats()).restarts == 1


# -- staged memory and threads -----------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_slots_of_a_dead_host_come_back() -> None:
    async with process() as dev:
        for _ in range(3):
            await dev.ready()
            kill(dev)
            for reply in [dev.put(ones(1000)) for _ in range(5)]:
                assert isinstance(await ended(reply), cb.ContextPoisoned)
            await dev.ready()
            np.testing.assert_array_equal(await dev.put(ones(1000)).get(), ones(1000))
        stats = dev._actor.arenas.stats
        assert (stats.used, stats.quarantined, stats.slots) == (0, 0, 0)
        assert len(dev._actor.fleet.hosts) == 1


@pytest.mark.slow
async def test_a_slot_is_not_used_again_while_a_copy_into_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    go, copies = threading.Event(), []
    later = Copier.later

    def late(self: Copier, target: np.ndarray, source: np.ndarray, then: Callable[[], object]) -> None:
        def wait() -> None:
            assert go.wait(BOUND)
            copies.append(len(source))

        later(self, target[:0], source[:0], wait)
        later(self, target, source, then)

    monkeypatch.setattr(Copier, "later", late)
    async with process() as dev:
        try:
            await dev.ready()
            first = dev.put(np.zeros(9 << 18, np.float64), non_blocking=True)  # 18 MiB, in parts
            await lost_and_recovered(dev, lambda: kill(dev))
            assert isinstance(await ended(first), cb.ContextPoisoned)
            used = dev._actor.arenas.stats.used
            assert used >= 9 << 21  # still written to
        finally:
            go.set()
        expected = np.arange(9 << 18, dtype=np.float64)
        second = dev.put(expected)
        np.testing.assert_array_equal(await second.get(), expected)
        dev._transfers.close()
        assert len(copies) >= 2
        assert dev._actor.arenas.stats.used == 0


@pytest.mark.slow
async def test_calls_of_other_threads_end_while_contexts_are_lost() -> None:
    """Each thread sees right values and typed errors only, and never waits for ever."""
    stop = False
    outcomes: list[str] = []

    def work(k: int) -> None:
        n = 0
        while not stop:
            n += 1
            try:
                x = dev.put(np.full(8, 1000 * k + n % 1000, np.float32))
                value = dev.copy(x).get().result(BOUND)
            except (cb.ContextLost, cb.MailboxFull) as e:
                outcomes.append(type(e).__name__)
            except BaseException as e:
                outcomes.append(repr(e))
                return
            else:
                outcomes.append("right" if (value == 1000 * k + n % 1000).all() else f"wrong: {value}")

    async with process(standby="hot") as dev:
        threads = [asyncio.create_task(asyncio.to_thread(work, k)) for k in range(3)]
        try:
            for _ in range(4):
                before = len(outcomes)
                async with asyncio.timeout(BOUND):
                    while len(outcomes) < before + 100:
                        await dev.put(ones())  # paces this loop
                await lost_and_recovered(dev, lambda: kill(dev))
                await dev.ready()
        finally:
            stop = True
            await asyncio.gather(*threads)
    assert set(outcomes) <= {"right", "ContextPoisoned", "GpuRefStale", "MailboxFull"}
    assert outcomes.count("right") > 100


async def test_a_refused_transfer_gives_its_slot_back() -> None:
    EVENTS.clear()
    undo = registry.register("probe", ProbeBackend())
    async with cb.System("test") as system:
        dev = await system.device("probe", isolation="thread", max_in_flight=8)
        x = dev.put(ones(1000))
        big = dev.zeros((3 << 20,), "f64")
        await big
        used = dev._actor.arenas.stats.used
        replies = [dev.ask(Add(x=x, after="go")), *(dev.copy(x) for _ in range(7))]
        assert dev._port.in_flight == 8
        for refused in (
            lambda: dev.put(ones(1000)),
            lambda: dev.put(np.zeros(3 << 20)),
            lambda: dev.put(np.zeros(3 << 20), non_blocking=True),
            lambda: x.get(),
            lambda: big.get(),
        ):
            with pytest.raises(cb.MailboxFull):
                refused()
        assert dev._actor.arenas.stats.used == used
        EVENTS["go"].set()
        await dev.drain()
        del replies
    undo()


# -- thread isolation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dispatcher", ["own", "caller"])
async def test_a_context_lost_in_a_thread_stops_the_device_and_names_the_cure(dispatcher: str) -> None:
    async with cb.device("faulty+cpu?poison_at=4", isolation="thread", dispatcher=dispatcher) as dev:
        events = dev.events()
        errors = []
        for _ in range(20):
            try:
                await dev.put(ones()).get()
            except cb.AccelError as e:
                errors.append(e)
        assert errors
        assert all(isinstance(e, cb.Unrecoverable) for e in errors)
        assert all("open the device with isolation='process'" in str(e) for e in errors)
        assert [type(e).__name__ async for e in events] == ["Lost", "Stopped"]


async def test_a_backend_that_cannot_be_opened_stops_the_device_at_once() -> None:
    class Missing(CpuBackend):
        name = "missing"

        def open(self, info: Any) -> Any:
            raise cb.BackendUnavailable("no driver; install one")

    undo = registry.register("missing", Missing())
    try:
        async with cb.System("test") as system:
            for _ in range(2):
                with pytest.raises(cb.BackendUnavailable, match="install one"):
                    await system.device("missing", isolation="thread")
    finally:
        undo()
