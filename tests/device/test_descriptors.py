"""A process, or a context host, without file descriptors: typed errors, nothing left behind, and all works later."""

import asyncio
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import callboard as cb
from callboard.actors.loops.bell import Bell
from callboard.backends.cpu.mappings import new_mapping
from callboard.backends.cpu.marks import SharedMark
from callboard.device.protocol.arena.memory import shared_arena
from callboard.device.supervision.hosts.group import HostGroup
from callboard.kernel.ipc import sharing

ROOT = Path(__file__).parents[2]
LIMIT = 150.0

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted on Linux only"),
    pytest.mark.timeout(200),
]

COMMON = """
import asyncio, gc, os, resource, sys
import numpy as np
import callboard as cb
from callboard.testing.census import nothing_left

resource.setrlimit(resource.RLIMIT_NOFILE, (160, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

def take_all(but):
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for _ in range(but):
        os.close(held.pop())
    return held

def give_back(held):
    while held:
        os.close(held.pop())
"""

OPENING = """
async def use():
    async with cb.System() as system:
        gpu = await system.device("cpu", isolation=sys.argv[1], standby=None)
        a = gpu.put(np.ones((64, 64), "f4"))
        assert (await gpu.blas.gemm(a, a).get())[0, 0] == 64

async def main():
    await use()  # what lasts as long as the process
    outcomes = []
    for free in map(int, sys.argv[2:]):
        with nothing_left():
            held = take_all(free)
            try:
                await use()
                outcomes.append("used")
            except cb.AccelError as e:
                assert "open files" in str(e), e
                outcomes.append("refused")
            finally:
                give_back(held)
    assert outcomes[0] == "refused" and outcomes[-1] == "used", outcomes
    await use()
    print("done")

asyncio.run(main())
"""

HOST = """
class Hog(cb.ResidentActor):
    def take(self, but: int) -> None:
        self.held = take_all(but)
    def give(self) -> None:
        give_back(self.held)

async def main():
    async with cb.System() as system:
        gpu = await system.device("cpu", isolation="process", standby=None)
        hog = gpu.actor_of(cb.Props(Hog), name="hog")
        generation, refused, kept = gpu.generation, 0, []
        await gpu.put(np.ones(3)).get()  # what is imported for it
        for free in range(6):
            await hog.call(Hog.take, free)
            array = np.full((3 + free) << 18, float(free))
            try:
                kept.append(await gpu.put(array))
                kept.append(await gpu.put(array))
            except cb.OutOfMemory as e:
                assert "descriptor" in str(e), e
                refused += 1
            finally:
                await hog.call(Hog.give)
            assert (await gpu.put(array).get() == free).all()
        assert refused, "the host was never without descriptors"
        assert gpu.generation == generation
    print("done")

asyncio.run(main())
"""


def run(program: str, *arguments: str) -> str:
    """Run a program in a process of its own, whose descriptors it may use up."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-c", COMMON + program, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "Exception ignored" not in ended.stderr
    return ended.stdout


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("isolation, free", [("thread", (0, 1, 2, 3, 4, 8)), ("process", (0, 6, 10, 20))])
def test_a_device_that_finds_no_descriptors_is_refused_and_opens_later(isolation: str, free: tuple[int, ...]) -> None:
    assert run(OPENING, isolation, *map(str, free)).strip() == "done"


def test_a_host_without_descriptors_refuses_arrays_and_keeps_its_context() -> None:
    """The descriptor of an arena waits in the socket until the host has room for it."""
    assert run(HOST).strip() == "done"


def full(*_: Any, **__: Any) -> Any:
    """A call that needs a descriptor."""
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_bell_that_finds_no_descriptor_rings_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "eventfd", full)
    bell = Bell()
    assert not bell.wait(0.0)
    bell.ring()
    bell.ring()
    assert bell.wait(60.0)
    assert not bell.wait(0.0)


@pytest.mark.parametrize(
    "make", [sharing.ExportLease, SharedMark, lambda: new_mapping(1), lambda: shared_arena(1, 4096)]
)
def test_shared_memory_that_finds_no_descriptor_names_the_limit(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "memfd_create", full)
    with pytest.raises(cb.OutOfMemory, match="ulimit -n"):
        make()


def test_a_process_that_cannot_be_looked_at_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks of a world, and the owners of shared memory, would count as lost."""
    started = sharing.process_started(os.getpid())
    monkeypatch.setattr(sharing, "open", full, raising=False)
    monkeypatch.setattr(os, "open", full)
    assert not sharing.has_ended(os.getpid(), started)
    assert sharing.has_ended(2**22 + 1, started)
    with pytest.raises(cb.OutOfMemory, match="ulimit -n"):
        sharing.process_started(os.getpid())
    with pytest.raises(cb.OutOfMemory, match="ulimit -n"):  # and not GpuRefStale
        sharing.ImportLease("/proc/self/fd/0")


async def test_a_group_that_cannot_be_looked_at_is_killed_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:  # noqa: ASYNC220 - it is killed
        monkeypatch.setattr(os, "listdir", full)
        group = HostGroup(asyncio.get_running_loop(), process.pid)
        gone: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        group.when_gone(gone.set_result)
        await gone
        assert process.wait() < 0
