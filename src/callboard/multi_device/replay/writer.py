"""Group commit: callers append to a queue, and one thread writes the gathered records.

Each write makes its records durable at once.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from callboard.actors.errors import returned
from callboard.multi_device.replay.entries import Gap, encode
from callboard.multi_device.replay.errors import JournalFailed
from callboard.multi_device.replay.journals.protocol import Journal, Recovered

__all__ = ["JournalStats", "JournalWriter", "OnFailure"]

_log = logging.getLogger("callboard.replay")

OnFailure = Literal["fail", "degrade"]
GROUP = 8192
"""Records that one write takes at most."""
STALL = 2.0
"""Seconds for which a full queue may hold a caller."""


@dataclass(frozen=True, slots=True)
class JournalStats:
    """Figures of a recording.

    Attributes:
        recorded: Records that are durable.
        pending: Records that are not written yet.
        lost: Records that a failed journal did not take.
        groups: Writes.
        failure: The reason why it does not record now, "" while it does.
        recovered: State of the journal when it was opened.
    """

    recorded: int
    pending: int
    lost: int
    groups: int
    failure: str
    recovered: Recovered


class JournalWriter:
    """Writes records to a journal on a thread.

    Args:
        journal, identity: Journal, and identity in it, to write to.
        on_failure: ``"fail"``: once the journal has failed, :meth:`put` raises. ``"degrade"``: records are counted as
            lost, with an error in the log, until the journal works again; a :class:`.Gap` then stands in their place.
        linger: Seconds to gather more records after the first, and after each write while records keep coming. A
            process that is killed loses the records of this time and those of the write under way: all that
            :meth:`flush` has not confirmed. More than that waits only where callers record faster than the journal
            writes, up to ``max_pending``.
        max_pending: Records that wait at most; a caller beyond that is held for up to :data:`STALL` seconds.
        retry: Seconds between attempts while degraded.
        told: Called with each failure and with None when it has ended, on the writer's thread.
    """

    def __init__(
        self,
        journal: Journal,
        identity: str,
        *,
        on_failure: OnFailure = "fail",
        linger: float = 0.05,
        max_pending: int = 1 << 18,
        retry: float = 1.0,
        told: Callable[[JournalFailed | None], object] | None = None,
    ) -> None:
        if on_failure not in ("fail", "degrade"):
            raise ValueError(f"on_failure is {on_failure!r}; use 'fail' or 'degrade'")
        if max_pending < 1 or not linger >= 0 or not retry > 0:
            raise ValueError(f"max_pending {max_pending}, linger {linger} and retry {retry} must be positive")
        self.journal = journal
        self.failure: JournalFailed | None = None
        self._identity = identity
        self._on_failure = on_failure
        self._linger = linger
        self._max_pending = max_pending
        self._retry = retry
        self._told = told
        self._queue: deque[bytes] = deque()
        self._put = self._queue.append
        self._asleep = False
        self._wake = threading.Event()
        self._urgent = threading.Event()
        self._progress = threading.Condition()
        self._writing = 0
        self._goal = 0  # records up to which nothing more is gathered
        self._next = 1
        self._recorded = self._groups = self._lost = self._unsaid = 0
        self._ending = False
        self._recovered = Recovered()
        self._thread: threading.Thread | None = None

    def start(self) -> Recovered:
        """Open the journal and start the thread.

        Raises:
            Exception: Raised by opening the journal.
        """
        opened: list[Recovered | BaseException] = []
        ready = threading.Event()

        def run() -> None:
            try:
                found: object = self.journal.open(self._identity)
                if not isinstance(found, Recovered):
                    raise returned("open of the journal", found, "a callboard.multi_device.replay.Recovered")
                opened.append(found)
            except BaseException as e:  # raised by start()
                opened.append(e)
                return
            finally:
                ready.set()
            self._run()

        self._ending = False
        self._thread = threading.Thread(target=run, name=f"journal {self._identity}", daemon=True)
        self._thread.start()
        ready.wait()
        found = opened[0]
        if isinstance(found, BaseException):
            self._thread.join()
            self._thread = None
            raise found
        self._recovered, self._next = found, found.last + 1
        if found.cut:
            _log.warning("journal %s: %d bytes were cut off: %s", self._identity, found.cut, found.reason)
        return found

    # -- any thread ----------------------------------------------------------------------------------------------------

    def put(self, record: bytes) -> None:
        """Queue a record.

        Raises:
            JournalFailed: The journal has failed or is not open, and the policy is ``fail``; or it keeps up no longer.
        """
        if self.failure is not None or self._thread is None:
            self._refuse(1)
            return
        self._put(record)
        if self._asleep:
            self._asleep = False
            self._wake.set()
        if len(self._queue) > self._max_pending:
            self._hold()

    def check(self) -> None:
        """Raise what :meth:`put` would raise now.

        Raises:
            JournalFailed
        """
        if (self.failure is not None or self._thread is None) and self._on_failure == "fail":
            self._refuse(0)

    def _refuse(self, count: int) -> None:
        failure = self.failure
        if failure is None:
            text = f"the journal {self._identity} is not open: a harness records from its start to its stop"
            failure = JournalFailed(text)
            if self._on_failure != "fail" and not self._unsaid:
                _log.error("%s; what is to be recorded is lost", text)
        if self._on_failure == "fail":
            raise JournalFailed(str(failure)) from failure.__cause__
        with self._progress:
            self._lost += count
            self._unsaid += count

    def _hold(self) -> None:
        with self._progress:
            self._hasten()  # a full queue gathers nothing more
            in_time = self._progress.wait_for(
                lambda: len(self._queue) <= self._max_pending or self.failure is not None, STALL
            )
        if not in_time:
            self._fail(TimeoutError(f"{len(self._queue)} records wait, and none was written for {STALL:g} s"))

    def flush(self, timeout: float | None = 30.0) -> None:
        """Wait until earlier records are durable, or known to be lost.

        Raises:
            JournalFailed: It was not written, and the policy is ``fail``.
            TimeoutError: It took longer.
        """
        if threading.current_thread() is self._thread:
            return  # in `told`: this thread writes
        with self._progress:
            goal = self._hasten()
            self._wake.set()
            reached = self._progress.wait_for(lambda: self._recorded + self._lost >= goal, timeout)
        if self.failure is not None and self._on_failure == "fail":
            raise JournalFailed(str(self.failure)) from self.failure.__cause__
        if not reached:
            raise TimeoutError(f"the journal {self._identity} did not take its records within {timeout:g} s")

    def _hasten(self) -> int:
        """Have all that waits written without gathering more; the number of records then. Holds the lock."""
        goal = self._recorded + self._lost + self._writing + len(self._queue)
        self._goal = max(self._goal, goal)
        self._urgent.set()
        return goal

    async def committed(self, timeout: float | None = 30.0) -> None:
        """The same without blocking the loop."""
        await asyncio.to_thread(self.flush, timeout)

    @property
    def stats(self) -> JournalStats:
        """Figures so far."""
        with self._progress:
            return JournalStats(
                self._recorded,
                len(self._queue) + self._writing,
                self._lost,
                self._groups,
                "" if self.failure is None else str(self.failure),
                self._recovered,
            )

    def close(self, timeout: float = 30.0) -> None:
        """Write the waiting records and close the journal.

        Raises:
            JournalFailed, TimeoutError: As for :meth:`flush`; the journal is closed all the same.
        """
        if self._thread is None:
            return
        try:
            self.flush(timeout)
        finally:
            self._ending = True
            self._wake.set()
            self._urgent.set()
            self._thread.join(timeout)
            self._thread = None

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._ending or self._queue:
                if self._linger and len(self._queue) < GROUP and self._recorded + self._lost >= self._goal:
                    self._urgent.wait(self._linger)  # behind a write, too: a stream of records wakes it once a group
                self._urgent.clear()
                if self._queue:
                    self._write()
                else:
                    self._sleep()
        finally:
            try:
                self.journal.close()
            except Exception:  # of any class: it is a user's
                _log.exception("the journal %s could not be closed", self._identity)

    def _sleep(self) -> None:
        self._asleep = True
        # Append first, then read the flag; here the flag is set first, and then the queue read: none is overlooked.
        if not self._queue and not self._ending:
            recovering = self.failure is not None and self._on_failure == "degrade"
            self._wake.wait(self._retry if recovering else None)
            if recovering and not self._ending:
                self._try_again()
        self._asleep = False
        self._wake.clear()

    def _write(self) -> None:
        queue = self._queue
        with self._progress:  # flush() counts queued records and those being written
            group = [queue.popleft() for _ in range(min(GROUP, len(queue)))]
            self._writing = len(group)
        if self.failure is not None:  # it failed while these were put
            self._settle(0, len(group))
            return
        try:
            self.journal.append(self._next, group)
        except BaseException as e:  # of any class: a journal is a user's, and this thread has to go on
            self._fail(e)  # before flush() may return
            self._settle(0, len(group))
            return
        self._next += len(group)
        self._settle(len(group), 0)

    def _settle(self, recorded: int, lost: int) -> None:
        with self._progress:
            self._writing = 0
            self._recorded += recorded
            self._groups += 1 if recorded else 0
            self._lost += lost
            self._unsaid += lost
            self._progress.notify_all()

    def _fail(self, error: BaseException) -> None:
        failure = JournalFailed(f"the journal {self._identity} failed: {type(error).__name__}: {error}")
        failure.__cause__ = error
        with self._progress:
            first, self.failure = self.failure is None, failure
            self._progress.notify_all()
        if first:
            what = "is refused" if self._on_failure == "fail" else "is lost until it works again"
            _log.error("%s; what is to be recorded %s", failure, what)
            self._tell(failure)

    def _tell(self, failure: JournalFailed | None) -> None:
        if self._told is not None:
            try:
                self._told(failure)
            except Exception:  # of any class: the hook is a user's, and the thread has to go on
                _log.exception("the hook `told` of the journal %s failed", self._identity)

    def _try_again(self) -> None:
        """Open it again: the remains of a failed write are cut off, and the gap is reported."""
        with self._progress:
            lost, reason = self._unsaid, str(self.failure)
        try:
            self.journal.close()
            found = self.journal.open(self._identity)
            self.journal.append(found.last + 1, [encode(Gap(lost, reason))])
        except Exception as e:  # of any class, as above
            _log.debug("the journal %s still fails: %r", self._identity, e)
            return
        with self._progress:
            self._next = found.last + 2
            self._unsaid -= lost
            self.failure = None
        _log.warning("the journal %s works again; %d records are lost", self._identity, lost)
        self._tell(None)
