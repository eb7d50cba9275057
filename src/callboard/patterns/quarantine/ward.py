"""``Ward``: the requests of a server, each of them run by a quarantine."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from callboard.core.errors import ContextLost
from callboard.device.client.line.port import request_key
from callboard.patterns.quarantine.guard import Quarantine
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.errors import DeadlineExceeded, ItemTooLarge, QueueFull

__all__ = ["Ward", "Warded"]


class Warded(Protocol):
    """The interface of a server that a ward uses."""

    def admit_warded(self, entry: Entry, *, again: bool, may_block: bool) -> None:
        """Queue an entry: a new one, which may be refused by raising, or one that has run, at its old place."""

    async def run_on_spare(self, entry: Entry, spare: Any) -> None:
        """Run an entry alone elsewhere, to its end; raises ``ContextLost`` without ending it."""

    def fail_warded(self, entry: Entry, error: Exception, reason: str) -> None:
        """End an entry in an error; nothing happens if it has ended."""


class Ward:
    """Takes each request of a server through a quarantine: it is queued when its turn comes, and again after a loss.

    An entry has an *attempt* while it waits in the server's queue and runs: a future that receives the result of the
    run. It outlives the entry, since a run continues when its caller has left.

    Args:
        quarantine: Quarantine that decides which requests run together and which are refused. Its ``target`` is not
            used.
        key_of: Key of an item; None: that of the caller's :func:`callboard.request_key`, or one of its own.
        name: Name of the server, for keys.
        server: Runs the entries.
    """

    def __init__(
        self, quarantine: Quarantine[Any], key_of: Callable[[Any], str] | None, name: str, server: Warded
    ) -> None:
        self._quarantine = quarantine
        self._key_of = key_of
        self._name = name
        self._server = server
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._attempts: dict[int, asyncio.Future[None]] = {}
        self._runs: dict[int, int] = {}

    def key(self, entry: Entry) -> str:
        """The key of a new entry; called where its caller is.

        Raises:
            TypeError: It is not a str.
            Exception: Raised by the user's function.
        """
        found: object = request_key.get() if self._key_of is None else self._key_of(entry.item)
        if found is None:
            return f"{self._name}:{entry.number}"
        if not isinstance(found, str):
            raise TypeError(
                f"quarantine_key returned {found!r}; it must be a str, as it appears in errors and in the log"
            )
        return found

    def enter(self, entry: Entry, key: str, *, may_block: bool) -> None:
        """A new entry: it is queued when its turn has come."""
        self._tasks[entry.number] = asyncio.get_running_loop().create_task(self._run(entry, key, may_block))

    async def _run(self, entry: Entry, key: str, may_block: bool) -> None:
        number = entry.number
        try:
            await self._quarantine.run(key, lambda target: self._attempt(entry, target, may_block))
        except Exception as e:  # an error of the run, or of the quarantine: requests that have not ended fail with it
            reasons: dict[type[Exception], str] = {
                QueueFull: "rejected",
                ItemTooLarge: "rejected",
                DeadlineExceeded: "expired",
            }
            self._tasks.pop(number, None)
            self._server.fail_warded(entry, e, reasons.get(type(e), "failed"))
        finally:
            self._tasks.pop(number, None)
            self._runs.pop(number, None)

    async def _attempt(self, entry: Entry, target: Any, may_block: bool) -> None:
        if entry.state is State.ENDED:
            raise asyncio.CancelledError
        again = entry.number in self._runs
        self._runs[entry.number] = self._runs.get(entry.number, 0) + 1
        if self._quarantine.spare is not None and target is self._quarantine.spare:
            await self._server.run_on_spare(entry, target)
            return
        attempt = self._attempts[entry.number] = asyncio.get_running_loop().create_future()
        try:
            self._server.admit_warded(entry, again=again, may_block=may_block)
        except BaseException:  # it was refused
            del self._attempts[entry.number]
            raise
        await attempt

    def ran(self, entry: Entry, error: Exception | None = None) -> bool:
        """Note that a run of an entry is over; returns whether the quarantine decides about a further run.

        The entry itself may have ended before.
        """
        attempt = self._attempts.pop(entry.number, None)
        if attempt is None or attempt.done():
            return False
        if error is None:
            attempt.set_result(None)
            return False
        attempt.set_exception(error)
        if not isinstance(error, ContextLost) or entry.state is not State.RUNNING:
            return False
        entry.state = State.NEW
        return True

    def closed(self, entry: Entry, *, ran: bool) -> None:
        """An entry has ended: if it did not run, nothing of it is left behind."""
        if ran:
            return
        attempt = self._attempts.pop(entry.number, None)
        if attempt is not None:
            attempt.cancel()
        elif (task := self._tasks.get(entry.number)) is not None:
            task.cancel()

    async def end(self) -> None:
        """The server has stopped: end waiting entries."""
        for attempt in self._attempts.values():
            attempt.cancel()
        self._attempts.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
