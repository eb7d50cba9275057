"""A host whose address space is limited (``ulimit -v``): what finds no room fails, and nothing else does."""

import asyncio
import resource
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.device.residents.lab import Probe
from tests.faults.load import BOUND

import callboard as cb
from callboard.actors.errors import ActorStopped

pytestmark = [
    pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process are Linux only"),
    pytest.mark.fault,
]

BIG = np.ones(8 << 20)
MB = 1 << 20


def leave(dev: cb.Device, extra: int) -> None:
    """Let the host use so many bytes of address space more than it does."""
    pid = dev.health().host_pid
    assert pid is not None
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + extra
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


@pytest.mark.slow
async def test_out_of_address_space_is_out_of_memory() -> None:
    async with cb.device("cpu", isolation="process", standby=None) as dev, asyncio.timeout(BOUND):
        small = dev.put(np.ones(4))
        probe = dev.actor_of(cb.Props(Probe))
        await probe.call(Probe.add, 1)
        assert (await small.get()).sum() == 4
        leave(dev, 4 * MB)
        attempts: dict[str, Callable[[], Awaitable[Any]]] = {
            "an arena": lambda: dev.put(BIG),
            "an arena of a call": lambda: probe.call(Probe.echo, BIG),
            "a thread": lambda: dev.fft.fft(dev.zeros(8, "c64")),
        }
        for what, attempt in attempts.items():
            with pytest.raises(cb.OutOfMemory):
                await attempt()
            assert (await small.get()).sum() == 4, what
        with pytest.raises(ActorStopped, match="can't start new thread"):
            await dev.actor_of(cb.Props(Probe)).call(Probe.add, 1)
        assert await probe.call(Probe.add, 1) == 2
        leave(dev, 1 << 30)
        assert (await dev.put(BIG).get()).sum() == BIG.size
        assert (await probe.call(Probe.echo, BIG)).sum() == BIG.size
        await dev.fft.fft(dev.zeros(8, "c64"))
        assert dev.health().restarts == 0
