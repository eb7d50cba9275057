"""``Supervisor``: starts the workers of ``callboard serve``, and replaces those that end, are not live, or are old."""

import argparse
import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from callboard.cli.serving.channel import Counted, Hurry, Lives, Ready, Refused, Total
from callboard.cli.serving.logs import told
from callboard.cli.serving.merging import Totals
from callboard.cli.serving.processes import BACKLOG, WorkerProcess, how_it_ended, on_same_port, started
from callboard.cli.serving.rolls import rolls
from callboard.serve.http.ending import Signals
from callboard.serve.http.starting import Port

__all__ = ["Supervisor", "cannot_roll", "next_delay", "supervise"]

FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
"""Seconds until a worker that has ended is started again: twice as long each time, until one was ready for
:data:`STEADY` seconds."""
STEADY = 60.0
LIVE_EVERY = 1.0
"""Seconds between the questions whether the workers are live."""
SILENT = 60
"""Questions that a worker may leave without an answer."""
READY_WITHIN = 600.0
"""Seconds that the process of a roll has until it is ready."""
LEAVING = 30.0
"""Seconds beyond its ``drain_timeout`` that a worker has to end which is not live, is replaced, or was not ready."""
FIGURES_TIMEOUT = 2.0
"""Seconds that a worker has for its figures; else its last ones count."""

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


class Supervisor:
    """Worker processes.

    Args:
        given: The options of the command.
        listener: The bound socket. Where there is one worker, or a Unix socket, the workers listen on it; else it keeps
            the port for a socket of each.
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
        self._workers: dict[int, WorkerProcess] = {}
        self._next: dict[int, WorkerProcess] = {}  # those that take the places of others
        self._alive: set[WorkerProcess] = set()  # all of them
        self._asked = asyncio.Event()  # for a roll
        self._draining: set[asyncio.Task[None]] = set()
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
            others.append(asyncio.create_task(self._roll_when_asked()))
            rolls.obey(asyncio.get_running_loop(), self._asked.set)
        else:
            rolls.obey(asyncio.get_running_loop(), cannot_roll)
            others.append(asyncio.create_task(self._watch(self._changes)))
        try:
            await asyncio.gather(*keeping)
        finally:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.gather(*(worker.ended for worker in list(self._alive) if worker.ended is not None))
            await asyncio.gather(*self._draining)
        return self._code

    def kill(self) -> None:
        """End all workers at once, whatever they do."""
        for worker in self._alive:
            worker.kill()

    # -- workers -------------------------------------------------------------------------------------------------------

    async def _keep(self, number: int) -> None:
        loop, delay = asyncio.get_running_loop(), 0.0
        while True:
            changed = self._changed
            if number not in self._workers:
                if self._signals.stop.is_set():
                    return
                self._take_place(await self._next_of(number))
            worker = self._workers[number]
            await worker.left.wait()
            if self._workers[number] is not worker:  # a roll has put another in its place
                continue
            assert worker.ended is not None
            code = await asyncio.shield(worker.ended)
            del self._workers[number]
            if self._signals.stop.is_set():
                self._code = self._code or max(code, 0)
                return
            if self._changes is not None:
                await _until_changed(changed, code)
                self._told.clear()
                continue
            if number in self._next:
                _log.log(logging.ERROR if code else logging.INFO, "%s %s", worker, how_it_ended(code))
                continue
            if not self._was_ready or code == 2:
                self._code = code if code > 0 else 1
                self._signals.stop.set()
                return
            delay = next_delay(delay, loop.time() - worker.since if worker.ready else 0.0)
            level = logging.ERROR if code else logging.WARNING  # 0: a signal asked it to end
            _log.log(level, "%s %s; it is started again", worker, how_it_ended(code))
            self._restarts += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._signals.stop.wait()

    async def _next_of(self, number: int) -> WorkerProcess:
        """The process that a roll has started for this place, else a new one."""
        if number not in self._next:
            worker = await self._start(number, late=any(each.ready for each in self._alive))
            if number not in self._next:
                return worker
            self._drain(worker)  # a roll has started one meanwhile
        worker = self._next.pop(number)
        self._reset_listener(worker)
        return worker

    def _reset_listener(self, worker: WorkerProcess) -> None:
        """The process before it has ended: no connection is to wait at its socket until it is ready."""
        if not self._inherited and not worker.ready:
            worker.reset_listener()

    def _take_place(self, worker: WorkerProcess) -> None:
        """Have it be the worker of its number, instead of the one before."""
        before = self._workers.get(worker.number)
        self._workers[worker.number] = worker
        if before is not None:  # the keys first: figures that come from both are kept apart
            self._totals.moved(before.key, -before.process.pid)
            before.key = -before.process.pid
            before.close_listener()
            before.left.set()
        self._totals.moved(worker.key, worker.number)
        worker.key = worker.number
        self._one_more.set()

    def _drain(self, worker: WorkerProcess) -> "asyncio.Task[None]":
        """Ask it to end, and kill it if it has not ended in time."""
        task = asyncio.create_task(self._end(worker))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)
        return task

    async def _end(self, worker: WorkerProcess) -> None:
        timeout = worker.drain_timeout + LEAVING
        if not await worker.end(timeout):
            _log.error("%s did not end within %g s: it is killed", worker, timeout)

    async def _start(self, number: int, before: WorkerProcess | None = None, *, late: bool) -> WorkerProcess:
        """Start a worker, on the socket of the one before it, if that still runs."""
        if self._inherited:
            listener = self._listener.dup()
        else:
            theirs = None if before is None else before.listener
            listener = on_same_port(self._listener) if theirs is None else theirs.dup()
        worker = await started(
            number,
            self._given,
            listener,
            late=late,
            hear=self._hear,
            ended=self._ended,
        )
        self._alive.add(worker)
        if self._signals.stop.is_set():  # meanwhile
            worker.close_listener()
            self._drain(worker)
        return worker

    async def _ended(self, worker: WorkerProcess) -> None:
        self._alive.discard(worker)
        self._totals.ended(worker.key)
        worker.close_listener()

    def _hear(self, worker: WorkerProcess, message: Any) -> None:
        """Answer a message of a worker."""
        match message:
            case Ready(drain_timeout):
                worker.ready = self._was_ready = True
                worker.since, worker.drain_timeout = asyncio.get_running_loop().time(), drain_timeout
                worker.listen_again()
                worker.changed.set()
                self._one_more.set()
            case Refused(why):
                worker.refused = why
                if why not in self._told:  # by another worker
                    self._told.add(why)
                    told(self._given)(logging.ERROR, why)
            case Lives(why_not):
                worker.asked, worker.why_not_live = 0, why_not
            case Counted(text):
                self._totals.note(worker.key, text or "")
                worker.told.set()
            case Total():
                self._gathering = self._gathering or asyncio.create_task(self._gather())
                self._gathering.add_done_callback(lambda done: worker.tell(Total(done.result())))

    async def _gather(self) -> str:
        workers = [worker for worker in self._alive if worker.ready]
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
                not_live = worker.why_not_live is not None and worker.number not in self._next  # else a roll ends it
                if not_live or worker.asked > SILENT:
                    await self._replace(worker)
                    break  # the others may have recovered meanwhile: ask again

    async def _replace(self, worker: WorkerProcess) -> None:
        """End a worker, and wait until there is a ready one in its place."""
        if worker.why_not_live is not None:
            _log.error("%s is not live: %s; it is replaced", worker, worker.why_not_live)
            worker.close_listener()  # connections do not wait at its socket while it drains
            await worker.end(worker.drain_timeout + LEAVING)
        else:
            _log.error("%s does not answer: it is replaced", worker)
            worker.kill()
        while not self._has_another(worker):
            self._one_more.clear()
            await self._one_more.wait()

    def _has_another(self, worker: WorkerProcess) -> bool:
        now = self._workers.get(worker.number)
        return now is not None and now is not worker and now.ready

    # -- a roll --------------------------------------------------------------------------------------------------------

    async def _roll_when_asked(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            if not self._was_ready:
                _log.info("the workers are replaced when one of them is ready")
            while not self._was_ready:
                self._one_more.clear()
                await self._one_more.wait()
            await self._roll()

    async def _roll(self) -> None:
        """Replace the workers one after the other: the next process is ready before the one before it drains."""
        _log.info("the workers are replaced one after the other")
        for number in range(self._given.workers):
            if (why := await self._why_not_replaced(number)) is not None:
                if not self._signals.stop.is_set():
                    _log.error("the roll has stopped at worker %d: its next process %s", number, why)
                return
        _log.info("all %d workers were replaced", self._given.workers)

    async def _why_not_replaced(self, number: int) -> str | None:
        """Replace the process of this place; the reason, if that failed."""
        before = self._workers.get(number)
        worker = self._next[number] = await self._start(number, before, late=True)
        if before is not None and before.process.returncode is not None:  # meanwhile
            self._reset_listener(worker)
        assert worker.ended is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_WITHIN):
                await worker.changed.wait()
        if not worker.ready or worker.process.returncode is not None:
            why = await self._give_up(worker)
            return f"({worker.process.pid}): {why}; the workers that were not replaced go on"
        before = self._workers.get(number)
        if before is None or before is worker:  # that has ended by itself: the place is empty, or this one's
            return None
        del self._next[number]
        self._take_place(worker)
        await self._gather()  # what the one before has counted until now
        _log.info("%s drains: process %d is in its place", before, worker.process.pid)
        await asyncio.wait({self._drain(before), worker.ended}, return_when=asyncio.FIRST_COMPLETED)
        if worker.ended.done():
            ended = how_it_ended(worker.ended.result())
            return f"({worker.process.pid}): {ended} while process {before.process.pid} drained; another one is started"
        assert before.ended is not None
        code = await asyncio.shield(before.ended)
        _log.log(logging.ERROR if code else logging.INFO, "%s %s", before, how_it_ended(code))
        return None

    async def _give_up(self, worker: WorkerProcess) -> str:
        """End the process of a roll that is not ready; the reason for that."""
        assert worker.ended is not None
        late = worker.process.returncode is None
        if late:
            worker.kill()
        code = await asyncio.shield(worker.ended)
        if self._next.get(worker.number) is worker:  # else it has taken the place of one that has ended
            del self._next[worker.number]
        return worker.refused or (f"was not ready within {READY_WITHIN:g} s" if late else how_it_ended(code))

    # -- events --------------------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        await self._signals.stop.wait()
        self._changed.set()
        self._listener.close()  # the workers accept what is in the queue of one that they share
        for worker in list(self._alive):
            worker.close_listener()
            if worker.ready:
                worker.terminate()
            else:  # it has no drain_timeout yet, and may ignore the signal
                self._drain(worker)

    async def _hurry(self) -> None:
        await self._signals.hurry.wait()
        for worker in self._alive:
            worker.tell(Hurry())

    async def _watch(self, changes: Callable[[], AsyncIterator[Path]]) -> None:
        async for path in changes():
            _log.warning("%s has changed: the app is started again", path)
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
            for worker in self._alive:
                worker.terminate()


def cannot_roll() -> None:
    """Tell that SIGUSR2 has no effect."""
    _log.warning("SIGUSR2 has no effect: to replace workers, serve with --workers of at least 2 and without --reload")


async def _until_changed(changed: asyncio.Event, code: int) -> None:
    if not changed.is_set():
        _log.error("the app's process %s; it is started again when a file changes", how_it_ended(code))
    await changed.wait()


def next_delay(before: float, lasted: float) -> float:
    """Seconds until a worker is started again.

    Args:
        before: Seconds that it took the last time; 0: it is the first time.
        lasted: Seconds that it was ready.
    """
    if lasted >= STEADY or not before:
        return FIRST_DELAY
    return min(2 * before, LONGEST_DELAY)
