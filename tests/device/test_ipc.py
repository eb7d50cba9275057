"""Memory of several processes: both see what each writes; it lives as long as one has it open, and no longer."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.kernel.ipc import IpcMemHandle
from callboard.kernel.ipc.sharing import process_started
from callboard.testing.faulty import FaultyBackend

pytestmark = [pytest.mark.leaves_nothing]

BOUND = 60.0
BACKENDS = [
    pytest.param(("cpu", "thread"), id="cpu-thread"),
    pytest.param(("cpu", "process"), id="cpu-process", marks=pytest.mark.slow),
    pytest.param(("cuda", "process"), id="cuda-process", marks=pytest.mark.gpu),
]
OTHER = """
import sys, callboard as cb
with cb.sync.device(sys.argv[1], isolation="process", standby=None) as dev:
    dev.zeros(1).result()
    print("ready", flush=True)
    for line in sys.stdin:
        what, _, handle = line.strip().partition(" ")
        if what == "open":
            x = dev.ipc.open(bytes.fromhex(handle))
            print(x.get().sum(), flush=True)
        elif what == "wait":
            dev.event.open(bytes.fromhex(handle)).wait(x)
            print(dev.copy(x).get().sum(), flush=True)
        elif what == "fill":
            dev.fill(x, 5.0).result()
            print("filled", flush=True)
        elif what == "free":
            del x
            dev.drain()
            print(dev.stats().buffers, flush=True)
        elif what == "die":
            import os
            os.kill(dev.health().host_pid, 9)
            os._exit(0)
"""


class Other:
    """A process that does what it is told."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def ask(self, what: str, handle: Any = None) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = what if handle is None else f"{what} {handle.as_bytes().hex()}"
        self.process.stdin.write(line.encode() + b"\n")
        async with asyncio.timeout(BOUND):
            return (await self.process.stdout.readline()).decode().strip()


@contextlib.asynccontextmanager
async def another(backend: str) -> AsyncIterator[Other]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OTHER, backend, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(BOUND):
            assert await process.stdout.readline() == b"ready\n"
        yield Other(process)
    finally:
        process.stdin.close()
        async with asyncio.timeout(BOUND):
            await process.wait()


@pytest.fixture(params=BACKENDS)
async def dev(request: pytest.FixtureRequest) -> AsyncIterator[cb.Device]:
    backend, isolation = request.param
    async with cb.device(backend, isolation=isolation, standby=None) as opened:
        yield opened


@pytest.mark.slow
async def test_both_sides_see_what_the_other_writes(dev: cb.Device) -> None:
    x = dev.ipc.empty((4, 5))
    dev.fill(x, 3.0)
    async with another(dev.backend) as other:
        handle = await dev.ipc.export(x[1:3])
        assert await other.ask("open", handle) == "30.0"
        assert await other.ask("fill") == "filled"
        np.testing.assert_array_equal(await x.get(), [[3] * 5, [5] * 5, [5] * 5, [3] * 5])
        dev.fill(x, 1.0)
        event = dev.event.create(timing=False, interprocess=True).record(x)
        assert await other.ask("wait", await event.export()) == "10.0"
        assert await other.ask("free") == "0"


@pytest.mark.slow
async def test_memory_lives_until_the_other_process_has_closed_it(dev: cb.Device) -> None:
    x = dev.ipc.empty((1000,), dtype="f64")
    dev.fill(x, 2.0)
    async with another(dev.backend) as other:
        assert await other.ask("open", await dev.ipc.export(x)) == "2000.0"
        del x
        await dev.trim()
        assert (await dev.pool_stats()).used_bytes == 8000
        assert await other.ask("fill") == "filled"
        assert await other.ask("free") == "0"
        async with asyncio.timeout(BOUND):
            while (await dev.pool_stats()).used_bytes:  # the other host closes it behind the free
                await dev.trim()


@pytest.mark.slow
async def test_a_process_that_is_killed_has_closed_it(dev: cb.Device) -> None:
    x = dev.ipc.empty((1000,), dtype="f64")
    dev.fill(x, 2.0)
    async with another(dev.backend) as other:
        assert await other.ask("open", await dev.ipc.export(x)) == "2000.0"
        assert await other.ask("die") == ""
        await other.process.wait()
    del x
    async with asyncio.timeout(BOUND):
        while (await dev.pool_stats()).used_bytes:  # its host may take a moment longer
            await dev.trim()


async def test_a_freed_array_cannot_be_opened(dev: cb.Device) -> None:
    x = dev.ipc.empty((10,))
    handle = await dev.ipc.export(x)
    del x
    await dev.trim()
    async with cb.device(dev.backend, isolation="process", standby=None) as second:
        with pytest.raises(cb.GpuRefStale, match="the exporter has freed the memory"):
            await second.ipc.open(handle)
        assert (await second.zeros(3).get() == 0).all()


async def test_two_devices_of_one_application_share_memory(dev: cb.Device) -> None:
    """Each with a host of its own."""
    x = dev.ipc.empty((8,))
    dev.fill(x, 4.0)
    async with cb.device(dev.backend, isolation="process", standby=None) as second:
        y = second.ipc.open(await dev.ipc.export(x))
        assert (await second.copy(y).get() == 4).all()
        second.fill(y, 9.0)
        await y.get()
        del y
        await second.drain()
    assert (await x.get() == 9).all()


@pytest.mark.slow
async def test_a_handle_of_a_lost_context_is_refused(tmp_path: Path) -> None:
    backend = FaultyBackend("cpu", exit_at=4, once=str(tmp_path / "once"))
    async with cb.device(backend.spec, isolation="process") as dev, cb.device("cpu", isolation="process") as second:
        x = dev.ipc.empty((8,))
        handle: IpcMemHandle = await dev.ipc.export(x)
        dev.fill(x, 1.0), dev.fill(x, 2.0)
        with pytest.raises(cb.ContextLost):
            await dev.fill(x, 3.0)
        await dev.ready()
        while process_started(handle.pid) == handle.started:
            await dev.stats()  # the lost process takes a moment to be gone
        with pytest.raises(cb.GpuRefStale):
            await second.ipc.open(handle)
        with pytest.raises(cb.GpuRefStale):
            dev.ipc.export(x)


async def test_wrong_arguments(dev: cb.Device) -> None:
    with pytest.raises(ValueError, match="not an IpcMemHandle"):
        dev.ipc.open(b"")
    with pytest.raises(TypeError, match="pass an IpcMemHandle"):
        dev.ipc.open("x")  # type: ignore[arg-type]


async def test_a_view_on_the_host() -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        x = dev.managed.allocate((3, 4), dtype="i32")
        dev.fill(x, 6)
        view = dev.host_view(x[1:])
        assert (view == 6).all()
        view[...] = 8
        np.testing.assert_array_equal(await x.get(), [[6] * 4, [8] * 4, [8] * 4])
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        with pytest.raises(BufferError, match="isolation='thread'"):
            dev.host_view(dev.managed.allocate((3,)))
