"""Work before a launch that may block: prepares and size queries, on one helper thread.

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
from callboard.device.host.context.blocks import Block
from callboard.device.host.context.parking import Parking
from callboard.device.host.context.pending import FAILED, FLYING, Pending
from callboard.device.host.context.plans.plan import Plan
from callboard.device.protocol.messages import Call

__all__ = ["Helper", "Sizing"]

Done = Callable[[BaseException | None], None]


class Helper:
    """Runs one job after the other; :meth:`finish` hands their results back on the admitting thread.

    Args:
        enter: Called once on the helper's thread (makes the context current).
        busy: Called with the name of the job that runs, so that a long one is not taken for a hang; None at its end.
        wake: Wakes the admitting thread.

    Attributes:
        jobs: Number of jobs whose results have not been handed back.
    """

    def __init__(self, enter: Callable[[], None], busy: Callable[[str | None], None], wake: Callable[[], None]) -> None:
        self._enter = enter
        self._busy = busy
        self._wake = wake
        self._jobs: queue.SimpleQueue[tuple[str, Callable[[], None], Done] | None] = queue.SimpleQueue()
        self._ended: deque[tuple[Done, BaseException | None]] = deque()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.jobs = 0

    def run(self, what: str, job: Callable[[], None], done: Done) -> None:
        """Run ``job`` on the helper's thread, then ``done(error or None)`` on the admitting thread.

        After :meth:`close`, nothing: the context ends, and that fails all that the application still awaits.
        """
        if self._closed:
            return
        self.jobs += 1
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name="callboard-helper", daemon=True)
            try:
                thread.start()
            except RuntimeError as e:  # no memory for its stack: the job's error, and the next job tries again
                self._ended.append((done, e))
                self._wake()
                return
            self._thread = thread
        self._jobs.put((what, job, done))

    def finish(self) -> None:
        """Hand back the jobs that have ended; on the admitting thread."""
        while self._ended:
            done, error = self._ended.popleft()
            self.jobs -= 1
            done(error)

    def close(self) -> None:
        """Let the thread end after the job that it is at; start no more."""
        self._closed = True
        if self._thread is not None:
            self._jobs.put(None)

    def join(self, seconds: float | None = None) -> bool:
        """Wait until the thread has ended, at most ``seconds``; True when it has, and uses no memory any more."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def _serve(self) -> None:
        entered = False
        while (entry := self._jobs.get()) is not None and not self._closed:
            what, job, done = entry
            error: BaseException | None = None
            self._busy(what)
            try:
                if not entered:
                    self._enter()
                    entered = True
                job()
            except BaseException as e:  # any error of the job: it is classified on the admitting thread
                error = e
            finally:
                self._busy(None)
            self._ended.append((done, error))
            self._wake()


class PendingSizeQuery:
    """The size query of a call whose outputs have to be sized before it can be launched.

    Attributes:
        plan: The plan of the call.
        values: The arguments of the library's size query.
        started: The query is running, or has run.
        extents: Result of the query.
        error: The reason why it failed.
    """

    __slots__ = ("_next_seq", "_sources", "error", "extents", "plan", "started", "values")

    def __init__(self, plan: Plan, values: Sequence[Any], sources: Sequence[Pending]) -> None:
        self.plan = plan
        self.values = values
        self.started = False
        self.extents: Extents | None = None
        self.error: AccelError | None = None
        self._sources = sources
        timeline = plan.timeline
        timeline.catch_up()
        timeline.issued += 1  # without a launch: it is done when all that the operands wait for is done
        self._next_seq = timeline.issued
        timeline.record_event()

    @property
    def waits(self) -> bool:
        """True if its operands are not ready yet."""
        return self.plan.timeline.completed < self._next_seq or any(s.state == FLYING for s in self._sources)

    def run(self) -> None:
        """Run the library's size query; on the helper's thread."""
        assert self.plan.query_size is not None
        self.extents = self.plan.query_size(self.plan.state, *self.values)


class Sizing:
    """Sizes the outputs of calls whose extents depend on data, then has the calls launched like any other.

    A call is parked, and its library with it, until its operands are ready and its extents are known.

    Args:
        buffers, parking, helper: The admission's.
        launch, park, refuse, classified: Methods of the admission.
    """

    def __init__(
        self,
        buffers: Mapping[int, Block],
        parking: Parking,
        helper: Helper,
        launch: Callable[[Call, Plan], None],
        park: Callable[[Call, Plan, PendingSizeQuery], None],
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
        self._size_queries: dict[int, PendingSizeQuery] = {}

    def take(self, call: Call, plan: Plan) -> None:
        """Take the call to its next step: begin the query, run it, or launch the call."""
        query_size = self._size_queries.get(call.id)
        if query_size is not None and query_size.error is not None:
            self._forget(call)
            self._refuse(call, plan, query_size.error)
            return
        if query_size is None or query_size.plan is not plan:  # no query yet, or its library was restarted
            self._forget(call)
            query_size = self._begin(call, plan)
            if query_size is None:
                self._launch(call, plan)  # refuses it, with the reason
                return
        if query_size.extents is not None:
            self._finish(call, plan, query_size.extents)
            return
        if not query_size.started and not query_size.waits:
            if self._operands_failed(call, plan):
                self._forget(call)
                self._launch(call, plan)
                return
            query_size.started = True
            self._helper.run(plan.tag, query_size.run, functools.partial(self._sized, query_size))
        self._park(call, plan, query_size)

    def advance(self) -> bool:
        """Admit the calls whose operands are ready; True while some wait for theirs."""
        if not self._size_queries:
            return False
        waiting = [m for m in self._size_queries.values() if not m.started]
        for query_size in waiting:
            if not query_size.waits:
                self._parking.notify(query_size)
        return bool(waiting)

    def _begin(self, call: Call, plan: Plan) -> PendingSizeQuery | None:
        """Make the library's stream wait for the operands; None if the call has to be refused."""
        if len(call.bindings) != plan.arity or len(call.outputs) != plan.fresh or self._operands_failed(call, plan):
            return None
        values = plan.blank.copy()
        sources: list[Pending] = []
        for binding, buffer, offset in zip(plan.bindings, call.bindings[::2], call.bindings[1::2], strict=True):
            block = self._buffers[buffer]
            if offset + binding.low < 0 or offset + binding.high > block.nbytes:
                return None
            if binding.reads:
                block.before_read(plan.timeline)
                if block.source is not None:
                    sources.append(block.source)
            if binding.item > 0:
                values[binding.at].append(block.address + offset)
            else:
                values[binding.at] = block.address + offset if binding.item < 0 else [block.address + offset]
        plan.fill(values, call.numbers)
        query_size = self._size_queries[call.id] = PendingSizeQuery(plan, values, sources)
        plan.pins += 1
        return query_size

    def _operands_failed(self, call: Call, plan: Plan) -> bool:
        """True if a launch would reject the call because an operand is missing or failed."""
        for binding, buffer in zip(plan.bindings, call.bindings[::2], strict=True):
            block = self._buffers.get(buffer)
            source = None if block is None else block.source
            if block is None or (
                source is not None and source.state == FAILED and (binding.reads or not block.address)
            ):
                return True
        return False

    def _sized(self, query_size: PendingSizeQuery, error: BaseException | None) -> None:
        if error is not None:
            query_size.error = self._classified(error, query_size.plan)
        self._parking.notify(query_size)

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
            return  # the call waits for memory; its extents stay valid
        self._forget(call)
        ops = plan.timeline.ops
        if plan.open and ops and ops[-1].id == call.id:
            ops[-1].answer = {"shapes": [list(map(int, shape)) for shape in extents]}

    def _forget(self, call: Call) -> None:
        query_size = self._size_queries.pop(call.id, None)
        if query_size is not None:
            query_size.plan.pins -= 1
