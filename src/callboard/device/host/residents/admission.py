"""``CallAdmission``: admits the calls of resident actors, in program order with the ops.

A call parks while something that it reads is not enqueued yet, and holds its device arrays while it runs.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from callboard.actors.errors import ActorStopped
from callboard.core.errors import (
    AccelError,
    DriverError,
    GpuRefStale,
    OutOfMemory,
    ShapeError,
    UnsupportedOp,
    Withdrawn,
)
from callboard.core.layout import Layout, layout_from_wire
from callboard.device.host.context.parking import NOTHING
from callboard.device.host.context.pending import FAILED, FLYING, Pending
from callboard.device.host.residents.item import Item, used
from callboard.device.host.residents.staging import HostMemory, StagedCall
from callboard.device.protocol.messages import ActorCall, Plain
from callboard.device.protocol.residents.exceptions import described
from callboard.device.protocol.residents.regions import FRESH
from callboard.device.protocol.residents.steps import CLOSING

if TYPE_CHECKING:
    from callboard.device.host.context.actor import ContextActor
    from callboard.device.host.context.admission.attached import Attached
    from callboard.device.host.residents.apart.holder import Holder
    from callboard.device.host.residents.thread.thread import ActorThread

__all__ = ["CallAdmission"]


class CallAdmission:
    """Admits the calls of one context; used on the admitting thread.

    Args:
        context: Open, and the active one of the device.
        actors: The host's actors, by id.
        gone_because: The reason why an actor has ended, by its id.
        shared: True if the arenas of arguments are the application's own memory, so that it sees writes.
        give_back: Called with the id of a call that does not need its arguments' slot any more; any thread.
        attached: Memory of the device's own host, if this one is an actor's own process.

    Attributes:
        running: Calls that were admitted and have not ended, by id.
        ready: Running calls that have not been handed to their actors, in order.
    """

    def __init__(
        self,
        context: "ContextActor",
        actors: "Mapping[int, ActorThread | Holder]",
        gone_because: Mapping[int, str],
        shared: bool,
        give_back: Callable[[int], None],
        attached: "Attached",
    ) -> None:
        self._context = context
        self._actors = actors
        self._gone_because = gone_because
        self._shared = shared
        self._give_back = give_back
        self._attached = attached
        self._on_host = context.device.info.compute_capability == (0, 0)
        self.running: dict[int, tuple[ActorThread | Holder, Item]] = {}
        self.ready: list[tuple[ActorThread | Holder, Item]] = []
        self._parked: dict[int, ActorCall] = {}

    def call(self, message: Plain) -> None:
        """Admit a call, or park it."""
        assert isinstance(message, ActorCall)
        actor = self._actors.get(message.actor)
        op = Pending(message.id, 0, None, ())
        self._parked.pop(message.id, None)
        if self._context.parking.active and self._parks(message, actor):  # if rejected, it spoils its outputs
            return
        if actor is None or actor.stopping:
            self._refuse(message, op, ActorStopped(self._gone_because.get(message.actor, "the actor was stopped")))
            return
        if message.withdrawn:
            self._refuse(message, op, Withdrawn("the call was cancelled"))
            return
        try:
            staged = self.staged(message) if message.staged else None
            room = self.room(message) if message.room else None
            item = Item(message, op, staged, room)
            if message.shared:
                item.operands = self._attached.operands(*message.shared)
        except (OutOfMemory, UnsupportedOp, DriverError) as e:
            self._refuse(message, op, e)
            return
        failed = self._resolve(item) if message.writes else None
        if message.body.startswith(CLOSING):  # a generator is closed even if its arrays could not be used
            failed, op.sources, item.behind = None, [], []
        if failed is not None:
            self._inherit(item, failed)
        elif op.failure is None:
            self.running[message.id] = (actor, item)
            if item.blocks:
                self._begin(actor, item)
            self.ready.append((actor, item))

    def _parks(self, message: ActorCall, actor: "ActorThread | Holder | None") -> bool:
        """Park a call that is blocked; whether it was."""
        reads, writes = used(message)
        # Room for the result of a call that runs: behind a parked call of the actor, it would wait for the call itself.
        lib = None if message.body == FRESH else f"actor:{message.actor}"
        holds = NOTHING if actor is None else actor.holds
        parking = self._context.parking
        if not parking.blocks(reads, writes, lib, holds):
            return False
        parking.park(message, self.call, reads, writes, lib, holds)
        self._parked[message.id] = message
        return True

    def withdraw(self, call: int) -> None:
        """Refuse a call when nothing blocks it any more, if it is parked."""
        parked = self._parked.get(call)
        if parked is not None:
            parked.withdrawn = True

    def _resolve(self, item: Item) -> Pending | None:
        """Find the call's device arrays; returns the failed op whose result it would read, if there is one."""
        message, op = item.message, item.op
        sources: list[Pending] = []
        failed: Pending | None = None
        for i, (wire, writes) in enumerate(zip(message.layouts, message.writes, strict=True)):
            buffer, offset = message.bindings[2 * i : 2 * i + 2]
            layout = _layout(bytes(wire))
            block = self._context.admission.buffers.get(buffer)
            if block is None:
                self._refuse(message, op, GpuRefStale("an argument names no buffer of this context", "freed"), item)
                return None
            low, high = layout.span
            if offset + low < 0 or offset + high > block.nbytes:
                text = f"an argument reaches bytes {offset + low}..{offset + high} of a buffer of {block.nbytes}"
                self._refuse(message, op, ShapeError(text), item)
                return None
            source = block.source
            if source is not None and source.state == FAILED:
                failed = failed or source
            elif source is not None and source.state == FLYING:
                sources.append(source)
                if source.id in self.running:
                    item.behind.append(self.running[source.id][1])
            item.operands.append((block.address + offset, layout, writes))
            item.blocks.append((block, writes))
        op.sources = sources
        return failed

    def _begin(self, actor: "ActorThread | Holder", item: Item) -> None:
        """Make the actor's stream wait for its operands' users, and hold the operands for the call."""
        timeline = actor.timeline
        assert timeline is not None
        busy = not all(block.idle() for block, _ in item.blocks)
        for block, writes in item.blocks:
            if writes:
                block.after_users(timeline)  # a holder says that the array may be written when they are done
                block.source = item.op
            else:
                block.before_read(timeline)
            block.only = None  # its next user must check its hazards
        if busy and self._on_host:
            item.start = timeline.stream.record()  # on a CPU the actor's thread accesses the memory itself
        self._context.parking.hold(*used(item.message), actor.holds)
        item.holds = True

    def staged(self, message: ActorCall) -> StagedCall:
        """The memory of its arguments' arrays."""
        arena, offset, nbytes = message.staged
        base, size = self._context.admission.arenas.find(arena)
        assert offset + nbytes <= size
        return StagedCall(message.id, base + offset, nbytes, self._shared, self._give_back)

    def room(self, message: ActorCall) -> HostMemory:
        """The memory for its result's arrays."""
        arena, offset, nbytes = message.room
        base, size = self._context.admission.arenas.find(arena)
        assert offset + nbytes <= size
        return HostMemory(base + offset, nbytes)

    def _refuse(self, message: ActorCall, op: Pending, error: AccelError, item: Item | None = None) -> None:
        self._context.ledger.fail(op, described(message.id, error))
        self._drop(message, item, op)

    def _inherit(self, item: Item, source: Pending) -> None:
        self._context.ledger.inherit(item.op, source)
        self._drop(item.message, item, item.op)

    def _drop(self, message: ActorCall, item: Item | None, op: Pending) -> None:
        """The call will not run: readers of its outputs fail as well."""
        buffers = self._context.admission.buffers
        for buffer, writes in zip(message.bindings[::2], message.writes, strict=True):
            block = buffers.get(buffer)
            if writes and block is not None:
                block.source = op
        if item is not None and item.staged is not None:
            item.staged.drop()
        elif message.staged:
            self._give_back(message.id)


@lru_cache(maxsize=4096)
def _layout(wire: bytes) -> Layout:
    return layout_from_wire(*msgspec.msgpack.decode(wire))
