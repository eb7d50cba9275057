"""Parking: ops that cannot be launched yet, and the ops that have to stay behind them.

An op is parked while its plan is being prepared, while a resident actor's call holds one of its operands, or while
memory is being freed for it. Later ops that read its outputs or write its operands, and later ops of its library, park
behind it; all other ops continue.

An event (a plan is ready, a call has ended) concerns only the ops that wait for it, so parked ops cost other ops
nothing. An op first waits for the parked ops that it conflicts with, which are counted. When none are left, it waits
for one condition at a time: a held buffer, a plan, memory.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any

from callboard.core.op import Fence
from callboard.device.protocol.messages import Plain

__all__ = ["NOTHING", "ROOM", "Holds", "Parking"]

Libs = str | tuple[str, ...] | None

ROOM = "memory.empty"
"""In place of the library of ops that only allocate: they do not stay behind fences.

A call that runs may need room for its result, and the fence may wait for the end of that call.
"""

FENCES = ("behind", "between")


class Holds:
    """Numbers of calls that read and that write each buffer."""

    __slots__ = ("reads", "writes")

    def __init__(self) -> None:
        self.reads: Counter[int] = Counter()
        self.writes: Counter[int] = Counter()

    def add(self, reads: Iterable[int], writes: Iterable[int]) -> None:
        self.reads.update(reads)
        self.writes.update(writes)

    def remove(self, reads: Iterable[int], writes: Iterable[int]) -> None:
        for counter, buffers in ((self.reads, reads), (self.writes, writes)):
            for b in buffers:
                counter[b] -= 1
                if not counter[b]:
                    del counter[b]

    def __bool__(self) -> bool:
        return bool(self.reads or self.writes)


NOTHING = Holds()
"""Holds of a message other than a resident actor's call, or of an actor that has ended."""


class Parked:
    """A parked message.

    Attributes:
        number: Position in program order.
        message, again: Called as ``again(message)`` when it can continue.
        reads, writes, lib, own: See :meth:`Parking.park`.
        libs: The libraries of ``lib``.
        leads: Later messages of the same library park behind it.
        fence: The op's :attr:`Op.fence`: the op stays behind all parked messages; with ``"between"``, later messages
            also stay behind it.
        ahead: Number of earlier parked messages that it conflicts with.
        behind: Later parked messages that count it in their ``ahead``.
    """

    __slots__ = (
        *("again", "ahead", "behind", "fence", "leads", "lib", "libs", "message", "number", "own", "reads", "writes"),
    )

    def __init__(
        self,
        number: int,
        message: Plain,
        reads: Collection[int],
        writes: Collection[int],
        lib: Libs,
        own: Holds,
        leads: bool,
        fence: Fence | None,
    ) -> None:
        self.number = number
        self.message = message
        self.again: Callable[[Any], None]
        self.reads = reads
        self.writes = writes
        self.lib = lib
        self.libs = lib if isinstance(lib, tuple) else (lib,) if lib else ()
        self.own = own
        self.leads = leads
        self.fence = fence
        self.ahead = 0
        self.behind: list[Parked] = []

    def __lt__(self, other: "Parked") -> bool:
        return self.number < other.number


class Users:
    """Parked messages that use one buffer: the last writer, and the readers after it."""

    __slots__ = ("readers", "writer")

    def __init__(self) -> None:
        self.writer: Parked | None = None
        self.readers: set[Parked] = set()


class Parking:
    """The parked messages, in program order.

    Attributes:
        held: Buffers that resident actors' calls hold, from admission to end (:meth:`hold`, :meth:`release`).
        closed: All messages except frees park, because memory is being freed; :meth:`open` ends it.
    """

    def __init__(self) -> None:
        self._parked: set[Parked] = set()
        self._number = 0
        self._users: dict[int, Users] = {}
        self._last: dict[str, Parked] = {}  # by library
        self._fence: Parked | None = None  # the last one that all later messages stay behind
        # Messages with none ahead of them wait for one of these:
        self._until: dict[object, list[Parked]] = {}
        self._held_from_readers: dict[int, list[Parked]] = {}
        self._held_from_writer: dict[int, Parked] = {}  # one per buffer: two writers conflict
        self._ready: list[Parked] = []  # a heap; frees, which have no library, are in the next one
        self._ready_frees: list[Parked] = []
        self._current: Parked | None = None  # being admitted again
        self.held = Holds()
        self.closed = False

    @property
    def active(self) -> bool:
        """True if :meth:`blocks` must be called before an op is launched."""
        return bool(self._parked or self.closed or self.held.reads or self.held.writes)

    def __len__(self) -> int:
        return len(self._parked)

    def blocks(
        self,
        reads: Iterable[int],
        writes: Iterable[int],
        lib: Libs,
        own: Holds = NOTHING,
        fence: Fence | None = None,
    ) -> bool:
        """True if a message that reads and writes these buffers must park.

        Args:
            reads, writes: Buffers that it only reads; buffers that it writes, makes or frees.
            lib: Library, or resident actor, of the message; for a recording, all its libraries. :data:`ROOM`: it
                waits for its buffers and for memory only. None for a free: it waits for its buffers only.
            own: Holds of the same resident actor: its calls do not block each other.
            fence: Fence of the op; it makes the op wait for all parked messages.
        """
        if self._current is not None:
            return False  # it is admitted again because nothing blocks it
        if (self._fence is not None and lib not in (None, ROOM)) or (fence in FENCES and self._parked):
            return True  # a free passes: the fence may wait for the memory that it releases
        if lib is not None:
            if self.closed:
                return True
            last = self._last
            if any(one in last for one in lib) if isinstance(lib, tuple) else lib in last:
                return True
        users = self._users
        for b in reads:
            if b in users and users[b].writer is not None:
                return True
        return any(b in users for b in writes) or self._held(reads, writes, own) is not None

    def park(
        self,
        message: Plain,
        again: Callable[[Any], None],
        reads: Collection[int],
        writes: Collection[int],
        lib: Libs,
        own: Holds = NOTHING,
        until: object = None,
        leads: bool = True,
        fence: Fence | None = None,
    ) -> None:
        """Keep a message until nothing blocks it; then ``again(message)`` admits it, or parks it once more.

        Args:
            message: The message.
            again: Called with the message.
            reads, writes, lib, own, fence: See :meth:`blocks`.
            until: Event to wait for once no message is ahead of it; :meth:`come` is called with the same object. None:
                it is blocked, or the parking is closed.
            leads: Later messages of the same library park behind it.
        """
        parked = self._current
        if parked is None:
            parked = self._enter(Parked(self._number, message, reads, writes, lib, own, leads, fence))
        else:
            self._current = None  # it keeps its place
        parked.again = again
        if parked.ahead:
            return
        if until is None:
            self._go(parked)
        else:
            self._until.setdefault(until, []).append(parked)

    # -- events --------------------------------------------------------------------------------------------------------

    def hold(self, reads: Iterable[int], writes: Iterable[int], own: Holds) -> None:
        """Hold these buffers for a call of the actor with the holds ``own``: messages of others park."""
        self.held.add(reads, writes)
        own.add(reads, writes)

    def release(self, reads: Collection[int], writes: Collection[int], own: Holds) -> None:
        """The call has ended: admit the messages that waited for it, in order."""
        held = self.held
        held.remove(reads, writes)
        own.remove(reads, writes)
        if not self._parked:
            return
        for b in (*reads, *writes):
            if b in self._held_from_readers and b not in held.writes:
                for parked in self._held_from_readers.pop(b):
                    self._go(parked)
            if b in self._held_from_writer:
                self._go(self._held_from_writer.pop(b))
        self._admit()

    def notify(self, what: object) -> None:
        """``what`` has arrived: admit the messages parked ``until`` then, in order."""
        for parked in self._until.pop(what, ()):
            self._go(parked)
        self._admit()

    def open(self) -> None:
        """Memory has been freed: admit the messages that waited for it, in order, until it is short again."""
        self.closed = False
        self._admit()

    def _admit(self) -> None:
        ready, frees = self._ready, self._ready_frees
        while True:
            if ready and not self.closed and not (frees and frees[0] < ready[0]):
                parked = heapq.heappop(ready)
            elif frees:
                parked = heapq.heappop(frees)
            else:
                return
            self._current = parked
            parked.again(parked.message)
            if self._current is parked:  # else it is parked once more
                self._current = None
                self._leave(parked)

    # -- order ---------------------------------------------------------------------------------------------------------

    def _enter(self, parked: Parked) -> Parked:
        """Put a message after all messages that it conflicts with."""
        self._number += 1
        ahead: set[Parked] = set(self._parked) if parked.fence in FENCES else set()
        self._parked.add(parked)
        if self._fence is not None and parked.lib not in (None, ROOM):
            ahead.add(self._fence)
        if parked.fence == "between":
            self._fence = parked
        for b in parked.reads:
            users = self._users.get(b)
            if users is not None and users.writer is not None:
                ahead.add(users.writer)
        for b in parked.writes:
            users = self._users.get(b)
            if users is not None:
                ahead |= users.readers
                if users.writer is not None:
                    ahead.add(users.writer)
        for lib in parked.libs:
            if lib in self._last:
                ahead.add(self._last[lib])
            if parked.leads:
                self._last[lib] = parked
        for b in parked.reads:
            self._users.setdefault(b, Users()).readers.add(parked)
        for b in parked.writes:
            users = self._users.setdefault(b, Users())
            users.writer = parked
            users.readers.clear()
        parked.ahead = len(ahead)
        for other in ahead:
            other.behind.append(parked)
        return parked

    def _leave(self, parked: Parked) -> None:
        """A message has been admitted: it no longer blocks the messages behind it."""
        self._parked.discard(parked)
        if self._fence is parked:
            self._fence = None
        for buffers in (parked.reads, parked.writes):
            for b in buffers:
                users = self._users.get(b)
                if users is None:
                    continue
                users.readers.discard(parked)
                if users.writer is parked:
                    users.writer = None
                if users.writer is None and not users.readers:
                    del self._users[b]
        self._unlink(parked)
        for other in parked.behind:
            other.ahead -= 1
            if not other.ahead:
                self._go(other)

    def _go(self, parked: Parked) -> None:
        """No message is ahead of this one: it is admitted next, unless a call holds one of its buffers."""
        b = self._held(parked.reads, parked.writes, parked.own)
        if b is None:
            heapq.heappush(self._ready_frees if parked.lib is None else self._ready, parked)
        elif b in parked.writes:
            self._held_from_writer[b] = parked
        else:
            self._held_from_readers.setdefault(b, []).append(parked)

    def _unlink(self, parked: Parked) -> None:
        for lib in parked.libs:
            if self._last.get(lib) is parked:
                del self._last[lib]

    def _held(self, reads: Iterable[int], writes: Iterable[int], own: Holds) -> int | None:
        """A buffer that another actor's call holds and that these uses conflict with; None if there is none."""
        held = self.held
        for b in reads:
            if b in held.writes and held.writes[b] > own.writes[b]:
                return b
        for b in writes:
            if (b in held.writes and held.writes[b] > own.writes[b]) or (
                b in held.reads and held.reads[b] > own.reads[b]
            ):
                return b
        return None
