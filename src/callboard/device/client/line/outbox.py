"""``Outbox``: the queue of calls that are not sent yet, in order, and when they are sent.

Calls made in one iteration of the loop are sent together. The first of them is sent at once, and so are all calls to a
host on the loop's own thread.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident

import msgspec

from callboard.actors.loops.posting import post
from callboard.device import forkguard
from callboard.device.client.line.entries import Gate, sendable
from callboard.device.client.line.releases import Releases
from callboard.device.protocol.messages import ActorCall, Call, Calls
from callboard.device.supervision.hosts.base import Host

__all__ = ["Outbox"]

FIRST = 8
"""Queued calls at which a burst is sent before the loop's next iteration: few at first, so that the host begins early,
then up to ``Host.batch``."""
AWAITED = 4
"""Queued calls that are executed here, where their work is short, when the last of them is awaited."""
TOGETHER = 512
"""The same if batches are searched for repeated chains."""
PAUSE = 2e-3
"""Seconds that calls of other threads than the loop's are kept then, for more to be sent with them, unless one is
awaited; and that small buffers wait to be freed beside calls that are executed one by one."""
LOOP_TURN = 1e-3
"""Seconds after which the loop gets an iteration, however short the ops that are awaited in a row; ``linger`` seconds
if that is longer."""


class Outbox:
    """Ops and resident actors' calls on their way to the host of one device.

    Args:
        loop: The device's loop; its thread sends.
        name: Name of the device.
        linger: Seconds to poll for the only op in flight before the loop continues.

    Attributes:
        host: The host to send to; None while no context is ready.
        here: True if the host admits on the loop's thread, so that batching gains nothing.
        queue: Items that are not sent yet.
        released: Buffers whose last ref was dropped.
        wanted: The last of the queued calls is awaited: they are executed here if they are short. A burst is not, so
            that the host works while calls are made.
        scheduled: Calls were queued in this iteration of the loop, which flushes them in the next.
        thread: Id of the loop's thread.
        shorten: Returns the calls to send in place of calls that are sent together; None: they are sent unchanged.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, linger: float) -> None:
        self.host: Host | None = None
        self.here = False
        self.queue: deque[Call | ActorCall | Gate] = deque()
        self.released = Releases()
        self.thread = get_ident()
        self.shorten: Callable[[list[Call]], list[Call]] | None = None
        self._loop = loop
        self._name = name
        self._linger = linger
        self._in_vain = self._pauses = 0
        self.scheduled = self._paused = self.wanted = False
        self._scheduled_at = 0.0
        self._later: asyncio.TimerHandle | None = None
        self._burst = FIRST
        self._forked = False
        self.released.watch(loop, self._on_release)

    # -- in ------------------------------------------------------------------------------------------------------------

    def send(self, call: Call) -> bool:
        """Send a call at once; False if it has to queue (:meth:`add`)."""
        if get_ident() != self.thread or (self.shorten is not None and not self.here):
            return False
        if self.queue or self.released.pressing:
            self.flush()
            if self.queue:
                return False
        host = self.host
        return host is not None and (host.execute(call) or host.admit(call))

    def post_first(self, call: ActorCall) -> bool:
        """Send the only resident actor's call in flight at once; False if it has to queue (:meth:`add`)."""
        if self.here or get_ident() != self.thread:
            return False
        if self.queue or self.released.pressing:
            self.flush()
            if self.queue:
                return False
        host = self.host
        if host is None:
            return False
        host.post(call)
        return True

    def add(self, item: Call | ActorCall) -> None:
        """Queue an item, after the frees made before. Any thread."""
        if self.released.pressing:
            self._free()
        self.queue.append(item)

    def want(self) -> None:
        """The last of the queued calls is awaited. Any thread."""
        self.wanted = len(self.queue) <= AWAITED

    def remind(self) -> None:
        """Have the loop flush in its next iteration; send part of a long burst before that. Any thread."""
        if self.shorten is not None:
            self._remind_together()
        elif not self.scheduled:
            self._schedule()
        elif len(self.queue) >= self._burst and self.host is not None and get_ident() == self.thread:
            self._burst = min(2 * self._burst, self.host.batch)
            self.flush()

    def _remind_together(self) -> None:
        """Like :meth:`remind`, while calls are held back to be sent with the following ones."""
        here = get_ident() == self.thread
        if len(self.queue) >= TOGETHER:
            self.flush()
        elif here and not self.scheduled:
            self._schedule()
        elif not here and not self._paused:
            self._paused = True
            try:
                post(self._loop, self._loop.call_later, PAUSE, self._pause_ended)
            except BaseException:  # Ctrl-C, too, as in _schedule
                self._paused = False
                raise

    def _pause_ended(self) -> None:
        self._paused = False
        self.flush()

    def hold(self, gate: Gate) -> None:
        """Hold back everything queued from now on until the gate is open."""
        self.queue.append(gate)

    def open(self, gate: Gate) -> None:
        """Open a gate; any thread."""
        gate.is_open = True
        post(self._loop, self.flush)

    def withdraw(self, op: int) -> bool:
        """Mark the item with this id as cancelled; False if it has been sent. On the loop's thread."""
        for i, item in enumerate(list(self.queue)):  # other threads may append meanwhile, but not remove
            if isinstance(item, Call | ActorCall) and item.id == op != 0:  # a free has no id
                self.queue[i] = msgspec.structs.replace(item, withdrawn=True)
                return True
        return False

    def holds(self, op: int) -> bool:
        """True if the item with this id has not been sent. On the loop's thread."""
        return any(isinstance(item, Call | ActorCall) and item.id == op for item in list(self.queue))

    @property
    def held(self) -> bool:
        """True if a closed gate holds back what is queued."""
        try:
            first = self.queue[0]
        except IndexError:
            return False
        return isinstance(first, Gate) and not first.is_open

    # -- out -----------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send queued calls, if a context is ready; on another thread, have the loop do it."""
        if self._forked:
            raise forkguard.forked_error(f"device {self._name}")
        if get_ident() != self.thread:
            if not self.scheduled:
                self._schedule()
            return
        host = self.host
        if host is not None and self.shorten is None and (self.wanted or len(self.queue) == 1):
            self.wanted = False
            while self.queue and type(call := self.queue[0]) is Call and host.execute(call):
                self.queue.popleft()
                self._free_later()
        if self.released.ids and (self.queue or self._later is None or self.released.pressing):
            self._free()
        if host is None or not self.queue:
            return
        if len(self.queue) == 1 and type(call := self.queue[0]) is Call and not call.id and host.execute(call):
            self.queue.popleft()  # frees, for which no thread is woken
            return
        for message in sendable(self.queue):
            if self.shorten is not None and not self.here and isinstance(message, Calls):
                message = Calls(self.shorten(message.calls))
            host.post(message)

    def hurry(self) -> None:
        """Flush for an await; take the completions of calls that have been executed here, if no iteration is due."""
        self.flush()
        if self.host is not None and get_ident() == self.thread and not self._turn_due():
            self.host.deliver()

    def flush_all(self) -> None:
        """Flush, with the buffers that wait for others to be freed with them."""
        self.released.pressing = True
        self.flush()

    def linger(self, done: Callable[[], bool]) -> None:
        """Poll for the completion of the only op in flight, for at most the configured time.

        If an iteration of the loop is due, it comes first: awaiting op after op must not starve other tasks. Where ops
        take longer than the configured time, polls seldom: each failed poll doubles the number of awaits that skip
        polling.
        """
        if self._polls():
            if self._turn_due():
                self._loop.call_soon(self._linger_now, done)
            else:
                self._linger_now(done)

    @staticmethod
    def linger_together(waits: "Sequence[tuple[Outbox, Callable[[], bool]]]") -> None:
        """Like :meth:`linger`, for ops of several devices, each the only one in flight there.

        Messages are taken in the order in which they come. Does nothing unless all of the devices can be polled.
        """
        able = [outbox._polls() for outbox, _ in waits]
        if waits and all(able):
            if any(outbox._turn_due() for outbox, _ in waits):
                waits[0][0]._loop.call_soon(_linger_now, waits)
            else:
                _linger_now(waits)

    def _polls(self) -> bool:
        """Whether an await may poll; counts one that skips polling."""
        if self.host is None or not self._linger or get_ident() != self.thread:
            return False
        if self._pauses:
            self._pauses -= 1
            return False
        return True

    def _turn_due(self) -> bool:
        return time.perf_counter() - self._scheduled_at >= max(LOOP_TURN, self._linger)

    def _linger_now(self, done: Callable[[], bool]) -> None:
        if self.host is not None and not done():
            self._count(self.host.linger(done, self._linger))

    def _count(self, came: bool) -> None:
        self._pauses = self._in_vain = 0 if came else min(64, 2 * self._in_vain + 1)

    def poll(self) -> None:
        """Take the messages that have come. On another thread than the loop's, does nothing."""
        if self.host is not None and get_ident() == self.thread:
            self.host.linger(lambda: False, 0.0)

    def _schedule(self) -> None:
        self.scheduled = self.released.due = True
        self._scheduled_at = time.perf_counter()
        try:
            if get_ident() == self.thread:
                self._loop.call_soon(self._turn)
            else:
                post(self._loop, self._turn)
        except BaseException:  # Ctrl-C, too: one turn too many does no harm, one that never comes holds back all calls
            self.scheduled, self.released.due = False, self._later is not None
            raise

    def _turn(self) -> None:
        """Flush at the end of a burst, in an iteration of the loop."""
        # First: items that are queued, and buffers that are released from now on are not of this turn.
        self.scheduled = False
        self.released.due = self._later is not None
        self._burst = FIRST
        self.flush()

    def _free(self) -> None:
        """Queue the frees of released buffers, after every call that named them."""
        self.released.pressing = False
        released = self.released.ids
        buffers = []
        try:
            while True:
                buffers.append(released.popleft())
        except IndexError:
            pass
        if buffers:
            self.queue.append(Call(0, b"", [], [], buffers))

    def _free_later(self) -> None:
        """Free small buffers in a moment: beside ops that are awaited one by one, each free would cost as much."""
        if self._later is None and not self.released.pressing:
            self.released.due = True
            self._later = self._loop.call_later(PAUSE, self._free_now)

    def _free_now(self) -> None:
        self._later = None
        self.released.due = self.scheduled
        self.flush()

    def _on_release(self) -> None:
        self.released.rearm()
        if not self.scheduled:
            self.flush()

    # -- hosts come and go ---------------------------------------------------------------------------------------------

    def ready(self, host: Host) -> None:
        """Send the queued items and all later ones to this host."""
        self.host = host
        self.here = host.here
        self.flush()

    def lose(self) -> None:
        """The host is lost: drop its queued items and frees."""
        self.host = None
        self.here = False
        self.released.ids.clear()
        self.queue = deque()  # not cleared: other threads may be appending

    def close(self) -> None:
        """Detach from the loop."""
        self.released.close(self._loop)

    def after_fork(self) -> None:
        """In a forked child: send nothing, and leave the loop alone, because its wake-up descriptor is the parent's."""
        self._forked = True
        self.released.close()


def _linger_now(waits: Sequence[tuple[Outbox, Callable[[], bool]]]) -> None:
    """Read the lines in turn until all ops are done, for the shortest of the configured times at most."""
    until = time.perf_counter() + min((outbox._linger for outbox, _ in waits), default=0.0)
    left = list(waits)
    while left and time.perf_counter() < until:
        left = [(o, done) for o, done in left if o.host is not None and not done() and not o.host.linger(done, 0.0)]
    for outbox, done in waits:
        outbox._count(done())
