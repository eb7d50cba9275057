"""``Pump``: a thread that drains the ring and passes the events on. Nothing that writes an event waits for it."""

import threading
from collections.abc import Callable

from callboard.events.forking import after_fork
from callboard.events.ring import EVENTS, Event, Ring
from callboard.events.tracing import Sampler
from callboard.telemetry.logs import complain

__all__ = ["Pump", "Take"]

Take = Callable[[list[Event]], object]

INTERVAL = 0.05
"""Seconds between two drains of the ring."""

CHUNK = 8192
"""Most events that are taken at once: no other thread runs for as long as that takes, which is less than 1 ms."""

END = 2.0
"""Seconds that exporters get at the end for what they have begun."""


class Pump:
    """Drains the ring every 50 ms and calls the subscribers, on a thread of its own. A process has one at most.

    Args:
        capacity: The most events that wait; older ones are dropped and counted.

    Attributes:
        ring: The ring, to which the hooks write until :meth:`close`.
    """

    _running: "Pump | None" = None
    _guard = threading.Lock()
    """Guards who uses it, and who takes events: systems of several threads come and go. Held for a moment only."""

    def __init__(self, capacity: int) -> None:
        self.ring = Ring(capacity)
        self._takes: tuple[tuple[Take, bool, Sampler | None], ...] = ()  # and what each wants of the hooks
        self._users = 0
        self._lock = threading.RLock()  # one drain at a time, so that events keep their order
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="callboard-telemetry", daemon=True)

    @classmethod
    def open(cls, capacity: int) -> "Pump":
        """The process's pump, for one more user; the first user's capacity holds."""
        with cls._guard:
            pump = cls._running
            if pump is None:
                pump = cls._running = Pump(capacity)
                EVENTS.ring = pump.ring
                pump._thread.start()
            pump._users += 1
            return pump

    def subscribe(self, take: Take, *, ops: bool = True, sampler: Sampler | None = None) -> Callable[[], None]:
        """Call ``take`` with each list of events from now on; the result ends that.

        Args:
            take: Is called on the pump's thread.
            ops: Have a call and a completion of every op written; otherwise there may be none of these events.
            sampler: Have it begin a trace context for each request, and the calls written of ops that sampled requests
                cause. The first one is asked.
        """
        with self._lock:
            self.flush()  # what was written before is not for it
            with self._guard:
                self._takes = (*self._takes, (take, ops, sampler))
                self._want()

        def end() -> None:
            self._remove(take)

        return end

    def _remove(self, take: Take) -> None:
        with self._guard:  # not the lock of a drain: an exporter may hang
            self._takes = tuple(each for each in self._takes if each[0] is not take)
            self._want()

    def _want(self) -> None:
        if EVENTS.ring is self.ring:
            EVENTS.ops = any(ops for _, ops, _ in self._takes)
            EVENTS.sampler = next((sampler for _, _, sampler in self._takes if sampler is not None), None)

    def flush(self, timeout: float = -1) -> bool:
        """Pass on everything that was written before. Any thread.

        Args:
            timeout: Seconds to wait for a drain that is under way; -1: until it has ended.

        Returns:
            False: the wait was too long, and nothing has been done.
        """
        if not self._lock.acquire(timeout=timeout):
            return False
        try:
            left = len(self.ring)  # what is written meanwhile must not keep this going for ever
            while left > 0 and (events := self.ring.drain(min(left, CHUNK))):
                left -= len(events)
                for take, _, _ in self._takes:
                    self._pass(take, events)
        finally:
            self._lock.release()
        return True

    def _pass(self, take: Take, events: list[Event]) -> None:
        try:
            take(events)
        except Exception as e:  # of an exporter: the others still get theirs
            complain(f"{_exporter(take)} failed, and gets no more events: {e}", exc_info=not isinstance(e, OSError))
            self._remove(take)

    def _run(self) -> None:
        while not self._ending.wait(INTERVAL):
            if self.ring:
                self.flush()

    def close(self) -> None:
        """Pass on what has been written; after the last user, have the hooks write no more, and end.

        Waits for an exporter that is at work for 2 s at most.
        """
        with self._guard:
            self._users -= 1
            if not self._users:
                if Pump._running is self:
                    Pump._running = None
                    EVENTS.off()
                self._ending.set()
        if not self.flush(END):
            complain(f"an exporter of events does not end; {len(self.ring)} events are not exported")


def _exporter(take: Take) -> str:
    """What a method or a function belongs to."""
    owner = getattr(take, "__self__", None)
    return repr(take) if owner is None else f"the exporter {type(owner).__name__}"


def _forked() -> None:
    """A forked child has no thread that drains the ring."""
    Pump._running, Pump._guard = None, threading.Lock()
    EVENTS.off()


after_fork(_forked)
