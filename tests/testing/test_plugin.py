"""The plugin as users have it: small test files of theirs, run by a pytest of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = 150.0
"""Seconds for a pytest of its own, which starts several hosts, each of them on a busy machine."""

pytestmark = pytest.mark.timeout(LIMIT + 20)

USERS_TESTS = """
import asyncio, os, threading
import numpy as np, pytest
import callboard as cb

A = np.ones((2, 2), "f4")

async def test_cpu_device(cpu_device):
    assert (await cpu_device.put(A).get()).sum() == 4 and cpu_device.isolation == "thread"

async def test_device(device):
    assert (await device.put(A).get()).sum() == 4

@pytest.mark.parametrize(
    "kind, error, isolation",
    [("oom", cb.OutOfMemory, "process"), ("oom", cb.OutOfMemory, "thread"), ("stale", cb.GpuRefStale, "thread")],
)
async def test_refused(fault, kind, error, isolation):
    async with fault(kind, at=2, isolation=isolation) as dev:
        a = dev.put(A)
        b = dev.copy(a)
        with pytest.raises(error, match="injected at op 2"):
            await b
        assert (await a.get()).sum() == 4

@pytest.mark.parametrize("kind", ["context_poisoned", "host_killed"])
async def test_lost(fault, kind):
    async with fault(kind, at=2) as dev:
        pid, a = dev.health().host_pid, dev.put(A)
        with pytest.raises(cb.ContextPoisoned):
            await dev.copy(a).get()
        assert (await dev.put(A).get()).sum() == 4
        assert dev.health().host_pid != pid

async def test_hang(fault):
    async with fault("hang", at=1, isolation="thread") as dev:
        a = dev.put(A)
        b = dev.copy(a)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await b

async def test_slow(fault):
    async with fault("slow", at=1, delay=0.2, isolation="thread") as dev:
        start = asyncio.get_running_loop().time()
        await dev.copy(dev.put(A))
        assert asyncio.get_running_loop().time() - start > 0.19

def test_in_a_loop_of_its_own(fault):
    async def main():
        async with fault("oom", at=1, isolation="thread") as dev:
            with pytest.raises(cb.OutOfMemory):
                await dev.put(A)
    asyncio.run(main())

async def test_killing_needs_a_process(fault):
    with pytest.raises(ValueError, match="use 'process'"):
        async with fault("host_killed", isolation="thread"):
            pass
    with pytest.raises(ValueError, match="context_poisoned"):
        async with fault("flood"):
            pass
    with pytest.raises(ValueError, match="counted from 1"):
        async with fault("oom", at=0):
            pass

async def test_clock(clock):
    called = []
    clock.call_later(5.0, called.append, 1)
    clock.advance(5.0)
    assert called == [1] and clock.time() == 5.0
"""

LEAKS = """
import asyncio, os, threading
import pytest
import callboard.testing.census as census
import callboard as cb

census.PATIENCE = 0.1
kept = []

def test_descriptor(fault):
    kept.append(os.pipe())

def test_thread(fault):
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="callboard-forgotten", daemon=True)
    thread.start()
    kept.append(done)

def test_mapping(fault):
    from callboard.device.protocol.arena.memory import shared_arena
    kept.append(shared_arena(7, 4096))

@pytest.mark.leaves_nothing
def test_host():
    async def main():
        system = await cb.System().start()
        kept.append(await system.device("cpu", isolation="process", standby=None))
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    kept.append(loop)

def test_nothing_is_said_twice(fault):
    pass

def test_not_asked_for():
    kept.append(os.pipe())
"""


def run(folder: Path, text: str, *options: str) -> str:
    (folder / "test_users.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    # By name, because the entry point is there only where callboard is installed.
    plugin = ["-p", "no:callboard", "-p", "callboard.testing.plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-rs", "--strict-markers", *plugin, *options]
    # Variables of pytest's are those of the run, or the xdist worker, that this is part of.
    environment = {k: v for k, v in os.environ.items() if k != "CALLBOARD_REQUIRE" and not k.startswith("PYTEST_")}
    environment |= {"CUDA_VISIBLE_DEVICES": ""} if "no-cuda" in folder.name else {}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    return done.stdout + done.stderr


def test_fixtures(tmp_path: Path) -> None:
    told = run(tmp_path, USERS_TESTS, "-k", "not cuda")
    assert "13 passed" in told, told
    assert "failed" not in told, told
    assert "error" not in told.splitlines()[-1], told


@pytest.mark.slow
def test_fixtures_in_workers_of_xdist(tmp_path: Path) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    told = run(tmp_path, USERS_TESTS, "-k", "(device or lost) and not cuda", "-n", "2")
    assert "5 passed" in told, told
    assert "failed" not in told, told
    assert "error" not in told.splitlines()[-1], told


@pytest.mark.slow
def test_what_is_left_behind_is_an_error(tmp_path: Path) -> None:
    told = run(tmp_path, LEAKS)
    for name, what in [
        ("test_descriptor", "pipe:"),
        ("test_thread", "thread callboard-forgotten"),
        ("test_mapping", "callboard-arena-7"),
        ("test_host", "the context host cpu:0/active"),
    ]:
        section = told.partition(f"ERROR at teardown of {name} ")[2].partition("____ ")[0]
        assert f"{name} has left behind:" in section, told
        assert what in section, told
    assert "6 passed, 4 errors" in told, told


def test_light_without_the_async_plugin(tmp_path: Path) -> None:
    text = """
import sys

def test_loads_little(fault, clock):
    assert not {"scipy", "callboard.system", "callboard.core.registry"} & set(sys.modules)
"""
    told = run(tmp_path, text, "-p", "no:asyncio", "-p", "no:hypothesispytest")
    assert "1 passed" in told, told


@pytest.mark.slow
@pytest.mark.parametrize("required", [False, True])
@pytest.mark.few(1)
def test_a_backend_that_cannot_be_used_says_why(tmp_path: Path, required: bool) -> None:
    text = """
import os
import pytest
from callboard.core import registry
from callboard.core.errors import BackendUnavailable
from callboard.backends.cpu import CpuBackend

class NoCuda(CpuBackend):
    name = "cuda"
    def devices(self):
        raise BackendUnavailable("no driver, as a test would have it")

registry.register("cuda", NoCuda())
REQUIRE
async def test_device(device):
    pass
""".replace("REQUIRE", "os.environ['CALLBOARD_REQUIRE'] = 'cuda'" if required else "")
    told = run(tmp_path, text, "-k", "cuda-")
    assert "no driver, as a test would have it" in told, told
    assert ("2 errors" if required else "2 skipped") in told, told
