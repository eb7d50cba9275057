"""``Supervisor``: starts the workers of ``callboard serve``, and replaces those that end, are not live, or are old."""

import argparse
import asyncio
import contextlib
import json
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from callboard.cli.serving.channel import Counted, Hurry, Lives, Message, Ready, Refused, Total, decoded, encoded
from callboard.cli.serving.logs import told
from callboard.cli.serving.merging import Totals
from callboard.serve.http.ending import Signals
from callboard.serve.http.starting import Port

__all__ = ["Supervisor", "next_delay", "supervise"]

FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
"""Seconds until a worker that has ended is started again: twice as long each time, until one was ready for
:data:`STEADY` seconds."""
STEADY = 60.0
LIVE_EVERY = 1.0
"""Seconds between the questions whether the workers are live."""
SILENT = 60
"""Questions that a worker may leave without an answer."""
LEAVING = 30.0
"""Seconds beyond its ``drain_timeout`` that a worker that is not live has to end."""
FIGURES_TIMEOUT = 2.0
"""Seconds that a worker has for its figures; else its last ones count."""
LONGEST_LINE = 1 << 26
BACKLOG = 2048

_log = logging.getLogger("callboard.serve")


def supervise(given: argparse.Namespace, changes: Callable[[], AsyncIterator[Path]] | None) -> int:
    """Serve with workers until a signal; the exit code.

    Args:
        given: The options of the command.
        changes: Yields files that have changed: then the workers are started again. None: they are not watched.

    Raises:
        CannotListen: The port cannot be listened on.
        ValueError: An option is out of range.
    """
    port = Port(given.host, given.port, given.max_connections, uds=given.uds, root_path=given.root_path)
    with port.open() as listener, Signals() as signals, asyncio.Runner() as runner:
        try:
            signals.loop = runner.get_loop()
            supervisor = Supervisor(given, listener, signals, changes)
            signals.last = supervisor.kill
            return runner.run(supervisor.run())
        finally:
            if given.uds is not None:
                given.uds.unlink(missing_ok=True)


@dataclass(eq=False)
class _Worker:
    number: int
    process: asyncio.subprocess.Process
    writer: asyncio.StreamWriter
    ready: bool = False
    since: float = 0.0
    """When it was ready, by the loop's clock."""
    drain_timeout: float = 0.0
    asked: int = 0
    """Questions whether it is live that it has not answered."""
    why_not_live: str | None = None
    told: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its figures have come."""

    def tell(self, message: Message) -> None:
        """Send a message, unless its process has ended."""
        with contextlib.suppress(OSError):
            self.writer.write(encoded(message))


class Supervisor:
    """Worker processes.

    Args:
        given: The options of the command.
        listener: The bound socket. Where there is one worker, or a Unix socket, the workers inherit it; else it keeps
            the port for their own ones.
        signals: What the user asks for.
        changes: See :func:`supervise`.
    """

    def __init__(
        self,
        given: argparse.Namespace,
        listener: socket.socket,
        signals: Signals,
        changes: Callable[[], AsyncIterator[Path]] | None,
    ) -> None:
        self._given = given
        self._listener = listener
        self._signals = signals
        self._changes = changes
        self._changed = asyncio.Event()
        self._inherited = given.workers == 1 or given.uds is not None
        self._workers: dict[int, _Worker] = {}
        self._totals = Totals()
        self._gathering: asyncio.Task[str] | None = None
        self._restarts = 0
        self._was_ready = False
        self._told: set[str] = set()
        self._one_more = asyncio.Event()
        """Set when a worker is ready."""
        self._code = 0

    async def run(self) -> int:
        """Keep the workers running until a signal; the exit code."""
        if self._inherited:
            self._listener.listen(BACKLOG)
        else:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        keeping = [asyncio.create_task(self._keep(number)) for number in range(self._given.workers)]
        others = [asyncio.create_task(self._stop()), asyncio.create_task(self._hurry())]
        if self._changes is None:
            others.append(asyncio.create_task(self._replace_those_not_live()))
        else:
            others.append(asyncio.create_task(self._watch(self._changes)))
        try:
            await asyncio.gather(*keeping)
        finally:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        return self._code

    def kill(self) -> None:
        """End all workers at once, whatever they do."""
        for worker in self._workers.values():
            _kill(worker)

    # -- workers -------------------------------------------------------------------------------------------------------

    async def _keep(self, number: int) -> None:
        loop, delay = asyncio.get_running_loop(), 0.0
        while not self._signals.stop.is_set():
            changed = self._changed
            worker, messages = await self._start(number)
            await self._hear(worker, messages)
            code = await worker.process.wait()
            del self._workers[number]
            self._totals.ended(number)
            if self._signals.stop.is_set():
                self._code = self._code or max(code, 0)
                return
            if self._changes is not None:
                await _until_changed(changed, code)
                self._told.clear()
                continue
            if not self._was_ready or code == 2:
                self._code = code if code > 0 else 1
                self._signals.stop.set()
                return
            delay = next_delay(delay, loop.time() - worker.since if worker.ready else 0.0)
            level = logging.ERROR if code else logging.WARNING  # 0: a signal asked it to end
            _log.log(level, "worker %d (process %d) %s; it is started again", number, worker.process.pid, _how(code))
            self._restarts += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._signals.stop.wait()

    async def _start(self, number: int) -> tuple[_Worker, asyncio.StreamReader]:
        ours, theirs = socket.socketpair()
        fds = [theirs.fileno()] + ([self._listener.fileno()] if self._inherited else [])
        options = {name: value for name, value in vars(self._given).items() if name != "run"}
        options |= {"family": self._listener.family, "address": self._listener.getsockname()}
        about = {
            "number": number,
            "channel": theirs.fileno(),
            "listener": self._listener.fileno() if self._inherited else None,
            "late": any(worker.ready for worker in self._workers.values()),
            "options": options,
        }
        with theirs:
            command = [sys.executable, "-m", "callboard.cli.serving.worker", json.dumps(about, default=str)]
            process = await asyncio.create_subprocess_exec(*command, pass_fds=fds)
        reader, writer = await asyncio.open_connection(sock=ours, limit=LONGEST_LINE)
        worker = self._workers[number] = _Worker(number, process, writer)
        if self._signals.stop.is_set():  # meanwhile
            _terminate(worker)
        return worker, reader

    async def _hear(self, worker: _Worker, reader: asyncio.StreamReader) -> None:
        """Answer its messages until its process has ended."""
        try:
            async for line in reader:
                match decoded(line):
                    case Ready(drain_timeout):
                        worker.ready = self._was_ready = True
                        worker.since, worker.drain_timeout = asyncio.get_running_loop().time(), drain_timeout
                        self._one_more.set()
                    case Refused(why):
                        if why not in self._told:  # by another worker
                            self._told.add(why)
                            told(self._given)(logging.ERROR, why)
                    case Lives(why_not):
                        worker.asked, worker.why_not_live = 0, why_not
                    case Counted(text):
                        self._totals.note(worker.number, text or "")
                        worker.told.set()
                    case Total():
                        self._gathering = self._gathering or asyncio.create_task(self._gather())
                        self._gathering.add_done_callback(lambda done: worker.tell(Total(done.result())))
        except OSError:  # it was killed
            pass
        finally:
            worker.writer.close()

    async def _gather(self) -> str:
        workers = [worker for worker in self._workers.values() if worker.ready]
        for worker in workers:
            worker.told.clear()
            worker.tell(Counted())
        waiting = [asyncio.create_task(worker.told.wait()) for worker in workers]
        if waiting:
            await asyncio.wait(waiting, timeout=FIGURES_TIMEOUT)
        for task in waiting:
            task.cancel()
        self._gathering = None
        return self._totals.exposition(
            {
                "callboard_workers": ("gauge", "Workers that are to run.", self._given.workers),
                "callboard_worker_restarts_total": ("counter", "Workers that were started again.", self._restarts),
            }
        )

    # -- workers that are not live -------------------------------------------------------------------------------------

    async def _replace_those_not_live(self) -> None:
        """Ask the workers, and replace one after the other: those that are left serve meanwhile what they can."""
        while True:
            for worker in self._workers.values():
                if worker.ready:
                    worker.asked += 1
                    worker.tell(Lives())
            await asyncio.sleep(LIVE_EVERY)
            for worker in list(self._workers.values()):
                if worker.why_not_live is not None or worker.asked > SILENT:
                    await self._replace(worker)
                    break  # the others may have recovered meanwhile: ask again

    async def _replace(self, worker: _Worker) -> None:
        """End a worker, and wait until there is a ready one in its place."""
        name = f"worker {worker.number} (process {worker.process.pid})"
        if worker.why_not_live is not None:
            _log.error("%s is not live: %s; it is replaced", name, worker.why_not_live)
            _terminate(worker)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(worker.drain_timeout + LEAVING):
                    await worker.process.wait()
        else:
            _log.error("%s does not answer: it is replaced", name)
        if worker.process.returncode is None:
            _kill(worker)
        while not self._has_another(worker):
            self._one_more.clear()
            await self._one_more.wait()

    def _has_another(self, worker: _Worker) -> bool:
        now = self._workers.get(worker.number)
        return now is not None and now is not worker and now.ready

    # -- events --------------------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        await self._signals.stop.wait()
        self._changed.set()
        self._listener.close()  # the workers accept what is in the queue of one that they share
        for worker in self._workers.values():
            _terminate(worker)

    async def _hurry(self) -> None:
        await self._signals.hurry.wait()
        for worker in self._workers.values():
            worker.tell(Hurry())

    async def _watch(self, changes: Callable[[], AsyncIterator[Path]]) -> None:
        async for path in changes():
            _log.warning("%s has changed: the app is started again", path)
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
            for worker in self._workers.values():
                _terminate(worker)


async def _until_changed(changed: asyncio.Event, code: int) -> None:
    if not changed.is_set():
        _log.error("the app's process %s; it is started again when a file changes", _how(code))
    await changed.wait()


def _terminate(worker: _Worker) -> None:
    with contextlib.suppress(ProcessLookupError):
        worker.process.send_signal(signal.SIGTERM)


def _kill(worker: _Worker) -> None:
    with contextlib.suppress(ProcessLookupError):
        worker.process.kill()


def next_delay(before: float, lasted: float) -> float:
    """Seconds until a worker is started again.

    Args:
        before: Seconds that it took the last time; 0: it is the first time.
        lasted: Seconds that it was ready.
    """
    if lasted >= STEADY or not before:
        return FIRST_DELAY
    return min(2 * before, LONGEST_DELAY)


def _how(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
