"""Hosts of a real GPU that are killed or hang, and standbys that die: the device's memory comes back each time."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

import numpy as np
import pytest
from tests.faults.cuda.actors import Striker
from tests.faults.cuda.lab import BOUND, armed, chain, cuda, error_of, is_right, kill, loss, right_or_lost
from tests.faults.load import Load

import callboard as cb
from callboard.testing.census import Census

pytestmark = [pytest.mark.gpu, pytest.mark.fault, pytest.mark.leaves_nothing, pytest.mark.timeout(300)]

MB = 1 << 20
GB = 1 << 30
NOISE = 256 * MB
"""Bytes of device memory that may differ between two moments; a context takes twice as much."""


def pattern(k: int) -> np.ndarray:
    """1 GiB whose every element is its own."""
    return np.arange(k, k + GB // 8, dtype=np.int64)


async def free_again(dev: cb.Device, free: int) -> int:
    """Wait until so many bytes of device memory are free, but for noise: the driver takes a dead host's back by and by.

    Each look asks the host.
    """
    async with asyncio.timeout(BOUND):
        while (now := (await dev.stats()).free_bytes) < free - NOISE:
            pass
    return now


async def executed(dev: cb.Device, ops: int) -> None:
    """Wait until so many ops have their completion."""
    async with asyncio.timeout(BOUND):
        while dev._port.unanswered.completed < ops:
            await dev.stats()


@pytest.mark.parametrize("parts", [0, 1, 5, 20])
async def test_killed_during_a_put_of_a_gibibyte(parts: int) -> None:
    """It is copied in 32 parts; so many have been executed."""
    async with cuda(standby="warm") as dev:
        source = pattern(parts)
        await is_right(chain(dev, 1), 1)
        done = dev._port.unanswered.completed
        reply = dev.put(source, non_blocking=True)
        await executed(dev, done + parts)
        await loss(dev, lambda: kill(dev))
        with contextlib.suppress(cb.ContextPoisoned):  # all of it may have been executed by now
            async with asyncio.timeout(BOUND):
                await reply
        assert reply.is_stale
        await is_right(chain(dev, 2), 2)
        async with asyncio.timeout(BOUND):
            again = dev.put(source, non_blocking=True)
            np.testing.assert_array_equal(await again.get(), source)


@pytest.mark.parametrize("parts", [0, 1, 5, 20])
async def test_killed_during_a_get_of_a_gibibyte(parts: int) -> None:
    async with cuda(standby="warm") as dev:
        source = pattern(parts)
        async with asyncio.timeout(BOUND):
            ref = await dev.put(source)
        done = dev._port.unanswered.completed
        reply = ref.get()
        dev._port.flush()
        await executed(dev, done + parts)
        await loss(dev, lambda: kill(dev))
        try:
            async with asyncio.timeout(BOUND):
                value = await reply
        except cb.ContextPoisoned:
            pass
        else:  # the last part had been copied
            np.testing.assert_array_equal(value, source)
            del value
        async with asyncio.timeout(BOUND):
            np.testing.assert_array_equal(await dev.put(source).get(), source)


@pytest.mark.parametrize("standby", ["hot", None])
async def test_twenty_kills_in_a_row(standby: str | None, record_property: Callable[[str, object], None]) -> None:
    """Each takes 4 GiB of device memory along. All of it comes back, and no process stays."""
    async with cuda(standby=standby) as dev:
        await is_right(chain(dev, 1), 1)
        await armed(dev)
        free = (await dev.stats()).free_bytes
        slowest = 0.0
        for number in range(20):
            async with asyncio.timeout(BOUND):
                held = await dev.full((GB,), float(number))
                assert (await held[-1000:].get() == number).all()
            behind = chain(dev, number)
            _, recovered = await loss(dev, lambda: kill(dev))
            slowest = max(slowest, recovered.seconds)
            await right_or_lost(behind, number)
            await is_right(chain(dev, number + 1), number + 1)
            assert held.is_stale
            del held
        assert dev.health().restarts == 20
        await armed(dev)
        back = await free_again(dev, free)
        async with asyncio.timeout(BOUND):
            while len(Census.take().processes) > (1 if standby is None else 2):  # until the last one is reaped
                await dev.stats()
        text = f"{(free - back) / MB:.0f} MiB of device memory less than before, slowest recovery {slowest:.3f} s"
        record_property("measured", f"cuda, 20 kills with standby {standby}: {text}")


async def test_killed_under_load() -> None:
    async with cuda(standby="hot") as dev:
        async with Load(dev) as load:
            for moment, number in ((1, signal.SIGKILL), (60, signal.SIGSEGV), (300, signal.SIGKILL)):
                await armed(dev)
                await load.until_answered(moment)
                lost, recovered = await loss(dev, lambda n=number: kill(dev, n))
                assert signal.Signals(number).name in str(lost.error)
                assert recovered.standby == "hot"
            await load.until_answered(100)
        assert set(load.errors) <= {"ContextPoisoned", "GpuRefStale", "MailboxFull"}
        assert dev.health().restarts == 3
        assert dev._port.in_flight == 0


async def test_a_standby_that_dies_costs_nothing() -> None:
    async with cuda(standby="hot", max_restarts=1) as dev:
        generation = dev.generation
        await armed(dev)
        free = (await dev.stats()).free_bytes
        for number in range(3):
            spare = dev._actor._standby.host
            assert spare is not None
            os.kill(spare.pid, signal.SIGKILL)
            async with asyncio.timeout(BOUND):
                while dev._actor._standby.host is spare:
                    await is_right(chain(dev, number), number)
            await armed(dev)
        assert (dev.generation, dev.health().restarts) == (generation, 0)
        await free_again(dev, free)
        _, recovered = await loss(dev, lambda: kill(dev))
        assert recovered.standby == "hot"
        await is_right(chain(dev, 9), 9)


async def test_host_and_standby_die_together() -> None:
    async with cuda(standby="hot") as dev:
        await armed(dev)
        spare = dev._actor._standby.host
        assert spare is not None
        before = dev.generation
        os.kill(spare.pid, signal.SIGKILL)
        kill(dev)
        async with asyncio.timeout(BOUND):
            await dev.watch_generation().changed(before)
        reply = chain(dev, 3)
        if await right_or_lost(reply, 3):  # a standby that is dead, and not yet known to be, has taken over
            await is_right(chain(dev, 4), 4)
        assert dev.health().restarts in (1, 2)


async def test_a_host_that_hangs_is_replaced() -> None:
    async with cuda(standby="hot", hang_after=2.0, interval=0.25) as dev:
        for number in range(2):
            await armed(dev)
            old = dev.health().host_pid
            await is_right(chain(dev, number), number)
            kill(dev, signal.SIGSTOP)
            behind = chain(dev, 5)
            lost, recovered = await loss(dev, lambda: None)
            assert "hung" in str(lost.error)
            assert recovered.standby == "hot"
            assert await right_or_lost(behind, 5)
            await is_right(chain(dev, number + 2), number + 2)
            assert dev.health().host_pid != old
        assert dev.health().restarts == 2


async def test_a_kernel_that_never_ends_is_a_loss() -> None:
    """Its host makes its rounds, and other streams go on: only its own stream finishes nothing more.

    What the others need has been opened before: the driver may keep whoever makes a handle, or loads code, waiting.
    """
    async with cuda(standby="hot", stall_after=2.0) as dev:
        striker = dev.actor_of(cb.Props(Striker), name="striker").with_timeout(BOUND)
        for number in range(2):
            await armed(dev)
            await is_right(chain(dev, number), number)
            old = await striker.call(Striker.pid)
            endless = striker.call(Striker.strike, "endless")
            await is_right(chain(dev, number), number)
            lost, recovered = await loss(dev, lambda: None)
            assert "has finished nothing for 2 s" in str(lost.error)
            assert recovered.standby == "hot"
            assert isinstance(await error_of(endless), cb.ContextPoisoned)
            await is_right(chain(dev, number + 2), number + 2)
            assert await striker.call(Striker.pid) != old
        assert dev.health().restarts == 2
