"""``SequenceBatchingServer``: batches of requests that each belong to a sequence with a state."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from callboard.actors.clock import Clock
from callboard.core.errors import ContextLost
from callboard.patterns.batching.isolation import reruns
from callboard.patterns.batching.results import Rows, copies, rows_of
from callboard.patterns.batching.running import OF_ALL
from callboard.patterns.batching.sequences.policy import SequencePolicy, SequenceSettings
from callboard.patterns.batching.sequences.slots import SequenceSlot
from callboard.patterns.contract.options import RequestOptions
from callboard.patterns.requests.alarm import Alarm
from callboard.patterns.requests.calling import Executor, UserCall, deliverable
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.fitting import check_fits
from callboard.patterns.requests.inside import Inside
from callboard.patterns.requests.server import RequestServer
from callboard.patterns.requests.stats import SIZES, Distribution, Histogram, ServerStats
from callboard.patterns.requests.workers import WorkerPool

__all__ = ["SequenceBatchingServer", "SequenceStats"]

T = TypeVar("T")
R = TypeVar("R")

Running = tuple[Entry, SequenceSlot]
"""A request of a batch, and its sequence."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SequenceStats(ServerStats):
    """Figures of a server of sequences.

    Attributes:
        sequences: That have a place on a worker now.
        backlog: Sequences that wait for a place now.
        idled: Sequences that ended because no request came.
        lost: Sequences whose state was lost.
        batches: Calls of workers that gave results.
        failed_batches: Calls that did not.
        batch_size: Requests per batch.
        run_time: Seconds per batch.
    """

    sequences: int
    backlog: int
    idled: int
    lost: int
    batches: int
    failed_batches: int
    batch_size: Distribution
    run_time: Distribution


class SequenceBatchingServer(RequestServer[T, R]):
    """Batches requests of sequences. The state of each sequence is on one worker, and its requests run in order.

    ::

        async with cb.SequenceBatchingServer(step, idle_timeout=30) as server:
            await server.submit(chunk, sequence="call-7", start=True)
            await server.submit(chunk, sequence="call-7")
            text = await server.submit(chunk, sequence="call-7", end=True)

    For models that remember: speech in chunks, a simulation per player, a filter per sensor. A batch has one request of
    a sequence at most, so a caller need not wait for one answer before it submits the next item.

    Args:
        workers: A function, or several that each keep states of their own, such as methods of actors on several
            devices. It gets a list of items and the list of their :class:`SequenceSlot` s, and returns (or is awaited
            for) one result for each, in their order. A result that is an exception fails its own request, and its
            sequence goes on.
        max_batch: Requests of a batch at most.
        max_sequences: Sequences of a worker at most. The requests of further ones wait until one ends.
        idle_timeout: Seconds without a request after which a sequence ends.
        close: ``close(slot)`` is called on the server's loop when a sequence has ended, for whatever reason.
        idempotent: A worker that raises has changed no state, or its changes do no harm to a second run: then all
            requests of that batch run again, not only the first ones of their sequences.
        max_queue: Requests that wait at most.
        executor: The executor that calls workers; see :class:`UserCall`.
        name: For errors and logs.
        clock: Tells the time; for tests.

    A request says ``sequence=`` its name, a hashable value, and ``start=True`` if it begins it, which ends a sequence
    of that name that is still there; ``end=True`` if it ends it. It ends in :class:`SequenceLost` where the sequence is
    not there. That is so after an exception of a worker, for the sequences of that batch, and after a ``ContextLost``,
    for all sequences of that worker: their states cannot be trusted, or are gone. First requests of a sequence have no
    state: those of a batch that raised run again, in the groups of ``on_error="isolate"`` of a
    :class:`DynamicBatchingServer`, so that only those fail that cannot be done. A request that is cancelled, or
    expires, before it runs is left out of its sequence.

    Raises:
        ValueError: A setting out of range, or no worker.
        TypeError: A worker cannot be called.
    """

    _takes = frozenset({"sequence", "start", "end"})

    def __init__(
        self,
        workers: Callable[[list[T], list[SequenceSlot]], Awaitable[Rows[R]] | Rows[R]]
        | Sequence[Callable[[list[T], list[SequenceSlot]], Awaitable[Rows[R]] | Rows[R]]],
        *,
        max_batch: int = 32,
        max_sequences: int = 64,
        idle_timeout: float = 60.0,
        close: Callable[[SequenceSlot], object] | None = None,
        idempotent: bool = False,
        max_queue: int = 1024,
        executor: Executor = "auto",
        name: str = "sequences",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name, clock)
        given: Any = workers
        functions = list(given) if isinstance(given, Sequence) else [given]
        self._policy = SequencePolicy(
            SequenceSettings(len(functions), max_batch, max_sequences, idle_timeout, max_queue)
        )
        for function in functions:
            check_fits(function, 2)
        self._calls = [UserCall(function, executor, 1) for function in functions]
        self._workers = [WorkerPool(self, f"worker {n}", self._pump) for n in range(len(functions))]
        self._close_slot = close
        self._idempotent = idempotent
        self._idle = Alarm(self._clock, self._end_idle)
        self._idled = self._lost = self._failed_batches = 0
        self._run_time, self._batch_size = Histogram(), Histogram(SIZES)

    # -- for users -----------------------------------------------------------------------------------------------------

    def stats(self) -> SequenceStats:
        """Figures since the start. It reads counters only; on the server's loop."""
        policy = self._policy
        run_time = self._run_time.snapshot()
        queued_cost = sum(entry.cost for entry in self._open.values() if entry.state is State.QUEUED)
        return SequenceStats(
            **self._figures(policy.queued, 0, queued_cost),
            sequences=policy.count,
            backlog=policy.backlog,
            idled=self._idled,
            lost=self._lost,
            batches=run_time.count,
            failed_batches=self._failed_batches,
            batch_size=self._batch_size.snapshot(),
            run_time=run_time,
        )

    # -- requests ------------------------------------------------------------------------------------------------------

    def _key_with(self, item: T, options: RequestOptions) -> Hashable:
        if "sequence" not in options:
            raise TypeError(f"{self.name}: a request must say to which sequence it belongs: sequence=...")
        return options["sequence"]

    def _runs_on(self) -> list[Any]:
        return self._calls

    def _admit(self, entry: Entry, now: float, *, may_block: bool) -> None:
        start, end = bool(entry.options.get("start")), bool(entry.options.get("end"))
        for dropped in self._policy.add(entry, now, start=start, end=end):
            self._lost += 1
            self._fail(dropped, self._policy.lost(dropped.key, "restarted"))
        self._pump()

    def _no_room(self, entry: Entry) -> Exception:  # nothing waits for room here
        raise AssertionError(entry)

    def _leave(self, entry: Entry) -> None:
        self._policy.remove(entry, self._clock.time())
        self._pump()

    # -- batches -------------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Start the workers that have something to do, and the timer for sequences that have not."""
        self._close_ended()
        if self._loop is None or self._stopping is not None:
            return
        for number, worker in enumerate(self._workers):
            if not worker.tasks and self._policy.ready(number):
                worker.start(self._work(number))
        self._set_timer()

    async def _work(self, worker: int) -> None:
        """Run batches of one worker as long as there are any."""
        while self._stopping is None:
            batch = self._policy.take(worker, self._clock.time())
            if not batch:
                break
            try:
                await self._run(worker, batch)
            finally:  # where it was cancelled, by stop() or with its loop, the requests have no other end
                now = self._clock.time()
                for entry, _ in batch:
                    if entry.state is State.RUNNING:
                        self._fail(entry, self._stopped(), "stopped")
                    self._policy.finished(entry, now)
            await asyncio.sleep(0)  # callers that were answered submit their next requests

    async def _run(self, worker: int, batch: list[Running]) -> None:
        for entry, _ in batch:
            self._queue_time.add(entry.started - entry.arrived)
        error = await self._attempt(worker, batch)
        if error is None:
            return
        again = [] if isinstance(error, OF_ALL) else [each for each in batch if self._idempotent or each[1].start]
        self._batch_failed(worker, [each[0] for each in batch if each not in again], error)
        if again:
            await self._isolate(worker, again, error)

    async def _isolate(self, worker: int, batch: list[Running], error: Exception) -> None:
        """Run requests whose batch has failed again, so that only those fail that cannot be done."""
        runs = reruns("isolate", batch)
        group, done = next(runs, None), set[int]()
        while group is not None:
            running = [each for each in group if each[0].state is State.RUNNING]
            found = await self._attempt(worker, running) if running else None
            if isinstance(found, OF_ALL):
                error = found
                break
            if found is None:
                done.update(entry.number for entry, _ in running)
            try:
                group = runs.send(found is None if running else None)
            except StopIteration:
                group = None
        self._batch_failed(worker, [entry for entry, _ in batch if entry.number not in done], error)

    async def _attempt(self, worker: int, batch: list[Running]) -> Exception | None:
        """Run requests; returns the error if that fails. A single request has ended in it."""
        entries = [entry for entry, _ in batch]
        for _, slot in batch:
            if slot.start:
                slot.state = None  # of a run that has failed
        started = self._clock.time()
        cause = self._cause(entries)
        try:
            items, slots = [entry.item for entry in entries], [slot for _, slot in batch]
            with Inside(self):
                rows = rows_of(await self._calls[worker](items, slots, entries=entries), len(entries))
        except Exception as e:  # the user's function may raise anything: its requests end in that
            self._failed_batches += 1
            self._batch_ran(len(entries), self._clock.time() - started, False, cause)
            error = deliverable(e)
            if len(entries) == 1:
                self._batch_failed(worker, entries, error)
            return error
        now = self._clock.time()
        self._run_time.add(now - started)
        self._batch_ran(len(entries), now - started, True, cause)
        self._batch_size.add(len(entries))
        given: set[int] = set()
        for entry, row in zip(entries, rows, strict=True):
            if isinstance(row, BaseException):
                error = deliverable(row)
                self._fail(entry, copies(error, 2)[1] if id(row) in given else error)
                given.add(id(row))
            else:
                self._succeed(entry, row, now)
        return None

    def _batch_failed(self, worker: int, entries: list[Entry], error: Exception) -> None:
        policy = self._policy
        if not entries:
            return
        for entry, each in zip(entries, copies(error, len(entries)), strict=True):
            self._fail(entry, each)
        hit = policy.on(worker) if isinstance(error, ContextLost) else [policy.sequence_of(entry) for entry in entries]
        for sequence in hit:
            if sequence.lost is None:
                self._lost += 1
            for entry in policy.lose(sequence, "failed"):
                self._fail(entry, policy.lost(entry.key, "failed"))

    def _close_ended(self) -> None:
        """Tell the user's hook of the sequences that have ended."""
        ended, self._policy.ended = self._policy.ended, []
        if self._close_slot is None:
            return
        for slot in ended:
            try:
                self._close_slot(slot)
            except Exception:  # of the user's hook: nothing depends on it
                _log.exception("%s: close() of a sequence failed", self.name)

    # -- idle sequences ------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        when = self._policy.next_idle
        if when is not None:
            self._idle.set(when)

    def _end_idle(self) -> None:
        self._idled += self._policy.idle(self._clock.time())
        self._pump()

    # -- life ----------------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        self._pump()

    async def _end_work(self) -> None:
        self._idle.cancel()
        for call, worker in zip(self._calls, self._workers, strict=True):
            call.close()
            await worker.end(interrupt=not call.on_thread)
        for number in range(len(self._calls)):
            for sequence in self._policy.on(number):
                self._policy.lose(sequence, "ended")
        self._close_ended()
