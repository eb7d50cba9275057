"""The hot path of a context host: from a call whose plan is ready to its launch; a few microseconds.

generation and extents -> producers' failures -> waits -> launch -> sequence number, in one straight function.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from callboard.core.backend import AccelDevice
from callboard.core.errors import AccelError, ContextPoisoned, GpuRefStale, OutOfMemory, ShapeError, Unrecoverable
from callboard.device.host.context.admission.arenas import Arenas
from callboard.device.host.context.admission.elsewhere import ExternalBlocks
from callboard.device.host.context.admission.refusing import Refusing
from callboard.device.host.context.blocks import Block, BlockPool, BlockUse
from callboard.device.host.context.ledger import Ledger
from callboard.device.host.context.parking import ROOM
from callboard.device.host.context.pending import FAILED, OK, Pending
from callboard.device.host.context.plans.plan import Plan
from callboard.device.host.context.timelines import Timeline
from callboard.device.protocol.messages import Call

__all__ = ["Launching"]

_use = tuple.__new__  # a NamedTuple's own constructor costs twice as much


class Launching:
    """Launches calls.

    Args:
        device, pool, elsewhere: Device, pool and external blocks of the context.
        ledger: Notified of failed launches.
        refusing: Answers calls that cannot be launched.
        buffers, arenas: Shared with the admission.
        on_short: There is no memory for a call's outputs.

    Attributes:
        longest: Seconds of work that may be done here, on the calling thread, where the stream is idle: 0 while other
            calls have come with this one.
    """

    def __init__(
        self,
        device: AccelDevice,
        pool: BlockPool,
        elsewhere: ExternalBlocks,
        ledger: Ledger,
        refusing: Refusing,
        buffers: dict[int, Block],
        arenas: Arenas,
        on_short: Callable[[Call, Plan, OutOfMemory], None],
    ) -> None:
        self._device = device
        self._pool = pool
        self._elsewhere = elsewhere
        self._ledger = ledger
        self._refusing = refusing
        self._buffers = buffers
        self._arenas = arenas
        self._mapped = arenas.mapped
        self._on_short = on_short
        self.longest = 0.0
        self._transfers: dict[Timeline, deque[tuple[int, int, int]]] = {}

    def launch_traced(self, call: Call, plan: Plan) -> None:
        """Like :meth:`launch`, while a trace is installed."""
        trace = self._ledger.trace
        assert trace is not None
        assert plan.library is not None
        around = trace.around
        if around is not None:
            trace.around = None
            around.begin(call.id, plan.tag)
            try:
                self.launch_traced(call, plan)
            finally:
                around.end()
                trace.around = around
            return
        if trace.left > 1:  # most ops, while one in many is recorded
            trace.left -= 1
            self.launch(call, plan)
            return
        trace.left = trace.every
        began = trace.clock()
        timeline = plan.library.timeline
        before, stream = timeline.issued, timeline.stream
        idle = timeline.completed == before
        start = trace.mark(stream)
        at = trace.clock() if idle else 0.0
        self.launch(call, plan)
        if timeline.issued > before:
            trace.launched(call.id, plan.tag, stream, began, start, at)
        else:
            trace.unused(start)

    def launch(self, call: Call, plan: Plan) -> None:
        """Launch a call, refuse it, or have it wait for memory.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        library = plan.library
        assert library is not None
        timeline = library.timeline
        if timeline.behind:
            timeline.catch_up()
        seq = timeline.issued + 1
        sources: list[Pending] = []
        known = None
        binding_cache = plan.binding_cache
        entered = False  # all are blocks already: their users are on this timeline
        bindings = tuple(call.bindings)
        if binding_cache is not None:
            known = binding_cache.by_bindings.get(bindings)
            if known is not None:
                entered = not plan.makes
                for block, buffer, _, reads_contents in known.uses:
                    if block.buffer != buffer:
                        known = None
                        break
                    if block.only is not timeline:
                        entered = False
                    source = block.source
                    if reads_contents and source is not None and source.state != OK:
                        if source.state == FAILED:
                            known = None
                            break
                        sources.append(source)
        if known is None or len(call.outputs) != plan.fresh:
            entered = False
            values = plan.blank.copy()
            uses: list[BlockUse] = []
            sources.clear()
            if not self._resolve(call, plan, values, uses, sources):
                return
            if binding_cache is not None:
                binding_cache.resolved(bindings, values, uses)
        else:
            values = known.values.copy()
            uses = known.uses.copy() if plan.makes else known.uses
        if plan.reals is not None:
            values[plan.reals] = call.numbers
        elif plan.numbers:
            plan.fill(values, call.numbers)
        if plan.makes:
            made: list[Block] = []
            if plan.recording:  # its graphs hold addresses
                self._pool.sort(layout.nbytes for _, _, layout in plan.makes)
            try:
                for at, item, layout in plan.makes:
                    if plan.pooled:
                        block = self._pool.take(layout.nbytes, None if plan.recording else timeline)
                    else:
                        block = self._elsewhere.take(plan.op, layout.nbytes)
                    made.append(block)
                    if item < 0:
                        values[at] = block.address
                    elif item == 0:
                        values[at] = [block.address]
                    else:
                        values[at].append(block.address)
            except OutOfMemory as e:
                for block in made:
                    self._pool.give(block)
                self._on_short(call, plan, e)
                return
            except (ContextPoisoned, Unrecoverable):
                raise
            except AccelError as e:  # of memory elsewhere
                self._refusing.refuse(call, plan, e)
                return
            for buffer, block in zip(call.outputs, made, strict=True):
                self._buffers[buffer] = block
                block.buffer = buffer
                block.unwritten = call.id if plan.tag == ROOM else 0
                uses.append(_use(BlockUse, (block, buffer, True, False)))
        if plan.recording and not call.numbers[0]:  # it is made ready, and writes nothing
            uses, sources, entered = [use._replace(writes=False) for use in uses], [], False
        if not entered:
            for block, _, writes, _ in uses:
                if block.only is not timeline:
                    block.enter(timeline, writes)
        if timeline.trails:
            timeline.record_event()
        for other in plan.beside:
            timeline.follow(other, other.issued)
            other.behind[timeline] = seq
        stream, here = timeline.stream, None
        if plan.recent <= self.longest and plan.calm and timeline.completed == timeline.issued:
            several = plan.recording and plan.recent * call.numbers[0] > self.longest
            here = None if several or (plan.able is not None and not plan.able()) else stream.at_once
            stream = stream if here is None else here
        timeline.issued = seq
        status = outcome = readback = error = None
        try:
            status = plan.launch(stream, plan.state, *values)  # type: ignore[misc]
            if here is not None:
                here.synchronize()
            if status is not None and status.nbytes:
                outcome = self._device.read_back(stream, status.address, status.nbytes)
            if plan.value is not None:
                readback = self._device.read_back(stream, values[plan.makes[0][0]], plan.value.nbytes)
        except Exception as e:  # likewise
            error = self._refusing.classified(e, plan)
        # Record the op for later ops and completions while the device is already at work.
        op = Pending(call.id, seq, plan, sources, status, outcome, readback)
        if error is None:
            timeline.ops.append(op)
        else:
            self._ledger.refuse(op, error)
        for block, _, writes, _ in uses:
            if writes:
                block.writer = timeline
                block.wrote = seq
                block.source = op
            else:
                block.readers[timeline] = seq
        plan.used = seq
        plan.launched += 1
        if here is not None:
            timeline.done()
        elif seq - timeline.recorded >= plan.event_interval:
            timeline.record_event()

    def _resolve(self, call: Call, plan: Plan, values: list[Any], uses: list[BlockUse], sources: list[Pending]) -> bool:
        """Find the operands of a call and check that they may be used; False: it has been refused, or parks."""
        bindings = call.bindings
        buffers = self._buffers
        failed: Pending | None = None
        if len(bindings) != plan.arity or len(call.outputs) != plan.fresh:
            error = f"{plan.tag}: the call brings {len(bindings) // 2} operands, {len(plan.bindings)} expected"
            self._refusing.refuse(call, plan, ShapeError(error))
            return False
        i = -2
        for at, item, host, reads, writes, whole, low, high, name in plan.bindings:
            i += 2
            offset = bindings[i + 1]
            if host:
                mapped = self._mapped.get(bindings[i])
                if mapped is None:
                    try:
                        mapped = self._arenas.find(bindings[i])
                    except OutOfMemory as e:
                        self._on_short(call, plan, e)
                        return False
                base, size = mapped
            else:
                block = buffers.get(bindings[i])
                if block is None:
                    self._refusing.refuse(
                        call, plan, GpuRefStale(f"{plan.tag}: {name} names no buffer of this context", "freed")
                    )
                    return False
                base, size = block.address, block.nbytes
                reads_contents = reads or whole != size
                source = block.source
                if source is not None:
                    if reads_contents:
                        if source.state == FAILED and (reads or not base):
                            failed = failed or source
                            if item == 0:
                                values[at] = []  # for the items after it
                            continue
                        if source.state != OK:
                            sources.append(source)
                    elif not base:  # refused before it had memory, and overwritten as a whole now
                        try:
                            base = self._pool.allocate(block)
                        except OutOfMemory as e:
                            self._on_short(call, plan, e)
                            return False
                uses.append(BlockUse(block, bindings[i], writes, reads_contents))
            if host and size >= 0 and plan.library is not None and plan.library.has_lanes:
                self._follow_transfers(plan.library.timeline, base + offset + low, base + offset + high)
            if offset + low < 0 or offset + high > size:
                error = (
                    f"{plan.tag}: {name} reaches bytes {offset + low}..{offset + high}, its buffer has {max(size, 0)}"
                )
                self._refusing.refuse(call, plan, ShapeError(error))
                return False
            if item < 0:
                values[at] = base + offset
            elif item == 0:
                values[at] = [base + offset]
            else:
                values[at].append(base + offset)
        if failed is not None:
            self._refusing.inherit(call, plan, failed)
            return False
        return True

    def _follow_transfers(self, timeline: Timeline, low: int, high: int) -> None:
        """Order a transfer after those of other streams that use the same host memory."""
        for other, ranges in self._transfers.items():
            while ranges and ranges[0][0] <= other.completed:
                ranges.popleft()
            if other is not timeline:
                for seq, start, end in ranges:
                    if start < high and low < end:
                        timeline.follow(other, seq)
        self._transfers.setdefault(timeline, deque()).append((timeline.issued + 1, low, high))
