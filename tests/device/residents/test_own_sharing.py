"""Memory that actors in processes of their own open: lent without a copy, and freed only when they have closed it.

The device is a CPU whose memory other processes can open. Some tests of :mod:`.test_own_arrays` run over it, too.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.device.residents import test_own_arrays as arrays
from tests.device.residents.lab import Gate
from tests.device.residents.own_lab import Apart
from tests.device.residents.sharing import LIMIT
from tests.device.residents.test_own_arrays import BOUND, within

import callboard as cb
from callboard.core import plugins, registry

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture(autouse=True)
def sharing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The backend, installed: child processes find it by its entry point."""
    info = tmp_path / "sharing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sharing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\nsharing = tests.device.residents.sharing:backend\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[3])])
    plugins.targets.cache_clear()
    yield
    plugins.targets.cache_clear()


@pytest.fixture
def backend() -> str:
    return "sharing"


@pytest.fixture
async def dev(sharing: None) -> AsyncIterator[cb.Device]:
    async with cb.device("sharing", standby=None, close_timeout=5.0) as device:
        yield device


def apart_pid(dev: cb.Device) -> int:
    """Of the only process of an actor's own."""
    (process,) = dev._actor.own._processes.values()
    assert process._device is not None
    assert process._device.host is not None
    return process._device.host.pid


def has_open(pid: int, host: int) -> bool:
    """Whether a process has memory of that host open."""
    return f"block-{host} " in Path(f"/proc/{pid}/maps").read_text()


async def handles(dev: cb.Device) -> list[bytes]:
    """Of memory that is to be freed as soon as nobody has it open."""
    found: list[bytes] = await dev._answers.ask("leaving", timeout=BOUND, type=list[bytes])
    return found


test_views_arrive_as_they_are = arrays.test_views_arrive_as_they_are
test_a_crash_spoils_what_it_may_have_written = arrays.test_a_crash_spoils_what_it_may_have_written_and_nothing_else
test_results_are_copies_on_the_device = arrays.test_results_are_copies_on_the_device


async def test_arrays_are_lent_without_a_copy(dev: cb.Device) -> None:
    apart = dev.actor_of(cb.Props(Apart), own_process=True)
    x = dev.put(np.ones(1 << 20))
    await within(dev.drain())
    staged = dev._actor.arenas.stats.used
    await within(apart.call(Apart.increment, x))
    await within(apart.call(Apart.increment, x[5:]))
    assert dev._actor.arenas.stats.used == staged
    assert (await within(x.get())).sum() == (1 << 21) + (1 << 20) - 5


@pytest.mark.slow
async def test_memory_is_freed_when_the_process_has_closed_it(dev: cb.Device) -> None:
    apart = dev.actor_of(cb.Props(Apart), own_process=True)
    x = dev.put(np.ones(1 << 18))
    assert await within(apart.call(Apart.total_of, x)) == 1 << 18
    lent: Any = await within(apart.call(Apart.make, 1 << 18))
    del x
    gc.collect()
    await within(dev.trim())
    assert await handles(dev) == []
    assert (await within(lent.get()))[-1] == (1 << 18) - 1  # what is in use stays open
    assert await within(apart.call(Apart.total_of, lent)) == sum(range(1 << 18))
    await within(dev.drain())
    used = (await within(dev.stats())).used_bytes
    del lent
    gc.collect()
    await within(dev.trim())
    stats = await within(dev.stats())
    assert (stats.used_bytes < used, stats.cached_bytes) == (True, 0)
    assert await handles(dev) == []


@pytest.mark.slow
async def test_memory_stays_while_a_process_does_not_answer(dev: cb.Device) -> None:
    apart = dev.actor_of(cb.Props(Apart), own_process=True)
    x = dev.put(np.ones(1 << 18))
    await within(apart.call(Apart.total_of, x))
    await within(dev.drain())
    pid = apart_pid(dev)
    os.kill(pid, signal.SIGSTOP)
    try:
        del x
        gc.collect()
        await within(dev.trim())
        assert len(await handles(dev)) == 1
    finally:
        os.kill(pid, signal.SIGCONT)
    await within(apart.call(Apart.add, 1))
    await within(dev.trim())
    assert await handles(dev) == []


@pytest.mark.slow
@pytest.mark.fault
async def test_memory_of_a_lost_context_is_closed(dev: cb.Device, gate: Gate) -> None:
    apart = dev.actor_of(cb.Props(Apart), own_process=True)
    x = dev.put(np.ones(4))
    assert await within(apart.call(Apart.total_of, x)) == 4.0
    running = apart.call(Apart.wait_reading, gate.path, x)
    await within(gate.reached())
    host, since = dev.health().host_pid, dev.watch_generation().value
    assert host is not None
    pid = apart_pid(dev)
    assert has_open(pid, host)
    os.kill(host, signal.SIGKILL)
    with pytest.raises(cb.ContextPoisoned):
        await within(running)
    await within(dev.watch_generation().changed(since))
    assert has_open(pid, host)  # the call that runs uses it
    await gate.let_through()
    async with asyncio.timeout(BOUND):
        while has_open(pid, host):
            await apart.call(Apart.add, 1)
    assert await within(apart.call(Apart.total_of, dev.put(np.ones(2)))) == 2.0


@pytest.mark.slow
async def test_want_of_memory_has_it_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, str(5 << 20))
    async with cb.device("sharing", standby=None) as dev:
        apart = dev.actor_of(cb.Props(Apart), own_process=True)
        for n in (200_000, 250_000, 300_000, 350_000):  # of another size each: none is used again
            x = dev.put(np.ones(n))
            assert await within(apart.call(Apart.total_of, x[:1])) == 1.0
            x.free()
        assert len(await handles(dev)) < 4
