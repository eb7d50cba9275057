"""Takeover: hot, warm and cold; closing, opening and losing at awkward moments."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from tests.device.test_recovery import ended, kill, ones
from tests.faults.load import BOUND, lost_and_recovered, standby_ready

import callboard as cb
from callboard.core import registry
from callboard.device.supervision import fleet
from callboard.device.supervision.hosts.base import HostEnd
from callboard.device.supervision.hosts.starter import ProcessStarter

pytestmark = [pytest.mark.fault, pytest.mark.leaves_nothing]


@asynccontextmanager
async def process(standby: str | None, **options: Any) -> AsyncIterator[cb.Device]:
    async with cb.device("cpu", isolation="process", standby=standby, **options) as dev:
        yield dev


@pytest.mark.parametrize("standby", ["hot", "warm", None])
@pytest.mark.few(1)
async def test_what_takes_over_is_said_and_works(standby: str | None) -> None:
    async with process(standby) as dev:
        spare = await standby_ready(dev) if standby else None
        before = dev.health().host_pid
        _, recovered = await lost_and_recovered(dev, lambda: kill(dev))
        assert recovered.standby == (standby or "cold")
        assert dev.health().host_pid != before
        if standby:
            assert dev.health().host_pid == spare
            await standby_ready(dev, spare or 0)  # the next one is on its way
        else:
            assert dev.health().standby == "none"
        np.testing.assert_array_equal(await dev.put(ones()).get(), ones())


@pytest.mark.slow
async def test_a_standby_that_is_still_starting_takes_over() -> None:
    async with process("hot") as dev:
        async with asyncio.timeout(BOUND):
            while dev._actor._standby.host is None:  # it may have been started before the device was handed out
                await dev._actor._standby.changed()
        assert dev.health().standby in ("starting", "ready")  # the latter if this process has stood still here
        spare = dev._actor._standby.host.pid
        _, recovered = await lost_and_recovered(dev, lambda: kill(dev))
        assert recovered.standby in ("warm", "hot")
        assert dev.health().host_pid == spare
        np.testing.assert_array_equal(await dev.put(ones()).get(), ones())


@pytest.mark.slow
async def test_both_hosts_die_at_once() -> None:
    async with process("hot") as dev:
        spare = await standby_ready(dev)

        def both() -> None:
            os.kill(spare, signal.SIGKILL)
            kill(dev)

        events = dev.events()
        both()
        async with asyncio.timeout(BOUND):
            async for event in events:
                if isinstance(event, cb.Recovered) and dev.health().host_pid != spare:
                    break
            reply = cb.retrying(cb.ContextLost, attempts=3, delay=0.0)(lambda: _round_trip(dev))
            np.testing.assert_array_equal(await reply(), ones())
        await events.aclose()  # type: ignore[attr-defined]
        assert dev.health().restarts <= 2


async def _round_trip(dev: cb.Device) -> np.ndarray:
    value: np.ndarray = await dev.put(ones()).get()
    return value


@pytest.mark.slow
async def test_arenas_that_a_standby_was_told_of_are_there_when_it_takes_over() -> None:
    async with process("hot") as dev:
        await standby_ready(dev)
        big = np.arange(5 << 20, dtype=np.float64)  # an arena of its own, after the standby began
        leased = dev.host_empty((1000,), "f64")
        leased[...] = 4
        np.testing.assert_array_equal(await dev.put(big).get(), big)
        await lost_and_recovered(dev, lambda: kill(dev))
        np.testing.assert_array_equal(await dev.put(big).get(), big)
        back = dev.host_empty((1000,), "f64")
        assert await dev.put(leased).get(back) is back
        assert (back == 4).all()


# -- memory that the lost host still holds -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.few(1)
async def test_a_want_of_memory_waits_for_the_lost_host_to_give_back_its_own(
    dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hot standby takes over before the process that was lost has ended, and that one may hold most of the memory."""
    monkeypatch.setattr(fleet, "LEAVE_TIME", 0.3 if dies else BOUND)
    monkeypatch.setattr(fleet, "REAP_TIME", BOUND if dies else 0.3)
    # The allocation, and once more when the cache has been trimmed; what is tried after the flush succeeds.
    async with cb.device("faulty+cpu?oom_at=1&oom=2", isolation="process", standby="hot") as dev:
        await dev.standby_ready()
        old = dev._actor.host
        assert old is not None
        os.kill(old.pid, signal.SIGSTOP)  # it does not leave by itself
        dev._actor._lose(cb.ContextPoisoned("reported"))
        async with asyncio.timeout(BOUND):
            np.testing.assert_array_equal(await dev.put(ones()).get(), ones())
        assert old.reaped.done() == dies
        assert dev.health().restarts == 1
        old.kill("the test is done with it")


# -- opening -----------------------------------------------------------------------------------------------------------


async def test_a_death_while_the_context_opens_is_a_loss_and_the_next_opens() -> None:
    async with cb.System("test") as system:
        dev = await system.device("cpu", isolation="process", standby=None, wait=False)
        x = dev.put(ones())
        async with asyncio.timeout(BOUND):
            while dev.health().host_pid is None:  # noqa: ASYNC110 - nobody announces it
                await asyncio.sleep(0)
        assert dev.health().state == "starting"
        kill(dev)
        assert isinstance(await ended(x), cb.ContextPoisoned)
        assert await dev.ready() is dev
        np.testing.assert_array_equal(await dev.put(ones()).get(), ones())
        assert dev.health().restarts == 1


async def test_hosts_that_cannot_be_started_spend_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_start(self: Any, *_: Any, **__: Any) -> Any:
        raise HostEnd("failed to start", "no memory for it")

    monkeypatch.setattr(ProcessStarter, "start", no_start)
    async with cb.System("test") as system:
        async with asyncio.timeout(BOUND):
            with pytest.raises(cb.DeviceStopped, match=r"more than 2 contexts lost .*no memory for it"):
                await system.device("cpu", isolation="process", standby=None, max_restarts=2)


async def test_a_context_that_dies_again_and_again_while_it_opens_stops_the_device() -> None:
    class Dying(type(registry.backend("cpu"))):  # type: ignore[misc]
        name = "dying"

        def open(self, info: Any) -> Any:
            raise cb.DriverError("cannot open")

    undo = registry.register("dying", Dying())
    try:
        async with cb.System("test") as system:
            async with asyncio.timeout(BOUND):
                with pytest.raises(cb.AccelError, match="cannot open"):
                    await system.device("dying", isolation="thread")
    finally:
        undo()


# -- closing -----------------------------------------------------------------------------------------------------------


@pytest.mark.few(1)
@pytest.mark.parametrize("standby", ["hot", None])
async def test_closing_during_a_rebuild(standby: str | None) -> None:
    async with process(standby) as dev:
        events = dev.events()
        kill(dev)
        assert isinstance(await anext(events), cb.Lost)
        waiting = dev.put(ones()).get()
        rebuilding = dev.health().state == "rebuilding"  # else the standby was ready before the loss was noticed
        async with asyncio.timeout(BOUND):
            await dev.close()
            (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
        assert isinstance(outcome, cb.DeviceStopped | cb.GpuRefStale) or not rebuilding
        kinds = [type(e).__name__ async for e in events]
        assert kinds[-1] == "Stopped"


async def test_closing_does_not_wait_until_a_standby_has_started() -> None:
    async with process("warm") as dev:
        async with asyncio.timeout(BOUND):
            while (spare := dev._actor._standby.host) is None:
                await dev._actor._standby.changed()
        os.kill(spare.pid, signal.SIGSTOP)
        await dev.stats()  # what the standby has said is heard
        starting = dev.health().standby == "starting"  # else this process has stood still, and the standby has not
    if starting:
        assert spare._cause == ("killed", "its device has stopped")  # the close would kill it after its timeout


async def test_closing_at_once_after_opening_without_waiting() -> None:
    async with cb.System("test") as system:
        dev = await system.device("cpu", isolation="process", standby="hot", wait=False)
        reply = dev.put(ones())
        async with asyncio.timeout(BOUND):
            await dev.close()
        assert isinstance(await ended(reply), cb.DeviceStopped)


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_a_closed_device_refuses_by_name_and_closes_again(isolation: str) -> None:
    async with cb.System("test") as system:
        dev = await system.device("cpu", isolation=isolation)
        x = dev.put(ones())
        await x
        async with asyncio.timeout(BOUND):
            await asyncio.gather(dev.close(), dev.close())
            await dev.close()
        for call in (lambda: dev.put(ones()), lambda: dev.empty(3), lambda: dev.copy(x)):
            with pytest.raises(cb.DeviceStopped, match="shutting down"):
                call()
        with pytest.raises(cb.GpuRefStale, match="device shutting down"):
            x.get()
        for control in (dev.stats(), dev.ready(), dev.room(1)):
            with pytest.raises(cb.DeviceStopped):
                await control
        await dev.drain()
        assert dev.health().state == "stopped"


async def test_the_same_device_is_one_handle_and_a_closed_one_is_opened_anew() -> None:
    async with cb.System("test") as system:
        first, second = await asyncio.gather(system.device("cpu"), system.device("cpu"))
        assert first is second is await system.device("CPU-0")
        with pytest.raises(ValueError, match="is open with other settings"):
            await system.device("cpu", max_in_flight=7)
        await first.close()
        third = await system.device("cpu", max_in_flight=7)
        assert third is not first
        await third.put(ones())


@pytest.mark.slow
async def test_two_devices_live_and_die_apart() -> None:
    async with cb.System("test") as system:
        one = await system.device("cpu", isolation="process", standby=None)
        two = await system.device("faulty+cpu", isolation="process", standby=None)
        x = two.put(ones())
        await x
        with pytest.raises(cb.DeviceMismatch, match="is on faulty\\+cpu:0, the op on cpu:0"):
            one.copy(x)
        await lost_and_recovered(one, lambda: kill(one))
        np.testing.assert_array_equal(await x.get(), ones())
        assert two.health().restarts == 0


async def test_ops_in_flight_end_when_the_device_closes() -> None:
    async with cb.System("test") as system:
        dev = await system.device("cpu", isolation="process", standby=None)
        replies = [dev.put(ones(100_000)).get() for _ in range(200)]
        async with asyncio.timeout(BOUND):
            await dev.close()
            outcomes = await asyncio.gather(*replies, return_exceptions=True)
        assert len(outcomes) == 200
        for outcome in outcomes:
            assert isinstance(outcome, np.ndarray | cb.AccelError), outcome
