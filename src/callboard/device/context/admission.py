"""Admission: one op after the other, in program order, from message to launch.

resolve -> generation and extents -> producers' failures -> waits -> launch -> ticket, for op *i* before op *i+1* is
looked at. This is the hot path of a context host: a few microseconds per op, so it is one straight function.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

from callboard.core.backend import AccelDevice, Memory
from callboard.core.errors import (
    AccelError,
    ContextPoisoned,
    GpuRefStale,
    LibraryError,
    OutOfMemory,
    ShapeError,
    Unrecoverable,
    Withdrawn,
)
from callboard.core.layout import OpenLayout
from callboard.device.context.blocks import Block, BlockPool, Use
from callboard.device.context.libraries import Libraries, LibraryActor
from callboard.device.context.parking import Parking
from callboard.device.context.pending import FAILED, OK, Pending
from callboard.device.context.plans import Plan, Plans, read_plan
from callboard.device.context.preparing import Helper, Sizing
from callboard.device.context.tracks import SEAL_EVERY
from callboard.device.context.verdicts import Ledger
from callboard.device.protocol import Call, Plain

__all__ = ["Admission"]

LONG, PATIENCE = 200e-6, 3
"""Seconds that launching may hold a visitor's thread, and how many launches of a plan in a row may take longer."""


class Admission:
    """Admits calls and frees.

    Attributes:
        plans: What the heads mean that have been seen.
        sizing: Sizes outputs whose extents depend on data.
        buffers: Block of every buffer that the application can name.
        arenas: Address and size of every mapped arena.
    """

    def __init__(
        self,
        device: AccelDevice,
        pool: BlockPool,
        libraries: Libraries,
        ledger: Ledger,
        parking: Parking,
        helper: Helper,
        on_memory_short: Callable[[], None],
    ) -> None:
        self._device = device
        self._pool = pool
        self._libraries = libraries
        self._ledger = ledger
        self._parking = parking
        self._helper = helper
        self._on_memory_short = on_memory_short
        self.plans = Plans()
        self._last_chance = 0  # the op for which memory has been freed: it is not retried again
        self.buffers: dict[int, Block] = {}
        self.sizing = Sizing(self.buffers, parking, helper, self._dispatch, self._park, self._refuse, self._classified)
        self.arenas: dict[int, tuple[int, int]] = {}

    # -- entry points --------------------------------------------------------------------------------------------------

    def calls(self, calls: Iterable[Call]) -> None:
        """Admit a batch.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead; nothing more can be admitted.
        """
        plans, parking = self.plans.by_head, self._parking
        launch = self._launch if self._ledger.trace is None else self._launch_traced
        for call in calls:
            plan = plans.get(call.head)
            if plan is None or plan.launch is None or parking.active or call.withdrawn:
                self._look(call)
            else:
                launch(call, plan)

    def call(self, call: Call) -> None:
        """Admit one call. Raises as :meth:`calls`."""
        plan = self.plans.by_head.get(call.head)
        if plan is None or plan.launch is None or self._parking.active or call.withdrawn:
            self._look(call)
        elif self._ledger.trace is None:
            self._launch(call, plan)
        else:
            self._launch_traced(call, plan)

    def at_once(self, call: Call) -> bool:
        """Admit a call of a kind that has been launched before, if memory and order let it be launched now.

        Returns:
            False: nothing has been done with it.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        plan = self.plans.by_head.get(call.head)
        if plan is None or plan.launch is None or not plan.launched or self._parking.active or call.withdrawn:
            return False
        if plan.held >= PATIENCE or (plan.makes and not all(self._pool.has(n.nbytes) for _, _, n in plan.makes)):
            return False
        began = time.perf_counter()
        self._dispatch(call, plan)
        plan.held = plan.held + 1 if time.perf_counter() - began > LONG else 0
        return True

    def memory_was_freed(self) -> None:
        """The application has sent its frees: retry what waits for memory, once."""
        self._parking.closed = False
        self._parking.retry()

    # -- the careful path ----------------------------------------------------------------------------------------------

    def _look(self, call: Call) -> None:
        if not call.head:
            self._free(call)
            return
        plan = self.plans.by_head.get(call.head) or self._plan(call.head)
        refused = plan.error is not None or call.withdrawn
        if not plan.ready and not refused:
            self._park(call, plan)
        elif self._parking.active and self._parking.blocks(*_named(call, plan), _stem(plan)):
            self._park(call, plan)  # a refusal, too, has its place in the order: what is parked may still read or write
        elif refused:
            self._refuse(call, plan, plan.error or Withdrawn(f"{plan.tag} was cancelled before it was sent"))
        elif plan.measure is not None:
            self.sizing.take(call, plan)
        else:
            self._dispatch(call, plan)

    def _dispatch(self, call: Call, plan: Plan) -> None:
        (self._launch if self._ledger.trace is None else self._launch_traced)(call, plan)

    def _launch_traced(self, call: Call, plan: Plan) -> None:
        trace = self._ledger.trace
        assert trace is not None
        assert plan.library is not None
        began = trace.clock()
        track = plan.library.track
        before = track.issued
        self._launch(call, plan)
        if track.issued > before:
            trace.enqueued(call.id, plan.tag, track.stream.id, began)

    def _park(self, call: Call, plan: Plan) -> None:
        stem: str | None = _stem(plan)
        if stem == "memory" and plan.launch is not None:
            stem = None  # it has no state whose order matters: a get of one array must not hold up those of others
        plan.parked += 1

        def again(message: Plain) -> None:
            plan.parked -= 1
            self._again(message)

        self._parking.park(call, again, *_named(call, plan), stem)

    def _again(self, message: Plain) -> None:
        assert isinstance(message, Call)
        self._look(message)

    def _free(self, call: Call) -> None:
        if self._parking.active and self._parking.blocks((), call.made, None):
            self._parking.park(call, self._again, (), call.made, None)
            return
        for buffer in call.made:
            block = self.buffers.get(buffer)
            if block is not None and block.give(self._pool):
                del self.buffers[buffer]

    def _plan(self, head: bytes) -> Plan:
        try:
            plan = read_plan(head)
        except Exception as e:  # a head is the other end's bytes: one that cannot be read is refused, whatever is wrong
            return self._refused(e if isinstance(e, AccelError) else ShapeError(f"{type(e).__name__}: {e}"))
        try:
            actor = self._libraries.serve(plan)
            helper = actor.needs_helper(plan)
            if helper is False:
                helper = not actor.prepare_at_once(plan)
        except Exception as e:  # of a library; what it means is classified
            plan.refuse(self._classified(e, plan))
            return plan
        if helper:
            methods = plan.launch, plan.late
            plan.launch = plan.late = None  # parked until the helper is done

            def done(error: BaseException | None) -> None:
                if error is None:
                    plan.launch, plan.late = methods
                    if self.plans.by_head.get(head) is not plan:  # its library was given up meanwhile
                        self.plans.release(plan)
                else:
                    plan.refuse(self._classified(error, plan))
                    self.plans.by_head[head] = plan  # what is parked finds the refusal, and does not prepare again
                self._parking.retry()
                if error is not None:
                    self.plans.refused(head, actor.stem)

            self._helper.run(plan.tag, lambda: actor.prepare(plan), done)
        self.plans.add(head, plan)
        return plan

    def _refused(self, error: AccelError) -> Plan:
        plan = Plan.__new__(Plan)
        plan.error, plan.tag = error, "?"
        plan.launch = plan.late = plan.measure = None
        plan.makes, plan.places, plan.parked = (), (), 0
        return plan

    # -- the hot path --------------------------------------------------------------------------------------------------

    def _launch(self, call: Call, plan: Plan) -> None:
        library = plan.library
        assert library is not None
        track = library.track
        ticket = track.issued + 1
        sources: list[Pending] = []
        binding = None
        bindings = plan.bindings
        entered = False  # all blocks already: what uses them is on this track
        if bindings is not None:
            places = tuple(call.places)
            binding = bindings.by_places.get(places)
            if binding is not None:
                entered = not plan.makes
                for block, buffer, _, heeds in binding.uses:
                    if block.buffer != buffer:
                        binding = None
                        break
                    if block.only is not track:
                        entered = False
                    source = block.source
                    if heeds and source is not None and source.state != OK:
                        if source.state == FAILED:
                            binding = None
                            break
                        sources.append(source)
        if binding is None or len(call.made) != plan.fresh:
            entered = False
            values = plan.blank.copy()
            uses: list[Use] = []
            sources.clear()
            if not self._resolve(call, plan, values, uses, sources):
                return
            if bindings is not None:
                bindings.resolved(places, values, uses)
        else:
            values = binding.values.copy()
            uses = binding.uses.copy() if plan.makes else binding.uses
        if plan.reals is not None:
            values[plan.reals] = call.numbers
        elif plan.numbers:
            plan.fill(values, call.numbers)
        if plan.makes:
            made: list[Block] = []
            try:
                for at, item, layout in plan.makes:
                    block = self._pool.take(layout.nbytes)
                    made.append(block)
                    if item < 0:
                        values[at] = block.address
                    elif item == 0:
                        values[at] = [block.address]
                    else:
                        values[at].append(block.address)
            except OutOfMemory as e:
                self._short(call, plan, made, e)
                return
            for buffer, block in zip(call.made, made, strict=True):
                self.buffers[buffer] = block
                block.buffer = buffer
                uses.append(Use(block, buffer, True, False))
        if not entered:
            for block, _, writes, _ in uses:
                if block.only is not track:
                    block.enter(track, writes)
        if track.trails:
            track.seal()
        track.issued = ticket
        check = readback = error = None
        try:
            check = plan.launch(track.stream, plan.state, *values)  # type: ignore[misc]
            if plan.value is not None:
                readback = self._device.read_back(track.stream, values[plan.makes[0][0]], plan.value.nbytes)
        except Exception as e:  # likewise
            error = self._classified(e, plan)
        # What others are to know of it is noted while the device is at work.
        op = Pending(call.id, ticket, plan, sources, check, readback)
        if error is None:
            track.ops.append(op)
        else:
            self._ledger.refuse(op, error)
        for block, _, writes, _ in uses:
            if writes:
                block.writer = track
                block.wrote = ticket
                block.source = op
            else:
                block.readers[track] = ticket
        plan.used = ticket
        plan.launched += 1
        if ticket - track.sealed >= SEAL_EVERY:
            track.seal()

    def _resolve(self, call: Call, plan: Plan, values: list[Any], uses: list[Use], sources: list[Pending]) -> bool:
        """Find the operands of a call and check that they may be used; False: it has been refused, or parks."""
        places = call.places
        buffers = self.buffers
        failed: Pending | None = None
        if len(places) != plan.arity or len(call.made) != plan.fresh:
            error = f"{plan.tag}: the call brings {len(places) // 2} operands, {len(plan.places)} expected"
            self._refuse(call, plan, ShapeError(error))
            return False
        i = -2
        for at, item, host, reads, writes, whole, low, high, name in plan.places:
            i += 2
            offset = places[i + 1]
            if host:
                base, size = self.arenas.get(places[i], (0, -1))
            else:
                block = buffers.get(places[i])
                if block is None:
                    self._refuse(
                        call, plan, GpuRefStale(f"{plan.tag}: {name} names no buffer of this context", "freed")
                    )
                    return False
                base, size = block.address, block.nbytes
                heeds = reads or whole != size
                source = block.source
                if source is not None:
                    if heeds:
                        if source.state == FAILED and (reads or not base):
                            failed = failed or source
                            continue
                        if source.state != OK:
                            sources.append(source)
                    elif not base:  # refused before it had memory, and overwritten as a whole now
                        try:
                            base = self._pool.furnish(block)
                        except OutOfMemory as e:
                            self._short(call, plan, [], e)
                            return False
                uses.append(Use(block, places[i], writes, heeds))
            if offset + low < 0 or offset + high > size:
                error = (
                    f"{plan.tag}: {name} reaches bytes {offset + low}..{offset + high}, its buffer has {max(size, 0)}"
                )
                self._refuse(call, plan, ShapeError(error))
                return False
            if item < 0:
                values[at] = base + offset
            elif item == 0:
                values[at] = [base + offset]
            else:
                values[at].append(base + offset)
        if failed is not None:
            self._inherit(call, plan, failed)
            return False
        return True

    # -- refusals ------------------------------------------------------------------------------------------------------

    def _refuse(self, call: Call, plan: Plan, error: BaseException) -> None:
        """Answer a call that is not launched; everything it would have written fails for its readers."""
        op = Pending(call.id, 0, None, ())
        self._ledger.refuse(op, error)
        self._fail_outputs(call, op, plan)

    def _inherit(self, call: Call, plan: Plan, source: Pending) -> None:
        op = Pending(call.id, 0, None, ())
        self._ledger.inherit(op, source, f"{plan.tag} read what op {source.root} owed")
        self._fail_outputs(call, op, plan)

    def _fail_outputs(self, call: Call, op: Pending, plan: Plan) -> None:
        for i, place in enumerate(plan.places):
            block = self.buffers.get(call.places[2 * i]) if place.writes and 2 * i < len(call.places) else None
            if block is not None:
                block.source = op
        for i, buffer in enumerate(call.made):
            if buffer not in self.buffers:
                layout = plan.makes[i][2] if i < len(plan.makes) else None
                nbytes = 0 if layout is None or isinstance(layout, OpenLayout) else layout.nbytes
                block = self.buffers[buffer] = Block(NO_MEMORY, nbytes)
                block.source = op

    def _short(self, call: Call, plan: Plan, made: list[Block], error: OutOfMemory) -> None:
        """No memory: have the application send its frees and try once more, then fail."""
        for block in made:
            self._pool.give(block)
        if call.id == self._last_chance:
            self._refuse(call, plan, error)
            return
        self._last_chance = call.id
        self._park(call, plan)
        self._parking.closed = True
        self._on_memory_short()

    def _classified(self, error: BaseException, plan: Plan) -> AccelError:
        """What an exception of a library means (DESIGN §7).

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        if isinstance(error, ContextPoisoned | Unrecoverable):
            raise error
        if isinstance(error, AccelError) and not isinstance(error, LibraryError):
            return error
        dead = self._device.probe()
        if dead is not None:
            raise dead from error
        if isinstance(error, LibraryError):
            return error
        stem = plan.tag.partition(".")[0]
        actor = self._libraries.actors.get(stem)
        if actor is not None:
            actor.restart(lambda: self._give_up(actor))
        return LibraryError(f"{plan.tag}: {type(error).__name__}: {error}; the {stem} handle was made again", stem)

    def _give_up(self, actor: LibraryActor) -> None:
        """Drop the plans of a library; its stream has been synchronised."""
        self.plans.forget(actor.stem)
        tracks = list({a.track: None for a in self._libraries.actors.values()})  # sources may be of others
        for track in tracks:
            track.poll()
        self._ledger.settle(tracks)  # what is done looks at how it ended, maybe with its plan's help
        self.plans.sweep()


def _stem(plan: Plan) -> str:
    return plan.tag.partition(".")[0]


def _named(call: Call, plan: Plan) -> tuple[list[int], list[int]]:
    """Buffers that a call reads only; those that it writes or makes."""
    reads: list[int] = []
    writes = list(call.made)
    for place, buffer in zip(plan.places, call.places[::2], strict=False):
        if not place.host:
            (writes if place.writes else reads).append(buffer)
    return reads, writes


NO_MEMORY = Memory(0, 0)
"""Of a buffer whose op was refused: it can be named, and whoever reads it gets the op's error. An op that overwrites
all of it gives it memory."""
