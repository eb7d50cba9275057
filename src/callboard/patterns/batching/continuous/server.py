"""``ContinuousBatchingServer``: sequences that run step by step, and join and leave between the steps."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from callboard.actors.clock import Clock
from callboard.core.errors import ContextLost
from callboard.patterns.batching.continuous.base import StepServer
from callboard.patterns.batching.continuous.policy import Preemption, StepPolicy, StepSettings
from callboard.patterns.batching.continuous.steps import DONE, NOTHING, Last, Slot
from callboard.patterns.batching.results import Rows, copies, rows_of
from callboard.patterns.contract.outlet import STREAMED
from callboard.patterns.contract.taking import taken
from callboard.patterns.requests.calling import Executor, UserCall, deliverable
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.errors import ItemTooLarge
from callboard.patterns.requests.inside import Inside
from callboard.patterns.requests.stats import SIZES, Distribution, Histogram, ServerStats
from callboard.patterns.requests.waiting import QueueOptions

__all__ = ["ContinuousBatchingServer", "ContinuousStats"]

T = TypeVar("T")
P = TypeVar("P")

ENDS = (BaseException, Last, type(DONE))
"""Types whose values are never a part by themselves."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ContinuousStats(ServerStats):
    """Figures of a server for continuous batching.

    Attributes:
        steps: Calls of the step function that gave results.
        failed_steps: Calls that did not.
        parts: Parts that they gave.
        preempted: The number of times a sequence gave its place up.
        repeated: The number of times one was begun again after a lost context, or a step that failed.
        batch_cost: Summed cost of the sequences that run now.
        batch_size: Sequences per step.
        step_time: Seconds per step.
        first_part_time: Seconds from the submission of a request to its first part.
    """

    steps: int
    failed_steps: int
    parts: int
    preempted: int
    repeated: int
    batch_cost: float
    batch_size: Distribution
    step_time: Distribution
    first_part_time: Distribution


class ContinuousBatchingServer(StepServer[T, list[P]]):
    """Runs many sequences in steps, such as texts token by token. A new one joins between two steps.

    ::

        async with cb.ContinuousBatchingServer(
            step, max_batch=32, max_batch_cost=8192, part_cost=1, cost=len
        ) as server:
            async for token in server.stream(prompt):
                ...

    In a batch of whole requests, the shortest answer waits for the longest. Here the one that is complete leaves its
    place to the next request at once (iteration-level scheduling; Yu et al., "Orca", OSDI 2022). Nothing of a request
    that was cancelled, or is late, is in any step after that. While the reader of a stream lets its buffer be full, its
    sequence takes part in no step; it keeps its place.

    Args:
        step: Gets the :class:`Slot` of each sequence that takes part, and returns (or is awaited for) one result for
            each, in their order: a part, ``cb.NOTHING``, ``cb.DONE``, :class:`Last` with the last part, or an
            exception, which fails its own request. Plain functions are called on a thread, others on the loop.
        close: ``close(slot)`` is called on the server's loop when a sequence runs no more, for whatever reason, and
            once per time that it was admitted: its state can be freed.
        max_batch: Sequences that run at once.
        cost: The cost of an item when it begins, such as the length of its prompt; called once, in ``submit``.
        max_batch_cost: Summed cost of the sequences that run at most, such as the tokens that a cache holds.
        part_cost: By how much each part makes a sequence more expensive.
        max_admitted_cost: Summed cost of the sequences that join between two steps, where there is more than one.
        preemption: ``"never"``, ``"for_room"`` or ``"for_priority"``; see :class:`Preemption`.
        max_queue: Requests that wait at most.
        queue: Further bounds of the queue, the policy beyond them, and its order; see :class:`QueueOptions`.
        idempotent: Sequences of a step that failed may be begun again. False: they end in its error.
        executor: The executor that calls ``step``; see :class:`UserCall`.
        name: For errors and logs.
        clock: Tells the time; for tests.

    ``submit`` gives the list of all parts. Errors of a request, beside those of :meth:`submit`: ``ItemTooLarge`` where
    a sequence has grown beyond ``max_batch_cost`` by itself, and what ``step`` raised. Where a step of several
    sequences fails with an exception, they are begun again from the parts that they have, single ones until one
    succeeds and then halves of the rest, as by ``on_error="isolate"`` of a :class:`DynamicBatchingServer`: only those
    fail that cannot be done. All of them fail with an error that no single one causes, such as ``TimeoutError`` or
    ``BadBatchResult`` (another number of results). After a ``ContextLost`` each of them runs alone for a few steps: the
    one that loses the context then ends in ``Quarantined``, and so do requests of the same key for ten minutes
    (:class:`Quarantine`). Meanwhile steps of all others alternate with those.

    Raises:
        ValueError: A setting out of range, or settings that contradict each other.
        TypeError: ``step`` cannot be called.
    """

    def __init__(
        self,
        step: Callable[[list[Slot[T, P]]], Awaitable[Rows[Any]] | Rows[Any]],
        *,
        close: Callable[[Slot[T, P]], object] | None = None,
        max_batch: int = 32,
        cost: Callable[[T], float] | None = None,
        max_batch_cost: float | None = None,
        part_cost: float = 0.0,
        max_admitted_cost: float | None = None,
        preemption: Preemption | Literal["never", "for_room", "for_priority"] = Preemption.FOR_ROOM,
        max_queue: int = 1024,
        queue: QueueOptions = QueueOptions(),  # noqa: B008 -- frozen
        idempotent: bool = True,
        executor: Executor = "auto",
        name: str = "continuous batching",
        clock: Clock | None = None,
    ) -> None:
        settings = StepSettings(
            max_batch, max_batch_cost, part_cost, max_admitted_cost, Preemption(preemption), max_queue, queue
        )
        self._policy = StepPolicy(settings)
        super().__init__(name, clock, self._policy.line, "steps", idempotent=idempotent, cost=cost)
        self._call = UserCall(step, executor, 1)
        self._close_slot = close
        self._failed_steps = self._parts = self._preempted = self._repeated = 0
        self._step_time, self._batch_size, self._first_part_time = Histogram(), Histogram(SIZES), Histogram()

    # -- for users -----------------------------------------------------------------------------------------------------

    def stats(self) -> ContinuousStats:
        """Figures since the start. It reads counters only; on the server's loop."""
        step_time = self._step_time.snapshot()
        return ContinuousStats(
            **self._queue_figures(),
            steps=step_time.count,
            failed_steps=self._failed_steps,
            parts=self._parts,
            preempted=self._preempted,
            repeated=self._repeated,
            batch_cost=self._policy.cost,
            batch_size=self._batch_size.snapshot(),
            step_time=step_time,
            first_part_time=self._first_part_time.snapshot(),
        )

    # -- requests ------------------------------------------------------------------------------------------------------

    def _runs_on(self) -> list[Any]:
        return [self._call]

    def _add(self, entry: Entry, now: float, *, may_block: bool) -> list[Entry]:
        return self._policy.add(entry, may_block=may_block)

    def _leave(self, entry: Entry) -> None:
        self._policy.forget(entry)
        super()._leave(entry)

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Run steps as long as there is a sequence."""
        policy = self._policy
        try:
            while self._stopping is None:
                self._changed.clear()
                self._replan()
                if not policy.running:
                    break
                ready = [slot for slot in policy.running if not (slot.entry.outlet and slot.entry.outlet.full)]
                if not ready:  # all readers are slow
                    await self._changed.wait()
                    continue
                await self._step(self._guard.choose(ready))
                await asyncio.sleep(0)  # a function that is called on the loop may never suspend
        finally:  # where it was cancelled, by stop() or with its loop, the sequences have no other end
            slots, policy.running = policy.running, []
            for slot in slots:
                self._fail(slot.entry, self._stopped(), "stopped")
                self._closed(slot)

    def _replan(self) -> None:
        """Let sequences leave and join."""
        now = self._clock.time()
        for slot in self._policy.sweep():
            self._closed(slot)
        plan = self._policy.plan(now)
        for entry in plan.late:
            self._fail(entry, self._expired(entry, "queue", now), "expired")
        for slot in plan.outgrown:
            self._fail(
                slot.entry,
                ItemTooLarge(
                    f"{self.name}: the sequence costs {slot.cost:g} after {len(slot.parts)} parts, and max_batch_cost "
                    f"is {self._policy.settings.max_batch_cost:g}: ask for fewer parts, or raise max_batch_cost"
                ),
            )
            self._closed(slot)
        for slot in plan.preempted:
            self._closed(slot)
        self._preempted += len(plan.preempted)
        for slot in plan.admitted:
            if not slot.parts and not slot.entry.repeated:
                slot.entry.started = now
                self._queue_time.add(now - slot.entry.arrived)

    async def _step(self, slots: list[Slot[Any, Any]]) -> None:
        started = self._clock.time()
        entries = [slot.entry for slot in slots]
        cause = self._cause(entries)
        try:
            async with self._guard.step(entries):
                with Inside(self):
                    results = rows_of(await self._call(slots, entries=entries), len(slots))
        except Exception as e:  # the user's function may raise anything: its sequences end in that
            self._failed_steps += 1
            self._batch_ran(len(slots), self._clock.time() - started, False, cause)
            self._step_failed(slots, deliverable(e))
            return
        now = self._clock.time()
        silent: list[int] = []
        if self._guard.isolates:
            silent = [slot.number for slot, result in zip(slots, results, strict=True) if result is NOTHING]
        self._guard.succeeded(entries, silent)
        self._step_time.add(now - started)
        self._batch_ran(len(slots), now - started, True, cause)
        self._batch_size.add(len(slots))
        given: set[int] = set()
        for slot, result in zip(slots, results, strict=True):
            slot.fresh = False
            entry = slot.entry
            if entry.state is not State.RUNNING:
                continue  # it has ended meanwhile
            if not isinstance(result, ENDS):
                self._received(slot, result, now)
            elif isinstance(result, BaseException):
                error = deliverable(result)
                self._fail(entry, copies(error, 2)[1] if id(result) in given else error)
                given.add(id(result))
            elif isinstance(result, Last):
                self._received(slot, result.part, now)
                self._ended(slot, now)
            elif result is DONE:
                self._ended(slot, now)

    def _received(self, slot: Slot[Any, Any], part: Any, now: float) -> None:
        entry = slot.entry
        if not slot.parts:
            self._first_part_time.add(now - entry.arrived)
        self._parts += 1
        part = taken(part)  # the step function may use its buffer again
        self._policy.grown(slot, part)
        if entry.outlet is not None:
            entry.outlet.put(taken(part))  # its reader may write it, and later steps read the slot's parts

    def _ended(self, slot: Slot[Any, Any], now: float) -> None:
        self._succeed(slot.entry, slot.parts if slot.entry.outlet is None else STREAMED, now)

    def _step_failed(self, slots: list[Slot[Any, Any]], error: Exception) -> None:
        ends = self._guard.failed([slot.entry for slot in slots], error)
        for number, end in ends.items():
            if number in self._open:
                self._fail(self._open[number], end)
        again = [slot for slot in slots if slot.entry.state is State.RUNNING]
        self._repeated += len(again)
        for slot in again:
            slot.entry.repeated = True
        if isinstance(error, ContextLost):  # the states of those that took no part are gone, too
            again += [slot for slot in self._policy.running if slot not in slots and slot.entry.state is State.RUNNING]
        for slot in again:
            self._closed(slot)
        self._policy.interrupt(again)

    def _closed(self, slot: Slot[Any, Any]) -> None:
        """A sequence runs no more, or not for now."""
        if self._close_slot is None:
            return
        try:
            self._close_slot(slot)
        except Exception:  # of the user's hook: nothing depends on it
            _log.exception("%s: close() of a sequence failed", self.name)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def _end_work(self) -> None:
        self._changed.set()
        self._call.close()
        await self._worker.end(interrupt=not self._call.on_thread)
