"""``Admission``: one op after the other, in program order, from message to launch.

The steps for op *i* (resolve -> generation and extents -> producers' failures -> waits -> launch -> sequence number)
finish before op *i+1* is read. A ready op is launched at once (``launching.py``); any other op takes the slower path in
this module.
"""

import time
from collections.abc import Callable, Collection, Sequence

import msgspec

from callboard.core.backend import AccelDevice
from callboard.core.errors import AccelError, OutOfMemory, ShapeError, Withdrawn
from callboard.device.host.context.admission.arenas import Arenas
from callboard.device.host.context.admission.deciding import Deciding
from callboard.device.host.context.admission.elsewhere import ExternalBlocks
from callboard.device.host.context.admission.graphs import Graphs
from callboard.device.host.context.admission.launching import Launching
from callboard.device.host.context.admission.refusing import Refusing
from callboard.device.host.context.admission.shortage import shortage
from callboard.device.host.context.blocks import Block, BlockPool
from callboard.device.host.context.ledger import Ledger
from callboard.device.host.context.libraries import Libraries
from callboard.device.host.context.parking import Parking
from callboard.device.host.context.plans.cache import Plans
from callboard.device.host.context.plans.plan import BRIEF, MODEST, Plan, read_plan, unreadable
from callboard.device.host.context.preparing import Helper, Sizing
from callboard.device.host.context.streams import SharedStreams
from callboard.device.protocol.messages import Call, Plain
from callboard.device.protocol.recording import MARK

__all__ = ["Admission"]

FEW = 3
"""Calls that may come together where only one of them is an op that has come alone."""
LONG, PATIENCE = 200e-6, 3
"""Seconds that an inline launch may take, and how many inline launches of a plan in a row may take longer."""


class Admission:
    """Admits calls and frees.

    Attributes:
        launching, refusing: Objects that launch a call, or answer a call that cannot be launched.
        deciding: Asks the application's supervisor about failures.
        plans: Host plans by signature.
        graphs: Makes the plans of recordings.
        sizing: Sizes outputs whose extents depend on data.
        buffers: Block of every buffer that the application can name.
        arenas: The arenas that the application has announced.
        longest: Seconds of work of a call that has come alone that may be done on the calling thread.
    """

    def __init__(
        self,
        device: AccelDevice,
        pool: BlockPool,
        elsewhere: ExternalBlocks,
        libraries: Libraries,
        streams: SharedStreams,
        ledger: Ledger,
        parking: Parking,
        helper: Helper,
        arenas: Arenas,
        on_memory_short: Callable[[], None],
        asks: Collection[str] = (),
    ) -> None:
        self._pool = pool
        self._libraries = libraries
        self._streams = streams
        self._ledger = ledger
        self._parking = parking
        self._helper = helper
        self._on_memory_short = on_memory_short
        self._last_chance = 0  # the op for which memory has been freed: it is not retried again
        self.deciding = Deciding(asks, parking)
        self.plans = Plans()
        self.buffers: dict[int, Block] = {}
        self.arenas = arenas
        self.longest = MODEST
        self.graphs = Graphs(device, libraries.streams, self.plans, self._plan)
        self.refusing = Refusing(device, libraries, ledger, self.deciding, self.plans, self.buffers)
        self.launching = Launching(
            device, pool, elsewhere, ledger, self.refusing, self.buffers, self.arenas, self._short
        )
        self.sizing = Sizing(
            self.buffers,
            parking,
            helper,
            self._launch,
            self._park,
            self.refusing.refuse,
            self.refusing.classified,
        )

    # -- entry points --------------------------------------------------------------------------------------------------

    def calls(self, calls: Sequence[Call]) -> None:
        """Admit a batch.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead; nothing more can be admitted.
        """
        launching, trace = self.launching, self._ledger.trace
        alone = len(calls) <= FEW and sum(call.id != 0 for call in calls) == 1  # the others are frees
        launching.longest = self.longest if alone and trace is None else 0.0
        if trace is None or trace.around is not None or trace.every == 1:
            self._launch_all(calls, launching.launch if trace is None else launching.launch_traced)
            return
        at = 0
        while at < len(calls):  # one in many is recorded; the others cost no more than without a trace
            plain = calls[at : at + trace.left - 1]
            trace.left -= len(plain)
            self._launch_all(plain, launching.launch)
            at += len(plain)
            self._launch_all(calls[at : at + 1], launching.launch_traced)
            at += 1

    def _launch_all(self, calls: Sequence[Call], launch: Callable[[Call, Plan], None]) -> None:
        plans, parking = self.plans.by_signature, self._parking
        for call in calls:
            plan = plans.get(call.signature)
            if plan is None or plan.launch is None or parking.active or call.withdrawn:
                self._look(call)
            else:
                launch(call, plan)

    def call(self, call: Call) -> None:
        """Admit one call. Raises as :meth:`calls`."""
        self.launching.longest = BRIEF if self._ledger.trace is None else 0.0
        plan = self.plans.by_signature.get(call.signature)
        if plan is None or plan.launch is None or self._parking.active or call.withdrawn:
            self._look(call)
        elif self._ledger.trace is None:
            self.launching.launch(call, plan)
        else:
            self.launching.launch_traced(call, plan)

    def at_once(self, call: Call) -> bool:
        """Admit a call of a kind that has been launched before, if memory and order let it be launched now.

        Returns:
            False: nothing has been done with it.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        plan = self.plans.by_signature.get(call.signature)
        if plan is None or plan.launch is None or not plan.launched or self._parking.active or call.withdrawn:
            return False
        if plan.held >= PATIENCE or (plan.makes and not all(self._pool.has(n.nbytes) for _, _, n in plan.makes)):
            return False
        self.launching.longest = 0.0
        began = time.perf_counter()
        self._launch(call, plan)
        plan.held = plan.held + 1 if time.perf_counter() - began > LONG else 0
        return True

    def execute(self, call: Call) -> bool:
        """Admit a call whose work is known to be short, and do that work here; or a free.

        Returns:
            False: nothing has been done with it.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        if self._parking.active or call.withdrawn or self._ledger.trace is not None:
            return False
        if not call.signature and not call.id:
            self._free(call)
            return True
        plan = self.plans.by_signature.get(call.signature)
        if plan is None or plan.launch is None or plan.recent > BRIEF or not (plan.calm and plan.light):
            return False
        if plan.recording and plan.recent * call.numbers[0] > BRIEF:  # it is replayed several times
            return False
        if plan.timeline.stream.at_once is None or (plan.able is not None and not plan.able()):
            return False
        if plan.makes and not all(self._pool.has(n.nbytes) for _, _, n in plan.makes):
            return False
        self.launching.longest = BRIEF
        self.launching.launch(call, plan)
        return True

    def memory_was_freed(self) -> None:
        """The application has sent its frees: retry ops that wait for memory, once."""
        self.deciding.trimmed()

    # -- the careful path ----------------------------------------------------------------------------------------------

    def _look(self, call: Call) -> None:
        if not call.signature and not call.id:
            self._free(call)
            return
        plan = self.plans.by_signature.get(call.signature) or self._plan(call.signature)
        refused = plan.error is not None or call.withdrawn
        if not plan.ready and not refused:
            until = self.graphs.advance(plan) if plan.recording else plan
            if until is not None:
                self._park(call, plan, until=until)
                return
            refused = plan.error is not None
        if self._parking.active and self._parking.blocks(*plan.named(call), plan.order, fence=plan.fence):
            self._park(call, plan)  # a refusal has its place in the order, too: parked ops may still read or write
        elif refused:
            self.refusing.refuse(call, plan, plan.error or Withdrawn(f"{plan.tag} was cancelled before it was sent"))
        elif plan.query_size is not None:
            self.sizing.take(call, plan)
        elif plan.late is not None:
            self._launch_fence(call, plan)
        else:
            self._launch(call, plan)

    def _launch(self, call: Call, plan: Plan) -> None:
        (self.launching.launch if self._ledger.trace is None else self.launching.launch_traced)(call, plan)

    def _launch_fence(self, call: Call, plan: Plan) -> None:
        """Launch a call that is ordered after more than its operands."""
        timeline, fence = plan.timeline, plan.fence
        if fence in ("aside", "ahead"):
            self._answer(call, plan)
            return
        self._streams.wait_for_all(timeline)
        issued = timeline.issued
        fenced = plan.sized(())
        self._launch(call, fenced)
        plan.used, plan.launched = fenced.used, fenced.launched
        if fence == "between" and timeline.issued > issued:
            self._streams.block_all_on(timeline)

    def _answer(self, call: Call, plan: Plan) -> None:
        """Answer a call that enqueues nothing."""
        assert plan.late is not None
        trace = self._ledger.trace
        began = 0.0 if trace is None else trace.clock()
        values = plan.blank.copy()
        try:
            plan.fill(values, call.numbers)
            status = plan.late(plan.timeline.stream, plan.state, *values)
            answer = None if status is None else status.answer()
        except Exception as e:  # an exception of a library, which is classified
            self.refusing.refuse(call, plan, self.refusing.classified(e, plan))
            return
        plan.launched += 1
        if trace is not None and not trace.skips():
            trace.enqueued(call.id, plan.tag, plan.timeline.stream.id, began)
        self._ledger.answer(call.id, answer)

    def _park(self, call: Call, plan: Plan, until: object = None, then: Callable[[Plain], None] | None = None) -> None:
        plan.pins += 1

        def again(message: Plain) -> None:
            plan.pins -= 1
            (then or self._again)(message)

        named = plan.named(call)
        self._parking.park(call, again, *named, plan.order, until=until, leads=plan.leads, fence=plan.fence)

    def _again(self, message: Plain) -> None:
        assert isinstance(message, Call)
        self._look(message)

    def _free(self, call: Call) -> None:
        """Free each buffer by itself: one that parked ops use must not keep those beside it from giving room."""
        parking, in_use = self._parking, []
        for buffer in call.outputs:
            if parking.active and parking.blocks((), (buffer,), None):
                in_use.append(buffer)
                continue
            block = self.buffers.get(buffer)
            if block is None:
                self.plans.release_recording(buffer)
            elif block.give(self._pool):
                del self.buffers[buffer]
        if in_use:
            parking.park(msgspec.structs.replace(call, outputs=in_use), self._again, (), in_use, None)

    def _plan(self, signature: bytes) -> Plan:
        if signature.startswith(MARK):
            return self.graphs.plan(signature)
        try:
            plan = read_plan(signature)
        except Exception as e:  # an exception of decoding bytes from the other end: whatever is unreadable is refused
            short = shortage(e, "the message of an op")  # its module is imported when the first one comes
            return unreadable(e if isinstance(e, AccelError) else short or ShapeError(f"{type(e).__name__}: {e}"))
        try:
            actor = self._libraries.serve(plan)
            actor.timeline.catch_up()  # work that the prepare enqueues follows replays with the same workspaces
            helper = actor.needs_helper(plan)
            if helper is False:
                helper = not actor.prepare_at_once(plan)
        except Exception as e:  # an exception of a library, which is classified
            plan.refuse(self.refusing.classified(e, plan))
            return plan
        if helper:
            methods = plan.launch, plan.late
            plan.launch = plan.late = None  # parked until the helper is done

            def done(error: BaseException | None) -> None:
                if error is None:
                    plan.launch, plan.late = methods
                    if self.plans.by_signature.get(signature) is not plan:  # its library was restarted meanwhile
                        self.plans.release(plan)
                else:
                    plan.refuse(self.refusing.classified(error, plan))
                    # Parked calls find the refusal, and do not prepare again.
                    self.plans.by_signature[signature] = plan
                self._parking.notify(plan)
                if error is not None:
                    self.plans.refused(signature, actor.lib)

            self._helper.run(plan.tag, lambda: actor.prepare(plan), done)
        self.plans.add(signature, plan)
        return plan

    def _short(self, call: Call, plan: Plan, error: OutOfMemory) -> None:
        """No memory: have the application send its frees and try once more, then fail; unless a supervisor decides."""
        again, self._last_chance = call.id == self._last_chance, call.id
        if self.deciding.asks_memory:
            shortage = self.deciding.short(plan.tag, error, again)

            def then(message: Plain) -> None:
                if shortage.refused:
                    self.refusing.short(call, plan, error)
                else:
                    self._again(message)

            self._park(call, plan, then=then)
        elif again:
            self.refusing.short(call, plan, error)
        else:
            self.deciding.trim()
            self._park(call, plan)
            self._on_memory_short()
