"""``QuarantineAdapter``: the requests of a server, watched by a quarantine."""

import asyncio
from typing import Any, Protocol

from callboard.actors.clock import Clock
from callboard.core.errors import ContextLost
from callboard.patterns.quarantine.guard import Quarantine, is_loss
from callboard.patterns.quarantine.keyring import Keyring
from callboard.patterns.quarantine.keys import Identity
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.errors import DeadlineExceeded, ItemTooLarge, QueueFull

__all__ = ["QuarantineAdapter", "QuarantinedServer"]


class QuarantinedServer(Protocol):
    """The interface of a server that an adapter uses."""

    name: str
    _clock: Clock

    def admit_quarantined(self, entry: Entry, *, again: bool, may_block: bool) -> None:
        """Queue an entry: a new one, which may be refused by raising, or one that has run, at its old place."""

    async def run_on_spare(self, entry: Entry, spare: Any) -> None:
        """Run an entry alone elsewhere, to its end; raises ``ContextLost`` without ending it."""

    def fail_quarantined(self, entry: Entry, error: Exception, reason: str) -> None:
        """End an entry in an error; nothing happens if it has ended."""


class QuarantineAdapter:
    """Takes the requests of a server through a quarantine.

    A request that nothing is held against is *clear*: it is queued at once, and costs a count. Where it fails by a lost
    context, or others do, the quarantine decides when it runs: a task queues it when its turn comes. Such an entry has
    an *attempt* while it waits in the server's queue and runs: a future that receives the result of the run. It
    outlives the entry, since a run continues when its caller has left.

    Args:
        quarantine: Quarantine that decides which requests run together and which are refused. Its ``target`` is not
            used.
        server: Runs the entries.

    Attributes:
        keyring: The keys of its requests.
    """

    def __init__(self, quarantine: Quarantine[Any], server: QuarantinedServer) -> None:
        self._quarantine = quarantine
        self.keyring = Keyring(quarantine.item_key, server.name)
        self._server = server
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._attempts: dict[int, asyncio.Future[None]] = {}
        self._runs: dict[int, int] = {}

    @property
    def quarantine(self) -> Quarantine[Any]:
        """Decides which requests run together and which are refused."""
        return self._quarantine

    @property
    def idle(self) -> bool:
        """True if all requests that wait or run are clear."""
        return not self._attempts

    def enter(self, entry: Entry, *, may_block: bool) -> None:
        """A new entry: it is queued now, or when its turn has come. Called where its caller is.

        Raises:
            TypeError: The key is not a str.
            Exception: Raised by the user's function for keys, or the server's refusal.
        """
        self.keyring.read(entry)
        who = self.keyring.identity(entry) if self._quarantine.has_records else None
        if not self._quarantine.begin(who):
            self._start(entry, who or self.keyring.identity(entry), may_block=may_block)
            return
        entry.clear = True
        try:
            self._server.admit_quarantined(entry, again=False, may_block=may_block)
        except BaseException:  # it was refused
            entry.clear = False
            self._quarantine.end("failed")
            raise

    def pause(self, entry: Entry) -> bool:
        """A running request is to wait for its reader; False: others wait for its end."""
        if entry.clear:
            self._quarantine.pause()
        return entry.clear

    def resume(self, entry: Entry) -> None:
        """It goes on."""
        if entry.clear:
            self._quarantine.resume()

    # -- entries that are not clear --------------------------------------------------------------------------------

    def _start(self, entry: Entry, who: Identity, *, may_block: bool) -> None:
        self._tasks[entry.number] = asyncio.get_running_loop().create_task(self._run(entry, who, may_block))

    async def _run(self, entry: Entry, who: Identity, may_block: bool) -> None:
        number = entry.number
        try:
            await self._quarantine.run_as(
                who, lambda target: self._attempt(entry, target, may_block), again=number in self._runs
            )
        except Exception as e:  # an error of the run, or of the quarantine: requests that have not ended fail with it
            reasons: dict[type[Exception], str] = {
                QueueFull: "rejected",
                ItemTooLarge: "rejected",
                DeadlineExceeded: "expired",
            }
            self._tasks.pop(number, None)
            self._server.fail_quarantined(entry, e, reasons.get(type(e), "failed"))
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
            self._server.admit_quarantined(entry, again=again, may_block=may_block)
        except BaseException:  # it was refused
            del self._attempts[entry.number]
            raise
        await attempt

    # -- what a server tells -------------------------------------------------------------------------------------------

    def ran(self, entry: Entry, error: Exception | None = None) -> bool:
        """Note that a run of an entry is over; returns whether the quarantine decides about a further run.

        The entry itself may have ended before.
        """
        if entry.clear:
            return self._ran_clear(entry, error)
        attempt = self._attempts.pop(entry.number, None)
        if attempt is None or attempt.done():
            return False
        if error is None:
            attempt.set_result(None)
            return False
        attempt.set_exception(error)
        return self._goes_on(entry, error)

    def _ran_clear(self, entry: Entry, error: Exception | None) -> bool:
        entry.clear = False
        if not isinstance(error, ContextLost) or entry.state is State.ENDED:
            self._quarantine.end("completed" if error is None else "failed")
            return False
        who, again = self.keyring.identity(entry), self._goes_on(entry, error)
        self._quarantine.lost(who, error, again=again)
        if again:
            self._runs[entry.number] = 1
            self._start(entry, who, may_block=False)
        return again

    def _goes_on(self, entry: Entry, error: Exception) -> bool:
        if not is_loss(error) or entry.state is not State.RUNNING or entry.has_parts:
            return False
        entry.state = State.NEW
        entry.repeated = True
        return True

    def closed(self, entry: Entry, *, ran: bool) -> None:
        """An entry has ended: if it did not run, nothing of it is left behind."""
        if ran:
            return
        if entry.clear:
            entry.clear = False
            self._quarantine.end("cancelled")
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
