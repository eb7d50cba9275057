"""``Holder``: holds the arrays of calls that an actor in another process runs.

It represents such an actor in the device's own host. Its calls are admitted like any other: they wait for the ops that
their arrays are pending on, and park ops that would change the arrays. When no op on the device uses the arrays any
more, the application gets their locations; when the other process has ended its call, they are released. A call that
uses the arrays of another one waits for its end: only the application knows which of them the other process has begun.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.core.dtype import as_dtype
from callboard.core.layout import Layout
from callboard.device.host.context.parking import Holds
from callboard.device.host.context.pending import FAILED
from callboard.device.host.context.timelines import Timeline
from callboard.device.host.residents.busytime import BusyTime
from callboard.device.host.residents.item import EndedCall, Item, Site
from callboard.device.protocol.messages import FailureMessage, Held, Release
from callboard.device.protocol.residents.exceptions import described
from callboard.device.protocol.residents.hostview import host_view
from callboard.device.protocol.residents.regions import FRESH, HERE, places

if TYPE_CHECKING:
    from callboard.device.host.residents.actors import HostActors

__all__ = ["Holder"]


class _Apart(Holds):
    """Holds of no actor: each call's holds block the others'."""

    __slots__ = ()

    def add(self, reads: Iterable[int], writes: Iterable[int]) -> None: ...
    def remove(self, reads: Iterable[int], writes: Iterable[int]) -> None: ...


class Holder:
    """Holds arrays for one actor. Everything runs on the thread that serves.

    Args:
        actor: Id of the actor.
        name: Name of the actor.
        host: The actors of this host.
    """

    is_short = False

    def __init__(self, actor: int, name: str, host: "HostActors") -> None:
        self.id = actor
        self.name = name
        self.timeline: Timeline | None = None
        self.holds = _Apart()
        self.busy = BusyTime()
        self.stopping = False
        self._host = host
        self._site: Site | None = None
        self._waiting: list[Item] = []
        self._held: dict[int, Item] = {}

    # -- what the host does with an actor ------------------------------------------------------------------------------

    def enter(self, site: Site) -> None:
        """The context is the active one of the device."""
        self.timeline = site.timeline
        self._site = site

    def put(self, item: Item) -> None:
        """Hold the arrays of a call, and report when nothing else uses them."""
        self._waiting.append(item)
        self.advance()

    def stop(self) -> None:
        """Hold nothing more."""
        if not self.stopping:
            self.stopping = True
            self._host.post_gone(self, None)

    def join(self) -> None:
        """It has no thread."""

    def left(self) -> list[Item]:
        """The calls that have not been released."""
        left = [*self._waiting, *self._held.values()]
        self._waiting.clear()
        self._held.clear()
        return left

    def cancel(self, call: int) -> None:
        """No effect: the application releases the arrays of calls that it cancels."""

    def give_room(self, room: object) -> None:
        """Do nothing: its calls have no results."""

    def decide(self, own: bool) -> None:
        """It does not ask whose a failure was."""

    @property
    def waiting(self) -> bool:
        """True if calls wait for the users of their arrays."""
        return bool(self._waiting)

    # -- holding -------------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Say which calls may use their arrays now; others fail, when this thread comes to it."""
        waiting, self._waiting = self._waiting, []
        for item in waiting:
            if not all(block.idle() for block, _ in item.blocks):
                self._waiting.append(item)
            elif any(source.state == FAILED for source in item.op.sources):
                self._fail(item, FailureMessage(item.message.id, "ContextLost", "", {}))
            else:
                self._hold(item)

    def _hold(self, item: Item) -> None:
        site, timeline = self._site, self.timeline
        assert site is not None
        assert timeline is not None
        if any(block.lent for block, _ in item.blocks):
            timeline.stream.synchronize()  # it follows the borrowers' streams, which no block knows about
        regions: list[Any] = []
        if item.room is None:
            try:
                for (address, _, _), (block, _) in zip(item.operands, item.blocks, strict=True):
                    memory = block.memory
                    where = memory if item.message.body == HERE else self._host.share(memory)
                    regions.append([where, address - memory.address])
            except Exception as e:  # of a driver; a dead context shows at the next poll
                self._fail(item, described(item.message.id, e))
                return
        elif item.message.body != FRESH:
            for staged, array, _ in self._copies(item):
                staged[...] = array
        self._held[item.message.id] = item
        self._host.channel.send(Held(item.message.id, regions))

    def _fail(self, item: Item, failure: FailureMessage) -> None:
        """Fail a call by a note, which wakes the thread: after a report it would wait for messages first."""
        self._host.post_ended(EndedCall(self, item, b"", [], failure))

    def release(self, message: Release) -> None:
        """The other process does not use the arrays of a call any more."""
        item = self._held.pop(message.id, None)
        if item is None:
            return
        if message.failure is not None:
            self._host.fail(EndedCall(self, item, b"", [], message.failure))
            return
        if item.room is not None:
            for staged, array, written in self._copies(item):
                if written:
                    array[...] = staged
        self._host.end(EndedCall(self, item, b"", []))

    def _copies(self, item: Item) -> Iterable[tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]", bool]]:
        """The copy of each array in the call's memory, the array, and whether it is written."""
        assert item.room is not None
        offsets, _ = places(layout.nbytes for _, layout, _ in item.operands)
        for (address, layout, written), offset in zip(item.operands, offsets, strict=True):
            staged = item.room.array(_bytes_of(layout), layout.shape, offset)
            yield staged, host_view(address, layout, written), written


def _bytes_of(layout: Layout) -> "np.dtype[np.uint8]":
    assert layout.dtype is as_dtype("u8")
    return np.dtype(np.uint8)
