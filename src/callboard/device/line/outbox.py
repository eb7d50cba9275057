"""``Outbox``: what has been called and not been sent, in order, and when it is sent.

Calls of one turn of the loop go together; the first of them, and those to a host on the loop's own thread, at once.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from threading import get_ident

import msgspec

from callboard.device import forkguard
from callboard.device.hosts.base import Host
from callboard.device.line.entries import Gate, sendable
from callboard.device.line.releases import Releases
from callboard.device.protocol import Call, Turn

__all__ = ["Outbox"]

FIRST, BATCH = 8, 64
"""Calls that are queued before a burst is sent without waiting for the loop's turn: few at first, so that the host
begins early, then more."""
LOOP_TURN = 1e-3
"""Seconds after which the loop gets its turn, however short the ops that are awaited in a row."""


class Outbox:
    """Calls and turns on their way to the host of one device.

    Args:
        loop: Whose thread sends.
        name: Of the device.
        linger: Seconds for which an op that is alone is looked for before the loop goes on.

    Attributes:
        host: Where they go; None while no context is ready.
        here: It admits on the loop's thread: calls gain nothing by being sent together.
        queue: Not sent yet.
        released: Buffers that nobody can name any more.
        thread: The loop's.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, linger: float) -> None:
        self.host: Host | None = None
        self.here = False
        self.queue: deque[Call | Turn | Gate] = deque()
        self.released = Releases()
        self.thread = get_ident()
        self._loop = loop
        self._name = name
        self._linger = linger
        self._in_vain = self._pauses = 0
        self._scheduled = False
        self._scheduled_at = 0.0
        self._burst = FIRST
        self._forked = False
        loop.add_reader(self.released, self._on_release)

    # -- in ------------------------------------------------------------------------------------------------------------

    def send(self, call: Call) -> bool:
        """Send a call at once; False: it has to queue (:meth:`add`)."""
        if get_ident() != self.thread:
            return False
        if self.queue or self.released.ids:
            self.flush()
            if self.queue:
                return False
        host = self.host
        return host is not None and host.admit(call)

    def add(self, item: Call | Turn) -> None:
        """Queue it, behind the frees made before. Any thread."""
        if self.released.ids:
            self._free()
        self.queue.append(item)

    def remind(self) -> None:
        """Something was sent or added: the loop takes its turn, and part of a long burst is sent before. Any thread."""
        if not self._scheduled:
            self._schedule()
        elif len(self.queue) >= self._burst and self.host is not None and get_ident() == self.thread:
            self._burst = min(2 * self._burst, BATCH)
            self.flush()

    def hold(self, gate: Gate) -> None:
        """Nothing queued from now on is sent before the gate is open."""
        self.queue.append(gate)

    def open(self, gate: Gate) -> None:
        """Open a gate; any thread."""
        gate.is_open = True
        self._loop.call_soon_threadsafe(self.flush)

    def withdraw(self, op: int) -> bool:
        """Mark what has this id as cancelled; False: it has been sent. On the loop's thread."""
        for i, item in enumerate(list(self.queue)):  # other threads may append meanwhile, none takes away
            if isinstance(item, Call | Turn) and item.id == op != 0:  # a free has no id
                self.queue[i] = msgspec.structs.replace(item, withdrawn=True)
                return True
        return False

    # -- out -----------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what is queued, if a context is there; on another thread, have the loop do it."""
        if self._forked:
            raise forkguard.forked_error(f"device {self._name}")
        if get_ident() != self.thread:
            if not self._scheduled:
                self._schedule()
            return
        if self.released.ids:
            self._free()
        host = self.host
        if host is None or not self.queue:
            return
        for message in sendable(self.queue):
            host.post(message)

    def linger(self, done: Callable[[], bool]) -> None:
        """Look for a moment for the verdict of the only op in flight.

        Not when the loop has been waiting for its turn: who asks and waits in a row must not keep it from others. And
        seldom where ops take longer than that: each look in vain doubles the number of times that nobody looks.
        """
        host = self.host
        if host is None or not self._linger or get_ident() != self.thread:
            return
        if time.perf_counter() - self._scheduled_at >= LOOP_TURN:
            return
        if self._pauses:
            self._pauses -= 1
            return
        came = host.linger(done, self._linger)
        self._pauses = self._in_vain = 0 if came else min(64, 2 * self._in_vain + 1)

    def _schedule(self) -> None:
        self._scheduled = True
        self._scheduled_at = time.perf_counter()
        if get_ident() == self.thread:
            self._loop.call_soon(self._turn)
        else:
            self._loop.call_soon_threadsafe(self._turn)

    def _turn(self) -> None:
        """Take the loop's own turn: the burst is over."""
        self._scheduled = False  # first: what is queued from now on asks for another
        self._burst = FIRST
        self.flush()

    def _free(self) -> None:
        """Queue the buffers that nobody can name any more, behind every call that named them."""
        released = self.released.ids
        buffers = []
        try:
            while True:
                buffers.append(released.popleft())
        except IndexError:
            pass
        if buffers:
            self.queue.append(Call(0, b"", [], [], buffers))

    def _on_release(self) -> None:
        self.released.rearm()
        if not self._scheduled:
            self.flush()

    # -- hosts come and go ---------------------------------------------------------------------------------------------

    def ready(self, host: Host) -> None:
        """Send what was accepted meanwhile, and what comes, to this host."""
        self.host = host
        self.here = host.here
        self.flush()

    def lose(self) -> None:
        """The host is gone, and with it what was to be sent and freed there."""
        self.host = None
        self.here = False
        self.released.ids.clear()
        self.queue = deque()  # another one: other threads may be adding

    def close(self) -> None:
        """Let go of the loop."""
        self._loop.remove_reader(self.released)
        self.released.close()

    def after_fork(self) -> None:
        """In a forked child: nothing is sent, and the loop, whose wake-up is the parent's, is left alone."""
        self._forked = True
        self.released.close()
