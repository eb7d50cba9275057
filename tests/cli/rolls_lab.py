"""Shared by the tests of rolls: a supervisor whose workers are no processes."""

import argparse
import asyncio
import itertools
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.cli.workers_lab import LIMIT

from callboard.cli.serving import supervisor
from callboard.cli.serving.channel import Counted, Lives, Ready, decoded
from callboard.cli.serving.processes import WorkerProcess
from callboard.serve.http.ending import Signals


class Process:
    """A process that ends when it is told to, unless it is stuck."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.signals: list[int] = []
        self.stuck = False
        self._ended = asyncio.Event()

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        if number == signal.SIGKILL:
            self.end(-number)
        elif not self.stuck:
            self.end(0)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def end(self, code: int) -> None:
        self.returncode = code
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode


class Fake:
    """A worker, and its connection: it answers at once how much it has counted, or an iteration later if that is 0."""

    def __init__(self, pid: int, number: int, listener: socket.socket, late: bool, hear: Callable[..., object]) -> None:
        self.process, self.late, self._hear = Process(pid), late, hear
        self.counted = 0
        self.why_not_live: str | None = None
        make: Any = WorkerProcess
        self.worker = make(number, self.process, self, listener)

    def ready(self) -> None:
        self._hear(self.worker, Ready(1.0))

    def write(self, data: bytes) -> None:
        if isinstance(decoded(data), Counted):
            answer = self.worker, Counted(f"# TYPE a counter\na {self.counted}\n")
            if self.counted:
                self._hear(*answer)
            else:
                asyncio.get_running_loop().call_soon(self._hear, *answer)
        elif isinstance(decoded(data), Lives):
            self._hear(self.worker, Lives(self.why_not_live))


class Crew:
    """A supervisor of two workers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(supervisor, "started", self._started)
        monkeypatch.setattr(supervisor, "FIRST_DELAY", 0.0)
        monkeypatch.setattr(supervisor, "LIVE_EVERY", 0.0)
        self.signals = Signals()
        self.all: list[Fake] = []
        self._changed = asyncio.Event()
        self._pids = itertools.count(100)
        self.listener = socket.create_server(("127.0.0.1", 0))
        given: Any = argparse.Namespace(workers=2, uds="path")  # one socket, which all inherit
        self.supervisor: Any = supervisor.Supervisor(given, self.listener, self.signals, None)

    async def _started(
        self, number: int, given: object, listener: socket.socket, *, late: bool, hear: Any, ended: Any
    ) -> Any:
        fake = Fake(next(self._pids), number, listener, late, hear)

        async def life() -> int:
            code = await fake.process.wait()
            fake.worker.changed.set()
            await ended(fake.worker)
            fake.worker.left.set()
            return code

        fake.worker.ended = asyncio.create_task(life())
        self.all.append(fake)
        return fake.worker

    @asynccontextmanager
    async def running(self) -> AsyncIterator["asyncio.Task[int]"]:
        """Run the supervisor during the block; what is left is killed at its end."""
        task = asyncio.create_task(self.supervisor.run())
        try:
            async with asyncio.timeout(LIMIT):
                await self.until(lambda: len(self.all) == 2)
                yield task
        finally:
            self.signals.stop.set()
            while not task.done():
                self.supervisor.kill()
                await asyncio.sleep(0)
            self.listener.close()

    async def until(self, true: Callable[[], object]) -> None:
        """Let the supervisor go on until this is true; the block of :meth:`running` has a bound."""
        while not true():  # noqa: ASYNC110 - the supervisor has no event for each of its steps
            await asyncio.sleep(0)

    async def iterations(self, count: int = 200) -> None:
        """Let the loop run, for what must not happen."""
        for _ in range(count):
            await asyncio.sleep(0)

    def roll(self) -> None:
        """Ask for a roll."""
        self.supervisor._asked.set()
