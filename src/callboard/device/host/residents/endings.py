"""``CallEndings``: settles resident actors' calls: completion, sequence number, held arrays, adopted memory."""

from typing import TYPE_CHECKING

from callboard.device.host.context.pending import FAILED, FLYING, Pending
from callboard.device.host.residents.item import EndedCall, Item, used
from callboard.device.host.residents.operands import Adopted, AdoptedBlock

if TYPE_CHECKING:
    from callboard.device.host.context.actor import ContextActor
    from callboard.device.host.residents.apart.holder import Holder
    from callboard.device.host.residents.thread.thread import ActorThread

__all__ = ["CallEndings"]


class CallEndings:
    """Ends the calls of one context; used on the admitting thread.

    Args:
        context: Open, and the active one of the device.
        running: Calls that have not ended, by id.

    Attributes:
        on_host: The device is the CPU.
        dying: Blocks without a ref whose memory is still in use.
    """

    def __init__(self, context: "ContextActor", running: "dict[int, tuple[ActorThread | Holder, Item]]") -> None:
        self._context = context
        self._running = running
        self.on_host = context.device.info.compute_capability == (0, 0)
        self._undecided: list[EndedCall] = []
        self._issued: list[tuple[Pending, list[Adopted]]] = []  # arrays in the values of calls that are not settled
        self.dying: list[AdoptedBlock] = []

    def end(self, ended: EndedCall) -> None:
        """Settle a call that has ended."""
        if ended.trim:
            self.trim()
        if ended.failure is not None:
            self.fail(ended)
            return
        op, actor = ended.item.op, ended.actor
        op.answer = ended.value
        op.seq = seq = self._next_seq(actor, follows=self._follow(ended))
        self._trace(ended)
        if ended.adopted:
            self._issued.append((op, ended.adopted))
            for adopted in ended.adopted:
                self._issue(adopted, op, actor, seq)
        self._finish(ended.item, actor, seq)

    @property
    def pending(self) -> bool:
        """True if calls that have ended are not settled, or memory is to be given back."""
        return bool(self._undecided or self._issued or self.dying)

    def fail(self, ended: EndedCall) -> None:
        """Settle a failed call: with its own failure, unless an op failed whose result it read."""
        op, failure = ended.item.op, ended.failure
        if ended.item.message.shared and ended.actor.timeline is not None:
            ended.actor.timeline.stream.synchronize()  # the actor's enqueued work writes to another host's memory
        if any(source.state == FLYING for source in op.sources):
            self._undecided.append(ended)
            return
        assert failure is not None
        ledger = self._context.ledger
        source = next((s for s in op.sources if s.state == FAILED), None)
        if source is not None:
            ledger.inherit(op, source)
        else:
            ledger.fail(op, failure)
        self._trace(ended, failed=True)
        if ended.asked:
            ended.actor.decide(own=source is None)
        item, seq = ended.item, 0
        if item.blocks and item.began:
            seq = self._next_seq(ended.actor, follows=self._follow(ended))
        self._finish(item, ended.actor, seq)

    def _trace(self, ended: EndedCall, failed: bool = False) -> None:
        """Record a call that ran, if its turn has come; of one that succeeded, the ledger notes the completion."""
        trace, item, timeline = self._context.ledger.trace, ended.item, ended.actor.timeline
        if trace is None or timeline is None or not item.began or trace.skips_call():
            return
        tag, done = f"actor:{ended.actor.name}.{item.method}", timeline.completed == timeline.issued
        trace.called(item.op.id, tag, timeline.stream.id, item.began, item.ended, done=done)
        if failed:
            trace.completed(item.op.id, ok=False)

    def settle(self) -> bool:
        """Decide calls that waited for completions, once the context has settled; True if ops may be launched."""
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

    def unanswered(self, actor: "ActorThread | Holder") -> list[Item]:
        """The calls of an actor that have not ended."""
        ended = {undecided.item.message.id for undecided in self._undecided}
        return [item for call, (owner, item) in self._running.items() if owner is actor and call not in ended]

    def trim(self) -> None:
        """Release cached memory, because memory was short."""
        self._context.pool.trim()
        self._context.device.trim()

    def _follow(self, ended: EndedCall) -> bool:
        """Order a call's end after users of its arrays that it was not admitted behind.

        Arrays that it may have written have one if another actor has lent their memory again meanwhile, or a borrower
        has returned it.

        Returns:
            Whether arrays that it lends again have any.
        """
        timeline, follows = ended.actor.timeline, False
        assert timeline is not None
        for block, writes in ended.item.blocks if ended.item.began else ():
            if writes and block.writer is not None and block.writer is not timeline:
                timeline.follow(block.writer, block.wrote)
        for adopted in ended.adopted:
            if not adopted.block.idle():
                adopted.block.before_write(timeline)
                follows = True
        return follows

    def _next_seq(self, actor: "ActorThread | Holder", *, follows: bool = False) -> int:
        """The call's sequence number.

        On a CPU its work is done when it ends, unless its stream ``follows`` others; on a GPU the stream may still run
        it.
        """
        timeline = actor.timeline
        assert timeline is not None
        done = self.on_host and not follows and timeline.completed == timeline.issued
        timeline.issued += 1
        if done:
            timeline.recorded = timeline.completed = timeline.issued
        elif self.on_host or not timeline.poll_idle():
            timeline.record_event()  # the stream is not idle while the actor's next call enqueues on it
        return timeline.issued

    def _finish(self, item: Item, actor: "ActorThread | Holder", seq: int) -> None:
        """Record a call that has run as the last user of its device arrays, and release them.

        One that did not begin leaves the users of its arrays as they were: on a CPU only a call that runs waits for
        them, and they may still be in flight. So does one that another process ran: its arrays were idle when they were
        held for it, and its work is done.
        """
        op, timeline = item.op, actor.timeline
        assert timeline is not None
        del self._running[item.message.id]
        for block, writes in item.blocks if item.began else ():
            block.only = None
            if writes:
                block.readers.clear()
                block.writer, block.wrote = timeline, seq
            else:
                block.readers[timeline] = seq
        if op.state == FLYING:
            timeline.ops.append(op)
        if item.holds:
            self._context.parking.release(*used(item.message), actor.holds)

    # -- adopted memory ------------------------------------------------------------------------------------------------

    def _issue(self, adopted: Adopted, op: Pending, actor: "ActorThread | Holder", seq: int) -> None:
        """The value of a call contains an array of the actor: make it a buffer of the context."""
        block = adopted.block
        block.issued += 1
        if block in self.dying:
            self.dying.remove(block)
        self._context.admission.buffers[block.id] = block
        block.writer, block.wrote = actor.timeline, seq
        if block.source is None or block.source.state != FLYING:  # else readers get its failure, if it fails
            block.source = op
        block.only = None

    def _take_back(self, adopted: Adopted) -> None:
        if adopted.block.give(self._context.pool):
            self._context.admission.buffers.pop(adopted.block.id, None)
