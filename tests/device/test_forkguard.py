"""Handles in a forked child: a clear error, and no descriptor."""

import asyncio
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callboard.device import forkguard
from callboard.device.protocol.arena import ArenaPool
from callboard.device.protocol.messages import Answer, Ask, Close
from callboard.device.supervision.hosts.process import ProcessHost
from callboard.device.supervision.hosts.thread import ThreadHost

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork"),
    pytest.mark.timeout(60),
]


def open_files() -> set[str]:
    """What the descriptors of this process are."""
    return {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if os.path.lexists(link)}


def in_a_fork(work: Callable[[], str]) -> str:
    """What the function says in a forked child."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = work()
        except BaseException as e:
            text = f"{type(e).__name__}: {e}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text


class Thing:
    def __init__(self) -> None:
        self.forked = False
        forkguard.guard(self)

    def after_fork(self) -> None:
        self.forked = True


def test_what_is_guarded_hears_of_the_fork_and_nothing_else_does() -> None:
    thing, dead = Thing(), Thing()
    del dead
    gc.collect()
    assert in_a_fork(lambda: str(thing.forked)) == "True"
    assert not thing.forked


class Broken(Thing):
    def after_fork(self) -> None:
        raise OSError(9, "Bad file descriptor")


def test_one_that_fails_does_not_hide_the_fork_from_others() -> None:
    broken, thing = Broken(), Thing()
    assert in_a_fork(lambda: str(thing.forked)) == "True"
    assert not broken.forked


def test_the_error_says_what_to_do() -> None:
    text = str(forkguard.forked_error("the thing"))
    assert text.startswith("the thing was opened before os.fork()")
    assert "--preload" in text


def test_the_pool_of_a_fork_raises() -> None:
    pool = ArenaPool(1 << 20, lambda arena: None, shared=sys.platform == "linux")
    slot = pool.take(100)

    def work() -> str:
        if slot.arena.descriptor >= 0:
            return "still open"
        pool.take(100)
        return "taken"

    with pool._lock:  # as another thread might
        text = in_a_fork(work)
    assert text.startswith("RuntimeError: the shared memory of a device was opened before os.fork()")
    pool.take(100)


class Answers:
    def __init__(self) -> None:
        self.box: asyncio.Queue[Any] = asyncio.Queue()
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def take(self, message: Any) -> None:
        if type(message) is Answer:
            self.box.put_nowait(message)


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "supervision" / "hosts"))
    import standin

    return standin


@pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only")
async def test_a_process_host_of_a_fork_raises_and_the_original_goes_on(standin: Any) -> None:
    loop, answers = asyncio.get_running_loop(), Answers()
    plain = open_files()
    options: dict[str, Any] = {
        "hang_after": 30.0,
        "step_timeout": 300.0,
        "interval": 0.2,
        "label": "cpu:0",
        "serve": "standin:serve",
    }
    host = await ProcessHost.start(loop, {}, answers.take, answers.ended.set_result, **options)
    host.post(Ask(1, "echo", b"before"))
    assert (await asyncio.wait_for(answers.box.get(), 20)).value == b"before"

    def work() -> str:
        left = {file for file in open_files() - plain if not file.startswith("pipe")}  # of in_a_fork
        if left:
            return f"left open: {left}"
        host.post(Close())
        return "posted"

    text = in_a_fork(work)
    assert text.startswith("RuntimeError: the host of cpu:0 was opened before os.fork()"), text
    host.post(Ask(2, "echo", b"after"))
    assert (await asyncio.wait_for(answers.box.get(), 20)).value == b"after"
    await host.close(20.0)
    assert (await answers.ended).reason == "closed"
    # Its descriptors are gone, and their numbers may be others' by now: a fork closes none of them.
    standing = [os.memfd_create("test") for _ in range(10)]
    assert in_a_fork(lambda: str([os.fstat(file).st_size for file in standing])) == str([0] * 10)
    for file in standing:
        os.close(file)


async def test_a_thread_host_of_a_fork_raises(standin: Any) -> None:
    loop, answers = asyncio.get_running_loop(), Answers()
    host = await ThreadHost.start(loop, answers.take, answers.ended.set_result, label="cpu:0", serve=standin.serve)

    def work() -> str:
        host.post(Close())
        return "posted"

    assert in_a_fork(work).startswith("RuntimeError: the host of cpu:0 was opened")
    await host.close(20.0)


@pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only")
async def test_a_fork_can_start_its_own_host(standin: Any) -> None:
    """Spawner and monitor are threads of the parent; the child gets new ones."""
    loop, answers = asyncio.get_running_loop(), Answers()
    options: dict[str, Any] = {
        "hang_after": 30.0,
        "step_timeout": 300.0,
        "interval": 0.2,
        "label": "cpu:0",
        "serve": "standin:serve",
    }
    host = await ProcessHost.start(loop, {}, answers.take, answers.ended.set_result, **options)

    async def again() -> str:
        fresh = Answers()
        own = await ProcessHost.start(asyncio.get_running_loop(), {}, fresh.take, fresh.ended.set_result, **options)
        own.post(Ask(1, "echo", b"from the fork"))
        answer = (await asyncio.wait_for(fresh.box.get(), 20)).value
        await own.close(20.0)
        return str(answer.decode())

    def work() -> str:
        asyncio._set_running_loop(None)
        return asyncio.run(again())

    assert await asyncio.to_thread(lambda: None) is None  # an executor thread runs, as in a real application
    assert in_a_fork(work) == "from the fork"
    await host.close(20.0)
