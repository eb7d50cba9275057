"""``TurnAdmission``: how a turn of a resident actor is admitted, in the one order like an op.

It parks while something that it reads is not enqueued yet, and holds its device arrays while it runs.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from callboard.actors.errors import ActorStopped
from callboard.core.errors import AccelError, GpuRefStale, ShapeError, Withdrawn
from callboard.core.layout import Layout, layout_from_wire
from callboard.device.context.pending import FAILED, FLYING, Pending
from callboard.device.protocol import Plain, Turn
from callboard.device.resident.exceptions import described
from callboard.device.resident.hosted.item import Item, used
from callboard.device.resident.hosted.staging import StagedTurn

if TYPE_CHECKING:
    from callboard.device.context.actor import ContextActor
    from callboard.device.resident.hosted.turns import ActorThread

__all__ = ["TurnAdmission"]


class TurnAdmission:
    """Admits the turns of one context; used on the admitting thread.

    Args:
        context: Open, and the device's own.
        actors: Those of the host, by id.
        gone_because: Why an actor that is not among them has ended, by id.
        shared: Whether the application sees what is written into the arenas of arguments.
        give_back: Told of turns that do not need their arguments' slot any more; any thread.

    Attributes:
        running: Turns that were handed to their actors and have not ended, by id.
    """

    def __init__(
        self,
        context: "ContextActor",
        actors: "Mapping[int, ActorThread]",
        gone_because: Mapping[int, str],
        shared: bool,
        give_back: Callable[[int], None],
    ) -> None:
        self._context = context
        self._actors = actors
        self._gone_because = gone_because
        self._shared = shared
        self._give_back = give_back
        self._on_host = context.device.info.compute_capability == (0, 0)
        self.running: dict[int, tuple[ActorThread, Item]] = {}

    def turn(self, message: Plain) -> None:
        """Admit a turn, or park it."""
        assert isinstance(message, Turn)
        actor = self._actors.get(message.actor)
        op = Pending(message.id, 0, None, ())
        if actor is None or actor.stopping:
            self._refuse(message, op, ActorStopped(self._gone_because.get(message.actor, "the actor was stopped")))
            return
        if message.withdrawn:
            self._refuse(message, op, Withdrawn("the call was cancelled before it was sent"))
            return
        reads, writes = used(message)
        stem = f"actor:{message.actor}"
        parking = self._context.parking
        if parking.active and parking.blocks(reads, writes, stem, actor.holds):
            parking.park(message, self.turn, reads, writes, stem)
            return
        item = Item(message, op, self._staged(message))
        failed = self._resolve(item)
        if failed is not None:
            self._inherit(item, failed)
        elif op.failure is None:
            self.running[message.id] = (actor, item)
            if item.blocks:
                self._begin(actor, item)
            actor.put(item)

    def _resolve(self, item: Item) -> Pending | None:
        """Find its device arrays; gives the failed op whose result it would read."""
        message, op = item.message, item.op
        sources: list[Pending] = []
        failed: Pending | None = None
        for i, (wire, writes) in enumerate(zip(message.layouts, message.writes, strict=True)):
            buffer, offset = message.places[2 * i : 2 * i + 2]
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
            item.operands.append((block.address + offset, layout, writes))
            item.blocks.append((block, writes))
        op.sources = sources
        return failed

    def _begin(self, actor: "ActorThread", item: Item) -> None:
        """Order the actor's stream behind its operands' users, and keep others off them."""
        track = actor.track
        assert track is not None
        busy = not all(block.idle() for block, _ in item.blocks)
        for block, writes in item.blocks:
            if writes:
                block.before_write(track)
                block.source = item.op
            else:
                block.before_read(track)
            block.only = None  # its next user looks at its hazards
        if busy and self._on_host:
            item.start = track.stream.record()  # on a CPU the actor's thread itself touches the memory
        for holds in (actor.holds, self._context.parking.held):
            holds.add(*used(item.message))
        item.holds = True

    def _staged(self, message: Turn) -> StagedTurn | None:
        if not message.staged:
            return None
        arena, offset, nbytes = message.staged
        base, size = self._context.admission.arenas[arena]
        assert offset + nbytes <= size
        return StagedTurn(message.id, base + offset, nbytes, self._shared, self._give_back)

    def _refuse(self, message: Turn, op: Pending, error: AccelError, item: Item | None = None) -> None:
        self._context.ledger.fail(op, described(message.id, error))
        self._drop(message, item, op)

    def _inherit(self, item: Item, source: Pending) -> None:
        self._context.ledger.inherit(item.op, source, f"the call read what op {source.root} owed")
        self._drop(item.message, item, item.op)

    def _drop(self, message: Turn, item: Item | None, op: Pending) -> None:
        """The turn will not run: what it would have written fails for its readers."""
        buffers = self._context.admission.buffers
        for buffer, writes in zip(message.places[::2], message.writes, strict=True):
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
