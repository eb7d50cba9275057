"""What comes before a launch and may block: prepares and measures, on one helper thread.

So the admitting thread never blocks.
"""

import functools
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from callboard.core.errors import AccelError, LibraryError
from callboard.core.library import Extents
from callboard.device.context.blocks import Block
from callboard.device.context.parking import Parking
from callboard.device.context.pending import FAILED, FLYING, Pending
from callboard.device.context.plans import Plan
from callboard.device.protocol import Call

__all__ = ["Helper", "Sizing"]

Done = Callable[[BaseException | None], None]


class Helper:
    """Runs one job after the other; their ends are handed back on the admitting thread by :meth:`finish`.

    Args:
        enter: Called once on the helper's thread (makes the context current).
        busy: Announces what runs, so that its silence is no hang; None when nothing does.
        wake: Wakes the admitting thread.

    Attributes:
        jobs: Those that have not been handed back.
    """

    def __init__(self, enter: Callable[[], None], busy: Callable[[str | None], None], wake: Callable[[], None]) -> None:
        self._enter = enter
        self._busy = busy
        self._wake = wake
        self._jobs: queue.SimpleQueue[tuple[str, Callable[[], None], Done] | None] = queue.SimpleQueue()
        self._ended: deque[tuple[Done, BaseException | None]] = deque()
        self._thread: threading.Thread | None = None
        self.jobs = 0

    def run(self, what: str, job: Callable[[], None], done: Done) -> None:
        """Run ``job`` on the helper's thread, then ``done(error or None)`` on the admitting thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="callboard-helper", daemon=True)
            self._thread.start()
        self.jobs += 1
        self._jobs.put((what, job, done))

    def finish(self) -> None:
        """Hand back what has ended; on the admitting thread."""
        while self._ended:
            done, error = self._ended.popleft()
            self.jobs -= 1
            done(error)

    def close(self) -> None:
        """Let the thread end after its current job."""
        if self._thread is not None:
            self._jobs.put(None)

    def _serve(self) -> None:
        entered = False
        while (entry := self._jobs.get()) is not None:
            what, job, done = entry
            error: BaseException | None = None
            self._busy(what)
            try:
                if not entered:
                    self._enter()
                    entered = True
                job()
            except BaseException as e:  # of the job, whatever it is: it is judged on the admitting thread
                error = e
            finally:
                self._busy(None)
            self._ended.append((done, error))
            self._wake()


class Measure:
    """A call whose outputs have to be sized before it can be launched.

    Attributes:
        plan: What it is sized with.
        values: The arguments of the library's measure.
        started: It is being measured, or has been.
        extents: What was measured.
        error: Why it failed.
    """

    __slots__ = ("_sources", "_ticket", "error", "extents", "plan", "started", "values")

    def __init__(self, plan: Plan, values: Sequence[Any], sources: Sequence[Pending]) -> None:
        self.plan = plan
        self.values = values
        self.started = False
        self.extents: Extents | None = None
        self.error: AccelError | None = None
        self._sources = sources
        track = plan.track
        track.issued += 1  # a ticket of nothing: it is done when all that the operands wait for is
        self._ticket = track.issued
        track.seal()

    @property
    def waits(self) -> bool:
        """Whether its operands are not there yet."""
        return self.plan.track.completed < self._ticket or any(s.state == FLYING for s in self._sources)

    def run(self) -> None:
        """Measure; on the helper's thread."""
        assert self.plan.measure is not None
        self.extents = self.plan.measure(self.plan.state, *self.values)


class Sizing:
    """Sizes the outputs of calls whose extents depend on data, then has them launched as any other.

    A call is parked, and with it its library, until its operands are there and its extents have been measured.

    Args:
        buffers, parking, helper: Those of the admission.
        launch, park, refuse, classified: What the admission does.
    """

    def __init__(
        self,
        buffers: Mapping[int, Block],
        parking: Parking,
        helper: Helper,
        launch: Callable[[Call, Plan], None],
        park: Callable[[Call, Plan], None],
        refuse: Callable[[Call, Plan, BaseException], None],
        classified: Callable[[BaseException, Plan], AccelError],
    ) -> None:
        self._buffers = buffers
        self._parking = parking
        self._helper = helper
        self._launch = launch
        self._park = park
        self._refuse = refuse
        self._classified = classified
        self._measures: dict[int, Measure] = {}

    def take(self, call: Call, plan: Plan) -> None:
        """Go as far as the call can go now."""
        measure = self._measures.get(call.id)
        if measure is not None and measure.error is not None:
            self._forget(call)
            self._refuse(call, plan, measure.error)
            return
        if measure is None or measure.plan is not plan:  # else its library was given up meanwhile
            self._forget(call)
            measure = self._begin(call, plan)
            if measure is None:
                self._launch(call, plan)  # refuses it, and says why
                return
        if measure.extents is not None:
            self._finish(call, plan, measure.extents)
            return
        if not measure.started and not measure.waits:
            if self._operands_failed(call, plan):
                self._forget(call)
                self._launch(call, plan)
                return
            measure.started = True
            self._helper.run(plan.tag, measure.run, functools.partial(self._measured, measure))
        self._park(call, plan)

    def advance(self) -> bool:
        """Look whether operands have come; True while some are waited for."""
        if not self._measures:
            return False
        waiting = [m for m in self._measures.values() if not m.started]
        if not all(m.waits for m in waiting):
            self._parking.retry()
        return bool(waiting)

    def _begin(self, call: Call, plan: Plan) -> Measure | None:
        """Make the library's stream wait for the operands; None if the call is to be refused."""
        if len(call.places) != plan.arity or len(call.made) != plan.fresh or self._operands_failed(call, plan):
            return None
        values = plan.blank.copy()
        sources: list[Pending] = []
        for place, buffer, offset in zip(plan.places, call.places[::2], call.places[1::2], strict=True):
            block = self._buffers[buffer]
            if offset + place.low < 0 or offset + place.high > block.nbytes:
                return None
            if place.reads:
                block.before_read(plan.track)
                if block.source is not None:
                    sources.append(block.source)
            if place.item > 0:
                values[place.at].append(block.address + offset)
            else:
                values[place.at] = block.address + offset if place.item < 0 else [block.address + offset]
        plan.fill(values, call.numbers)
        measure = self._measures[call.id] = Measure(plan, values, sources)
        plan.parked += 1
        return measure

    def _operands_failed(self, call: Call, plan: Plan) -> bool:
        """Whether a launch would refuse the call for the sake of its operands."""
        for place, buffer in zip(plan.places, call.places[::2], strict=True):
            block = self._buffers.get(buffer)
            source = None if block is None else block.source
            if block is None or (source is not None and source.state == FAILED and (place.reads or not block.address)):
                return True
        return False

    def _measured(self, measure: Measure, error: BaseException | None) -> None:
        if error is not None:
            measure.error = self._classified(error, measure.plan)
        self._parking.retry()

    def _finish(self, call: Call, plan: Plan, extents: Extents) -> None:
        try:
            sized = plan.sized(extents)
        except LibraryError as e:
            self._forget(call)
            self._refuse(call, plan, e)
            return
        self._launch(call, sized)
        plan.used, plan.launched = sized.used, sized.launched
        if self._parking.closed:
            return  # it waits for memory; what was measured still holds
        self._forget(call)
        ops = plan.track.ops
        if plan.open and ops and ops[-1].id == call.id:
            ops[-1].answer = {"shapes": [list(map(int, shape)) for shape in extents]}

    def _forget(self, call: Call) -> None:
        measure = self._measures.pop(call.id, None)
        if measure is not None:
            measure.plan.parked -= 1
