"""``Lender``: lends arrays of a device to one actor that has a process of its own."""

import concurrent.futures
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.actors.loops.posting import post
from callboard.device.client.line.port import OpPort
from callboard.device.protocol.arena import ArenaPool
from callboard.device.protocol.messages import Plain

if TYPE_CHECKING:
    from callboard.device.client.residents.registry import Residents

__all__ = ["Lender"]


class Opened:
    """The memory of one context that the actor's process has opened.

    Attributes:
        handles: Handles with which it was opened.
        using: Loans that use some of it.
        lost: The context is lost: the last loan that ends closes the remaining memory.
    """

    __slots__ = ("handles", "lost", "using")

    def __init__(self) -> None:
        self.handles: set[bytes] = set()
        self.using = 0
        self.lost = False


class Lender:
    """Lends arrays of a device.

    Args:
        owner: The device's own actors, among whose calls the arrays are held.
        name: Name of the actor.
        theirs: Host memory shared with its process.
        copies: Arrays are copied, because its process cannot open the device's memory.
        copy: Copies host arrays, and then calls back, as :meth:`Caller.copy`.
        when_reaped: Calls back when no process of the actor lives any more that was lost.
        detach: Has the actor's process close memory.
        here: The arrays are used in the process that has them: they need not be opened.

    Attributes:
        actor: Id of the actor; 0 until it is made.
        port: Op line of the device.
        arenas: Host memory shared with the device's own host.
        loans: Loans that are requested and not settled, by the id of the call that holds the arrays.
        opened: Memory that the actor's process has opened in the present context of the device.
        order: Held while a call takes its place on both lines, so that calls have one order on both.
    """

    def __init__(
        self,
        owner: "Residents",
        name: str,
        theirs: ArenaPool,
        copies: bool,
        copy: Callable[[Any, Any, Callable[[], None]], None],
        when_reaped: Callable[[Callable[[], None]], None],
        detach: Callable[[list[bytes]], None],
        here: bool = False,
    ) -> None:
        self.actor = 0
        self.name = name
        self.port: OpPort = owner.caller.port
        self.arenas = owner.caller.arenas
        self.loans = owner.caller.loans
        self.theirs = theirs
        self.copies = copies
        self.copy = copy
        self.when_reaped = when_reaped
        self.opened = Opened()
        self._detach = detach
        self.here = here
        self.order = threading.RLock()  # a host on the loop's thread answers at once
        self._owner = owner
        self._started = False

    def post(self, message: Plain) -> None:
        """Send a message to the device's own host, if it runs."""
        host = self.port.outbox.host
        if host is not None:
            host.post(message)

    def start(self) -> None:
        """Have the device's hosts hold arrays for the actor, from the first call on that needs it. Any thread."""
        if self._started:
            return
        if threading.get_ident() == self.port.outbox.thread:
            self._start()
            return
        started: concurrent.futures.Future[None] = concurrent.futures.Future()

        def start() -> None:
            self._start()
            started.set_result(None)

        if not post(self.port.loop, start):
            raise self.port.why_stopped()
        started.result(10.0)  # the call must not overtake it

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._owner.hold_for(self.actor, self.name)

    def lost(self) -> None:
        """The device's context is lost; its memory still exists while the actor's process has it open."""
        opened, self.opened = self.opened, Opened()
        opened.lost = True
        self._close_unused(opened)

    def begin(self, handles: set[bytes]) -> Opened:
        """A loan begins to use memory."""
        if not self.here:
            self.opened.handles |= handles
        self.opened.using += 1
        return self.opened

    def end(self, opened: Opened) -> None:
        """A loan has ended."""
        opened.using -= 1
        self._close_unused(opened)

    def _close_unused(self, opened: Opened) -> None:
        if opened.lost and not opened.using and opened.handles:
            self._detach(list(opened.handles))

    def stop(self) -> None:
        """The actor has ended, and its process."""
        if self._started:
            self._owner.hold_no_more(self.actor)
