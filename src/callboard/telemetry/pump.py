"""``Pump``: a thread that drains the ring and passes the events on. Nothing that writes an event waits for it."""

import logging
import threading
from collections.abc import Callable

from callboard.events.ring import EVENTS, Event, Ring

__all__ = ["Pump", "Take"]

log = logging.getLogger("callboard.telemetry")

Take = Callable[[list[Event]], object]

INTERVAL = 0.05
"""Seconds between two drains of the ring."""

END = 2.0
"""Seconds that exporters get at the end for what they have begun."""


class Pump:
    """Drains the ring every 50 ms and calls the subscribers, on a thread of its own.

    Args:
        capacity: The most events that wait; older ones are dropped and counted.

    Attributes:
        ring: The ring, to which the hooks write from :meth:`start` to :meth:`close`.
    """

    def __init__(self, capacity: int) -> None:
        self.ring = Ring(capacity)
        self._takes: tuple[Take, ...] = ()
        self._lock = threading.RLock()  # one drain at a time, so that events keep their order
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="callboard-telemetry", daemon=True)

    def start(self) -> None:
        """Have the hooks write, and drain from now on."""
        EVENTS.ring = self.ring
        self._thread.start()

    def subscribe(self, take: Take) -> Callable[[], None]:
        """Call ``take`` with each list of events from now on; the result ends that."""
        with self._lock:
            self._takes = (*self._takes, take)

        def end() -> None:
            self._takes = tuple(each for each in self._takes if each is not take)

        return end

    def flush(self) -> None:
        """Pass on everything that was written before. Any thread; waits for a drain that is under way."""
        with self._lock:
            for _ in range(2):  # what is written while subscribers run must not keep this going for ever
                events = self.ring.drain(self.ring.maxlen or 0)
                if not events:
                    return
                for take in self._takes:
                    self._pass(take, events)

    def _pass(self, take: Take, events: list[Event]) -> None:
        try:
            take(events)
        except Exception:  # of an exporter: the others still get theirs
            log.exception("an exporter of events failed, and gets no more: %r", take)
            self._takes = tuple(each for each in self._takes if each is not take)

    def _run(self) -> None:
        while not self._ending.wait(INTERVAL):
            if self.ring:
                self.flush()

    def close(self) -> None:
        """Have the hooks write no more, and pass on what has been written; waits for an exporter for 2 s at most."""
        if EVENTS.ring is self.ring:
            EVENTS.ring = None
        self._ending.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(END)
        if self._thread.is_alive():
            log.error("an exporter of events does not end; %d events are not exported", len(self.ring))
        else:
            self.flush()
