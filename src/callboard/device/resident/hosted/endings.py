"""``TurnEndings``: what becomes of a turn that has ended: its verdict, its place on its stream, and what it lent."""

from typing import TYPE_CHECKING

from callboard.device.context.pending import FAILED, FLYING, Pending
from callboard.device.resident.hosted.item import Ended, Item, used
from callboard.device.resident.operands import Adopted, AdoptedBlock

if TYPE_CHECKING:
    from callboard.device.context.actor import ContextActor
    from callboard.device.resident.hosted.turns import ActorThread

__all__ = ["TurnEndings"]


class TurnEndings:
    """Ends the turns of one context; used on the admitting thread.

    Args:
        context: Open, and the device's own.
        running: Turns that have not ended, by id.

    Attributes:
        dying: Blocks that nobody can name any more, whose memory is still in use.
    """

    def __init__(self, context: "ContextActor", running: "dict[int, tuple[ActorThread, Item]]") -> None:
        self._context = context
        self._running = running
        self._on_host = context.device.info.compute_capability == (0, 0)
        self._undecided: list[Ended] = []
        self._issued: list[tuple[Pending, list[Adopted]]] = []  # named by values whose verdict is not known
        self.dying: list[AdoptedBlock] = []

    def end(self, ended: Ended) -> None:
        """A turn has ended."""
        if ended.trim:
            self.trim()
        if ended.failure is not None:
            self.fail(ended)
            return
        op, actor = ended.item.op, ended.actor
        op.answer = ended.value
        ticket = self._ticket(actor)
        op.ticket = ticket
        if ended.adopted:
            self._issued.append((op, ended.adopted))
            for adopted in ended.adopted:
                self._issue(adopted, op, actor, ticket)
        self._finish(ended.item, actor, ticket)

    def fail(self, ended: Ended) -> None:
        """A turn failed: of itself, unless an op failed whose result it read."""
        op, failure = ended.item.op, ended.failure
        if any(source.state == FLYING for source in op.sources):
            self._undecided.append(ended)
            return
        assert failure is not None
        ledger = self._context.ledger
        source = next((s for s in op.sources if s.state == FAILED), None)
        if source is not None:
            ledger.inherit(op, source, f"the call read what op {source.root} owed")
        else:
            ledger.fail(op, failure)
        if ended.asked:
            ended.actor.decide(own=source is None)
        self._finish(ended.item, ended.actor, self._ticket(ended.actor) if ended.item.blocks else 0)

    def settle(self) -> bool:
        """What waited for verdicts; after the context has settled. True when ops may have been launched."""
        if not (self._undecided or self._issued or self.dying):
            return False
        undecided, self._undecided = self._undecided, []
        for ended in undecided:
            self.fail(ended)
        for op, adopted in self._issued:
            if op.state == FAILED:
                for one in adopted:
                    self._take_back(one)
        self._issued = [entry for entry in self._issued if entry[0].state == FLYING]
        self.dying[:] = [block for block in self.dying if not block.idle()]
        return len(self._undecided) < len(undecided)

    def trim(self) -> None:
        """Memory was short: give back what caches hold."""
        self._context.pool.trim()
        self._context.device.trim()

    def _ticket(self, actor: "ActorThread") -> int:
        """The turn's ticket. What a CPU's turn did is done when it ends; a stream may still be at it."""
        track = actor.track
        assert track is not None
        done = self._on_host and track.completed == track.issued
        track.issued += 1
        if done:
            track.sealed = track.completed = track.issued
        else:
            track.seal()  # the stream is not idle while the actor's next turn enqueues on it
        return track.issued

    def _finish(self, item: Item, actor: "ActorThread", ticket: int) -> None:
        """It counts as the last user of its device arrays, and holds them no longer."""
        op, track = item.op, actor.track
        assert track is not None
        del self._running[item.message.id]
        for block, writes in item.blocks:
            block.only = None
            if writes:
                block.readers.clear()
                block.writer, block.wrote = track, ticket
            else:
                block.readers[track] = ticket
        if op.state == FLYING:
            track.ops.append(op)
        parking = self._context.parking
        if item.holds:
            for holds in (actor.holds, parking.held):
                holds.remove(*used(item.message))
        if len(parking):
            parking.retry()

    # -- adopted memory ------------------------------------------------------------------------------------------------

    def _issue(self, adopted: Adopted, op: Pending, actor: "ActorThread", ticket: int) -> None:
        """The value of a turn names an array of the actor's."""
        block = adopted.block
        block.issued += 1
        if block in self.dying:
            self.dying.remove(block)
        self._context.admission.buffers[block.id] = block
        block.writer, block.wrote, block.source = actor.track, ticket, op
        block.only = None

    def _take_back(self, adopted: Adopted) -> None:
        if adopted.block.give(self._context.pool):
            self._context.admission.buffers.pop(adopted.block.id, None)
