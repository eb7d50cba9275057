"""``Collective``: the reply to a collective: the refs of all ranks at once, and one completion for all of them."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from callboard.core.ref import GpuRef
from callboard.core.reply import Cause, OpFailure, Reply
from callboard.device.client.line.outbox import Outbox

if TYPE_CHECKING:
    from callboard.multi_device.worlds.flight import PartReply

__all__ = ["Collective"]

T = TypeVar("T")
Refs = tuple[GpuRef[Any], ...]


class Port:
    """The part of a device that :class:`Reply` uses, for a reply that several devices resolve."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.parts: Sequence[PartReply] | None = None

    def awaited(self, reply: Reply[Any]) -> None:
        """Send the queued calls; if each part is its device's only op, poll for their completions for a moment."""
        if self.parts is None:
            raise RuntimeError("a collective of a group is called when the group's block is left; await it after that")
        for part in self.parts:
            part.port.flush()
        waiting = [part for part in self.parts if not part.done()]
        if all(part.port.in_flight == 1 for part in waiting):
            Outbox.linger_together([(part.port.outbox, part.done) for part in waiting])

    def withdraw(self, reply: Reply[Any]) -> bool:
        return False  # other ranks would wait for the part that is taken back

    def left(self, reply: Reply[Any], /) -> None:
        pass  # the other ranks still wait for each part

    def interrupted(self) -> None:
        for part in self.parts or ():
            part.port.interrupted()

    def unretrieved(self, cause: Cause) -> None:
        for part in (self.parts or ())[:1]:
            part.port.unretrieved(cause)


class Collective(Reply[T], Generic[T]):
    """A collective in flight. Awaiting it returns its result: a ref for each rank, or one, or None.

    :attr:`refs` exist at once, as operands of ops that run after it; ``collective[rank]`` is one of them. It has one
    completion for all ranks: it succeeds when every rank's part has, and fails when one has failed, whatever the state
    of the other ranks' refs.

    Await it, or ``result()`` on a thread. It cannot be cancelled: the other ranks would wait.
    """

    __slots__ = ("_refs", "_result", "kind")

    _port: Port

    def __init__(self, loop: asyncio.AbstractEventLoop, kind: str, result: "Callable[[Refs], T]") -> None:
        super().__init__(Port(loop))
        self._result = result
        self._refs: Refs | None = None
        self.kind = kind

    @property
    def refs(self) -> Refs:
        """The refs that it writes, in the order of the ranks.

        Raises:
            RuntimeError: It is in a group whose block has not been left yet.
        """
        if self._refs is None:
            raise RuntimeError(f"{self.kind}: its refs are made when the block of the group is left")
        return self._refs

    def __getitem__(self, rank: int) -> GpuRef[Any]:
        return self.refs[rank]

    def __iter__(self) -> Iterator[GpuRef[Any]]:
        return iter(self.refs)

    def __len__(self) -> int:
        return len(self.refs)

    def __repr__(self) -> str:
        state = "pending" if not self.done() else "failed" if self.exception() else "done"
        return f"<Collective {self.kind}, {state}>"

    # -- the world's side ----------------------------------------------------------------------------------------------

    def called(self, refs: Refs, parts: "Sequence[PartReply]") -> None:
        """Its parts have been submitted."""
        self._refs = refs
        self._port.parts = parts

    def fail(self, make: Callable[[], BaseException]) -> None:
        """Fail the call; ``make`` creates a separate error for each waiter."""
        self._reject(OpFailure(Cause(self._port, lambda op, ops: make())))

    def succeed(self) -> None:
        """All parts have succeeded."""
        self._resolve(self._result(self.refs))
        self._port.parts = ()
