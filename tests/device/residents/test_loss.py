"""Lost contexts: what is in flight fails, the actor lives on in the next one, nothing is left behind."""

import asyncio
import contextlib
import gc
import os
import signal
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.device.residents.lab import Gate, Probe, own_thread

import callboard as cb

pytestmark = [pytest.mark.fault, pytest.mark.leaves_nothing]

BOUND = 20.0


def kill(dev: cb.Device) -> int:
    pid = dev.health().host_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


async def next_generation(dev: cb.Device, since: int) -> None:
    async with asyncio.timeout(BOUND):
        await dev.watch_generation().changed(since)


@pytest.mark.few(1)
@pytest.mark.parametrize("standby", [None, "warm", "hot"])
async def test_calls_in_flight_fail_and_the_actor_lives_on(standby: Any, gates: Callable[[str], Gate]) -> None:
    gate = gates("gate")
    async with cb.device("cpu", isolation="process", standby=standby) as dev:
        probe = dev.actor_of(cb.Props(Probe, 100))
        assert await probe.call(Probe.add, 1) == 101
        lent = await probe.call(Probe.make, 4)
        running = probe.call(Probe.wait, gate.path)
        queued = probe.call(Probe.echo, np.ones(1_000_000))
        await dev.stats()
        generation = dev.watch_generation().value
        pid = kill(dev)
        for reply in (running, queued):
            with pytest.raises(cb.ContextPoisoned) as caught:
                await reply
            assert any(f"made at {__file__}" in note for note in caught.value.__notes__)
        after = probe.call(Probe.add, 1)  # belongs to the next generation, and waits
        assert await after == 101
        assert dev.watch_generation().value != generation
        assert dev.health().host_pid != pid
        again = await probe.call(Probe.make, 3)
        np.testing.assert_array_equal(await again.get(), [0, 1, 2])
        alive = weakref.ref(lent.allocation)
        del lent  # a ref of the lost context frees nothing of this one
        gc.collect()
        assert alive() is None
        await dev.drain()
        np.testing.assert_array_equal(await again.get(), [0, 1, 2])
        assert probe.restarts == 0
        assert not probe.is_stopped
        async with asyncio.timeout(BOUND):
            while (await dev.stats()).staged_bytes:  # until the dead host is reaped, what it could write is held back
                pass


async def test_arrays_of_a_lost_context_are_stale() -> None:
    async with cb.device("cpu", isolation="process", standby="hot") as dev:
        probe = dev.actor_of(cb.Props(Probe))
        lent = await probe.call(Probe.make, 4)
        since = dev.watch_generation().value
        kill(dev)
        await next_generation(dev, since)
        with pytest.raises(cb.GpuRefStale, match="context rebuilt"):
            lent.get()
        with pytest.raises(cb.GpuRefStale, match=r"total_of: array f32\[4\] .*context rebuilt"):
            probe.call(Probe.total_of, lent)


async def test_a_standby_prepares_and_sets_up_only_when_it_takes_over(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with cb.device("cpu", isolation="process", standby="warm") as dev:
        probe = dev.actor_of(cb.Props(Probe, 0, "", str(log)))
        await probe.call(Probe.add, 1)
        async with asyncio.timeout(BOUND):
            while dev.health().standby != "ready" or log.read_text().count("prepare") < 2:
                await dev.stats()
        first = dev.health().host_pid
        lines = log.read_text().split("\n")
        assert lines.count(f"setup {first}") == 1
        assert sum(line.startswith("setup") for line in lines) == 1
        standby = next(
            int(line.split()[1]) for line in lines if line.startswith("prepare") and line != f"prepare {first}"
        )
        kill(dev)
        with contextlib.suppress(cb.ContextLost):
            await probe.call(Probe.add, 1)
        assert await probe.call(Probe.state) == (0, 1, 1)
        assert dev.health().host_pid == standby
        lines = log.read_text().split("\n")
        assert lines.count(f"prepare {standby}") == 1
        assert lines.count(f"setup {standby}") == 1


@pytest.mark.slow
async def test_an_actor_of_a_standby_may_be_stopped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with cb.device("cpu", isolation="process", standby="warm") as dev:
        probe = dev.actor_of(cb.Props(Probe, 0, "", str(log)))
        await probe.call(Probe.add, 1)
        async with asyncio.timeout(BOUND):
            while log.read_text().count("prepare") < 2:
                await dev.stats()
        await probe.stop_and_wait()
        other = dev.actor_of(cb.Props(Probe, 5))
        kill(dev)
        with contextlib.suppress(cb.ContextLost):
            await other.call(Probe.add, 1)
        assert await other.call(Probe.state) == (5, 1, 1)
        assert log.read_text().count("setup") == 1


async def test_actors_started_while_there_is_no_context_start_with_the_next(isolation: str) -> None:
    async with cb.System("test") as system:
        dev = await system.device("cpu", isolation=isolation, standby=None, wait=False)
        probe = dev.actor_of(cb.Props(Probe, 1))
        assert await probe.call(Probe.add, 1) == 2


@pytest.mark.slow
async def test_a_result_on_its_way_when_the_host_dies(gates: Callable[[str], Gate]) -> None:
    async with cb.device("cpu", isolation="process", standby="hot") as dev:
        probe = dev.actor_of(cb.Props(Probe))
        array = np.ones(2_000_000)
        await probe.call(Probe.echo, array)
        for _ in range(3):
            replies = [probe.call(Probe.echo, array) for _ in range(4)]
            kill(dev)
            for reply in replies:
                with contextlib.suppress(cb.ContextPoisoned):
                    np.testing.assert_array_equal(await reply, array)
            await dev.ready()
            np.testing.assert_array_equal(await probe.call(Probe.echo, array), array)
        async with asyncio.timeout(BOUND):
            while (await dev.stats()).staged_bytes:
                pass


class Poisoner(Probe):
    """Its device has faults that nobody looks for while nothing is in flight."""

    def poison(self) -> None:
        device: Any = own_thread()._site.device
        device._poison = "a kernel of its own went wrong"
        device._poisoned_behind = device.stream().inner.record()
        raise ValueError("the first that showed it")


@pytest.mark.slow
async def test_an_exception_behind_which_the_context_is_dead_replaces_the_context() -> None:
    async with cb.device("faulty+cpu", isolation="process", standby=None) as dev:
        poisoner, other = dev.actor_of(cb.Props(Poisoner), name="poisoner"), dev.actor_of(cb.Props(Probe))
        await other.call(Probe.add, 1)
        generation = dev.watch_generation().value
        with pytest.raises(cb.ContextPoisoned, match="a kernel of its own went wrong") as caught:
            await poisoner.call(Poisoner.poison)
        notes = "\n".join(caught.value.__notes__)
        assert "found when resident actor poisoner raised:" in notes
        assert "ValueError: the first that showed it" in notes
        await next_generation(dev, generation)
        assert await poisoner.call(Probe.state) == (0, 1, 1)
        assert await other.call(Probe.add, 1) == 1
        assert poisoner.restarts == 0
        assert (await dev.stats()).restarts == 1


async def test_thread_isolation_stops_with_the_device() -> None:
    async with cb.device("faulty+cpu?poison_at=3", isolation="thread") as dev:
        probe = dev.actor_of(cb.Props(Probe))
        await probe.call(Probe.add, 1)
        arrays = [dev.zeros(4) for _ in range(10)]
        with pytest.raises(cb.AccelError):
            await asyncio.gather(*(_awaited(a) for a in arrays))
        with pytest.raises(cb.Unrecoverable):
            await probe.call(Probe.add, 1)


async def _awaited(ref: cb.GpuRef) -> cb.GpuRef:
    return await ref
