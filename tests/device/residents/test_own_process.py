"""Resident actors in processes of their own: calls as ever, crashes and the GIL are theirs alone."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
from tests.device.residents.async_lab import Later
from tests.device.residents.lab import Add, Gate, Probe
from tests.device.residents.own_lab import Apart
from tests.device.residents.stream_lab import Streamer

import callboard as cb
from callboard.actors.errors import ActorStopped, NameInUse

pytestmark = pytest.mark.leaves_nothing

BOUND = 20.0
"""Seconds for what must come; a failure takes longer."""


@pytest.fixture
async def dev(backend: str) -> AsyncIterator[cb.Device]:
    async with cb.device(backend, isolation="process", standby=None, close_timeout=5.0) as device:
        yield device


async def within(reply: Any) -> Any:
    async with asyncio.timeout(BOUND):
        return await reply


def host_of(dev: cb.Device) -> int:
    pid = dev.health().host_pid
    assert pid is not None
    return pid


# -- calls -------------------------------------------------------------------------------------------------------------


@pytest.mark.few(2)
async def test_calls_work_as_ever_and_run_in_another_process(anywhere: cb.Device) -> None:
    dev = anywhere
    probe = await dev.actor_of(cb.Props(Probe, 100), name="probe", own_process=True, wait=True)
    assert probe.state == "ready"
    pid = await within(dev.actor_of(cb.Props(Apart), own_process=True).call(Apart.pid))
    assert pid not in (os.getpid(), host_of(dev))
    assert [await reply for reply in [probe.call(Probe.add, n) for n in range(1, 6)]] == [101, 103, 106, 110, 115]
    assert await within(probe.ask(Add(n=5))) == 120
    large = np.arange(1_000_000, dtype=np.float32)
    np.testing.assert_array_equal(await within(probe.call(Probe.echo, large)), large)
    with pytest.raises(ValueError, match="no") as caught:
        await within(probe.call(Probe.fail, "value"))
    assert caught.value.args == ("no", 3)
    assert probe.restarts == 0
    with pytest.raises(NameInUse, match="probe"):
        dev.actor_of(cb.Props(Probe), name="probe")
    with pytest.raises(TypeError, match=r"probe.add\(.*\)"):
        probe.call(Probe.add, 1, 2)  # type: ignore[call-arg]


async def test_cancelled_late_and_streamed_calls(dev: cb.Device, gate: Gate) -> None:
    apart = dev.actor_of(cb.Props(Apart), own_process=True)
    waiting = apart.call(Apart.wait, gate.path)
    await gate.reached()
    queued = apart.call(Apart.add, 1)
    assert queued.cancel()
    with pytest.raises(cb.Withdrawn):
        await within(queued)
    with pytest.raises(cb.AskTimeout, match=r"no answer within 0\.01 s"):
        await within(apart.with_timeout(0.01).call(Apart.add, 1))
    await gate.let_through()
    assert await within(waiting) == 0
    streamer = dev.actor_of(cb.Props(Streamer), own_process=True)
    assert [n async for n in streamer.stream(Streamer.count, 5)] == [0, 1, 2, 3, 4]
    assert await within(streamer.call(Streamer.state)) == (5, ["count done", "count closed"])


@pytest.mark.slow
async def test_async_methods_run_side_by_side(dev: cb.Device) -> None:
    later = dev.actor_of(cb.Props(Later), own_process=True)
    waits = [later.call(Later.wait, name) for name in ("a", "b")]
    await within(later.call(Later.open, "b"))
    assert await within(waits[1]) == "b"
    await within(later.call(Later.open, "a"))
    assert await within(waits[0]) == "a"


# -- the GIL -----------------------------------------------------------------------------------------------------------


async def test_ops_complete_while_the_actor_keeps_the_gil(dev: cb.Device, gates: Callable[[str], Gate]) -> None:
    apart = dev.actor_of(cb.Props(Apart), own_process=True)
    gate = gates("gil")
    a = dev.put(np.full((4, 4), 2.0, np.float32))
    keeping = apart.call(Apart.keep_the_gil, gate.path)
    await within(gate.reached())
    np.testing.assert_array_equal(await within(dev.blas.gemm(a, a).get()), np.full((4, 4), 16.0))
    assert not keeping.done()
    await gate.let_through()
    assert await within(keeping) == 0


# -- crashes -----------------------------------------------------------------------------------------------------------


@pytest.mark.few(1)
@pytest.mark.fault
@pytest.mark.parametrize("how", ["exit", "crash", "kill"])
async def test_a_crash_restarts_that_actor_only(dev: cb.Device, how: str) -> None:
    array = dev.put(np.arange(4.0))
    other = dev.actor_of(cb.Props(Probe, 5), name="other")
    neighbour = dev.actor_of(cb.Props(Apart), name="neighbour", own_process=True)
    apart = await dev.actor_of(cb.Props(Apart), name="apart", own_process=True, wait=True)
    assert await within(neighbour.call(Apart.add, 7)) == 7
    pid = await within(apart.call(Apart.pid))
    generation, host = dev.generation, host_of(dev)
    if how == "kill":
        os.kill(pid, signal.SIGKILL)
        lost = [apart.call(Apart.add, 1)]
    else:
        lost = [apart.call(getattr(Apart, how)), apart.call(Apart.add, 1)]
    for reply in lost:
        with pytest.raises(cb.ContextPoisoned, match=r"0/apart: the context host (crashed|ended)"):
            await within(reply)
    assert apart.state == "restarting"
    assert isinstance(apart.cause, cb.ContextPoisoned)
    await within(apart.ready())
    assert (apart.state, apart.cause, apart.restarts) == ("ready", None, 1)
    assert await within(apart.call(Apart.add, 2)) == 2
    assert await within(apart.call(Apart.pid)) != pid
    assert (dev.generation, host_of(dev), dev.health().restarts) == (generation, host, 0)
    np.testing.assert_array_equal(await within(array.get()), np.arange(4.0))
    assert await within(other.call(Probe.add, 1)) == 6
    assert await within(neighbour.call(Apart.add, 1)) == 8


@pytest.mark.slow
@pytest.mark.fault
async def test_an_actor_that_crashes_too_often_stops_alone(dev: cb.Device) -> None:
    apart = dev.actor_of(cb.Props(Apart), name="apart", own_process=True)
    for _ in range(2):
        with pytest.raises(cb.ContextPoisoned):
            await within(apart.call(Apart.exit))
        await within(apart.ready())
    with pytest.raises(ActorStopped, match=r"actor apart has stopped: .*more than 2 contexts lost") as caught:
        await within(apart.call(Apart.exit))
    assert isinstance(caught.value.__cause__, cb.ContextPoisoned)
    assert apart.is_stopped
    with pytest.raises(ActorStopped, match="apart has stopped"):
        apart.call(Apart.add, 1)
    with pytest.raises(ActorStopped):
        await within(apart.ready())
    assert dev.health().ok
    assert dev.health().residents == {"apart": "stopped"}
    again = dev.actor_of(cb.Props(Apart), name="apart", own_process=True)
    assert await within(again.call(Apart.add, 1)) == 1


@pytest.mark.slow
async def test_an_exception_that_restarts_the_actor_keeps_its_process(dev: cb.Device) -> None:
    apart = dev.actor_of(cb.Props(Apart), own_process=True)
    pid = await within(apart.call(Apart.pid))
    with pytest.raises(cb.RemoteError, match="SystemExit"):
        await within(apart.call(Apart.leave))
    assert await within(apart.call(Apart.pid)) == pid
    async with asyncio.timeout(BOUND):
        while apart.restarts != 1:
            await apart.call(Apart.add, 1)


# -- what is told ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_it_is_listed_with_the_other_actors(dev: cb.Device, gate: Gate) -> None:
    dev.actor_of(cb.Props(Probe), name="beside")
    apart = dev.actor_of(cb.Props(Apart), name="apart", own_process=True)
    await within(apart.call(Apart.add, 1))
    waiting = apart.call(Apart.wait, gate.path)
    await gate.reached()
    stats = (await within(dev.stats())).residents
    assert set(stats) == {"apart", "beside"}
    assert (stats["apart"].completed, stats["apart"].in_flight, stats["apart"].state) == (1, 1, "ready")
    assert stats["apart"].busy > 0.0
    assert dev.health().residents["apart"] == "ready"
    await gate.let_through()
    await within(waiting)


@pytest.mark.slow
async def test_its_calls_are_traced(dev: cb.Device) -> None:
    first = dev.actor_of(cb.Props(Apart), name="first", own_process=True)
    await within(first.call(Apart.add, 1))
    seen: list[str] = []
    remove = await within(dev.trace(lambda record: seen.append(record.tag)))
    second = dev.actor_of(cb.Props(Apart), name="second", own_process=True)
    for apart in (first, second):
        await within(apart.call(Apart.add, 1))
    async with asyncio.timeout(BOUND):
        while sorted(seen) != ["actor:first.add", "actor:second.add"]:
            await dev.stats()  # records come behind the completions
    await within(remove())
    await within(first.call(Apart.add, 1))
    await within(dev.stats())
    assert len(seen) == 2


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_stopped_actor_leaves_no_process(dev: cb.Device) -> None:
    apart = dev.actor_of(cb.Props(Apart), name="apart", own_process=True)
    pid = await within(apart.call(Apart.pid))
    ended = os.pidfd_open(pid)
    try:
        await within(apart.stop_and_wait())
        assert dev.health().residents == {}
        gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(ended, gone.set)
        await within(gone.wait())
    finally:
        asyncio.get_running_loop().remove_reader(ended)
        os.close(ended)
    with pytest.raises(ActorStopped):
        apart.call(Apart.add, 1)


@pytest.mark.slow
async def test_closing_the_device_ends_the_process_of_a_call_that_runs(backend: str, gate: Gate) -> None:
    async with cb.device(backend, isolation="process", standby=None, close_timeout=0.2) as dev:
        apart = dev.actor_of(cb.Props(Apart), own_process=True)
        running = apart.call(Apart.keep_the_gil, gate.path)
        await within(gate.reached())
    with pytest.raises(cb.DeviceStopped):
        await within(running)


ORPHAN = """
import asyncio
import callboard as cb
from tests.device.residents.own_lab import Apart

async def main():
    async with cb.device("cpu") as dev:
        print(await dev.actor_of(cb.Props(Apart), own_process=True).call(Apart.pid), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.fault
def test_the_process_ends_with_the_application() -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True) as application:
        assert application.stdout is not None
        ended = os.pidfd_open(int(application.stdout.readline()))
        try:
            application.kill()
            assert select.select([ended], [], [], BOUND)[0]
        finally:
            os.close(ended)


@pytest.mark.slow
def test_the_blocking_device_has_it_too(backend: str) -> None:
    with cb.sync.device(backend, isolation="process", standby=None) as dev:
        apart = dev.actor_of(cb.Props(Apart), own_process=True, wait=True)
        assert apart.call(Apart.add, 2) == 2
        np.testing.assert_array_equal(apart.call(Apart.double, np.ones(3)), np.full(3, 2.0))
        apart.stop()
        assert apart.is_stopped
