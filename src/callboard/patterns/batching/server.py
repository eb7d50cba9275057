"""``DynamicBatchingServer``: callers submit single items, a function gets batches."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

from callboard.actors.clock import Clock
from callboard.core.errors import ContextLost, Unrecoverable
from callboard.patterns.batching.figures import BatchCounters, BatchingStats
from callboard.patterns.batching.inorder import InOrder
from callboard.patterns.batching.policy import SETTLE, Batch, BatchPolicy
from callboard.patterns.batching.ragged import Ragged
from callboard.patterns.batching.results import Rows, are_values, copies, rows_of
from callboard.patterns.batching.settings import BatchSettings, Dispatch, check_choice
from callboard.patterns.quarantine.guard import Quarantine
from callboard.patterns.quarantine.ward import Ward
from callboard.patterns.requests.alarm import Alarm
from callboard.patterns.requests.calling import Executor, UserCall, deliverable
from callboard.patterns.requests.ending import end_workers
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.errors import BadBatchResult
from callboard.patterns.requests.server import RequestServer
from callboard.patterns.requests.waiting import Limits, OverflowPolicy

__all__ = ["DynamicBatchingServer"]

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger(__name__)

MANY = 8
"""Results that take long enough to give out for the next batch not to wait for them."""


class DynamicBatchingServer(RequestServer[T, R]):
    """Collects single requests into batches for a function that is fast on many at once.

    ::

        async with cb.DynamicBatchingServer(embed_many, max_batch=32) as server:
            vector = await server.submit("hello")

    A batch is formed when an executor is free, never earlier: while one runs, the next one fills. A lone request runs
    at once; see :class:`Dispatch` for when one waits for others.

    Args:
        batch_fn: Gets a list of items, returns (or is awaited for) one result for each, in their order: a list, a
            tuple, or an array or ``GpuRef`` of that many rows. A result that is an exception fails its own request. One
            that is an asynchronous iterator is read to its end while the batch runs: :meth:`stream` gives its
            parts one by one, ``submit`` the list of them. The function may be plain, async,
            ``functools.partial(model.call, Model.predict)`` of a resident actor, or call device ops.
        max_batch: Items of a batch at most.
        max_wait: Seconds that a request waits for others at most, while an executor is free.
        dispatch: ``"adaptive"``, ``"idle"`` or ``"window"``; see :class:`Dispatch`.
        preferred: Sizes that the function is fast at, ascending; see ``pad``.
        pad: ``pad(items, size)`` returns what ``batch_fn`` gets. With it, a batch is filled up to the next preferred
            size, and that many results are expected, of which the first are used. Without it, a batch is cut to the
            largest preferred size that it reaches. With ``bucket``, it may pad the items to one length as well.
        ragged: ``batch_fn`` gets a :class:`Ragged` in place of a list: arrays of unequal lengths, joined.
        bucket: A key of an item, such as its shape or :func:`pow2_length`; only items of equal keys are batched.
        join_buckets: Keys are lengths to which items are padded, and a batch takes items of several keys where padding
            them to the largest is expected to take less time than a further batch, by the batches that were measured.
            Each item of a batch then counts as much for ``max_batch_cost`` as the costliest one.
        cost: The cost of an item, such as its tokens; called once, in ``submit``.
        max_batch_cost: Summed cost of a batch at most.
        max_queue: Requests that wait at most.
        max_queue_cost: Their summed cost at most.
        overflow: The policy beyond that: ``"reject"``, ``"block"``, ``"drop_oldest"`` or ``"drop_lowest_priority"``;
            see :class:`OverflowPolicy`.
        block_timeout: Seconds that ``"block"`` waits at most; None waits for ever.
        ageing: Seconds of waiting that count as much as one level of priority, so that nothing waits for ever; None:
            priorities are strict.
        order: Of requests of equal priority and bucket: ``"arrival"``, or ``"deadline"``, the earliest first.
        timeout_action: What becomes of a request whose deadline passes in the queue. ``"reject"``: it fails with
            :class:`DeadlineExceeded`, which it may do earlier, where it cannot be done in time. ``"delay"``: it goes
            behind all others, and runs when nothing else waits; deadlines then refuse nothing, and bound no run.
        preserve_order: Requests end in the order of their submission, whatever batches they were in. One that ends
            early waits for those before it; those that are cancelled, or too late, end at once.
        max_concurrent_batches: Batches that run at once; with two, the next one can copy to the device meanwhile.
        idempotent: ``batch_fn`` may run twice for the same item. Requests whose batch fails with ``ContextLost`` are
            then queued again, once.
        on_error: ``"bisect"``: where a batch of several fails with an exception, its halves are run again, so that only
            the items fail that cannot be done; at most 2 log2 n more runs for one of them. ``"retry_single"``: each of
            its items is run again alone. Both need ``idempotent``.
        quarantine: Finds the request that kills its context, and refuses it: see :class:`Quarantine`, which gets None
            as its target, and as its spare a function like ``batch_fn``. Requests then run again after a lost context
            as it says, and not as ``idempotent`` does. All refusals are the future's, also with ``submit_nowait``.
        quarantine_key: Key of an item: equal for items that would kill alike. Otherwise it is that of the caller's
            :func:`callboard.request_key`, or the request's own.
        executor: The executor that calls ``batch_fn``; see :class:`UserCall`.
        name: For errors and logs.
        clock: Tells the time; for tests.

    Raises:
        ValueError: A setting out of range, or settings that contradict each other.
        TypeError: ``batch_fn`` cannot be called.
    """

    def __init__(
        self,
        batch_fn: Callable[[list[T]], Awaitable[Rows[R]] | Rows[R]],
        *,
        max_batch: int = 32,
        max_wait: float = 0.01,
        dispatch: Dispatch | Literal["adaptive", "idle", "window"] = Dispatch.ADAPTIVE,
        preferred: Sequence[int] = (),
        pad: Callable[[list[T], int], Any] | None = None,
        ragged: bool = False,
        bucket: Callable[[T], Hashable] | None = None,
        join_buckets: bool = False,
        cost: Callable[[T], float] | None = None,
        max_batch_cost: float | None = None,
        max_queue: int = 1024,
        max_queue_cost: float | None = None,
        overflow: OverflowPolicy
        | Literal["reject", "block", "drop_oldest", "drop_lowest_priority"] = OverflowPolicy.REJECT,
        block_timeout: float | None = None,
        ageing: float | None = 1.0,
        order: Literal["arrival", "deadline"] = "arrival",
        timeout_action: Literal["reject", "delay"] = "reject",
        preserve_order: bool = False,
        max_concurrent_batches: int = 1,
        idempotent: bool = False,
        on_error: Literal["fail", "bisect", "retry_single"] = "fail",
        quarantine: Quarantine[Any] | None = None,
        quarantine_key: Callable[[T], str] | None = None,
        executor: Executor = "auto",
        name: str = "batching",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name, clock)
        settings = BatchSettings(
            max_batch=max_batch,
            max_wait=max_wait,
            max_batch_cost=max_batch_cost,
            preferred=tuple(preferred),
            padded=pad is not None,
            dispatch=Dispatch(dispatch),
            ageing=ageing,
            max_concurrent_batches=max_concurrent_batches,
            limits=Limits(max_queue, max_queue_cost, OverflowPolicy(overflow)),
            by_deadline=order == "deadline",
            join_buckets=join_buckets,
            delays=timeout_action == "delay",
        )
        check_choice("order", order, "arrival", "deadline")
        check_choice("timeout_action", timeout_action, "reject", "delay")
        check_choice("on_error", on_error, "fail", "bisect", "retry_single")
        if join_buckets and bucket is None:
            raise ValueError("join_buckets=True needs bucket, which gives the length of an item")
        if on_error != "fail" and not idempotent:
            raise ValueError(f'on_error="{on_error}" runs items again, which needs idempotent=True')
        if ragged and pad is not None:
            raise ValueError("ragged batches are not padded; give ragged or pad")
        if block_timeout is not None and not block_timeout > 0:
            raise ValueError(f"block_timeout must be positive seconds, but is {block_timeout}")
        if quarantine is not None:
            self._ward = Ward(quarantine, quarantine_key, name, self)
        elif quarantine_key is not None:
            raise ValueError("quarantine_key needs quarantine")
        self._policy = BatchPolicy(settings)
        self._call = UserCall(batch_fn, executor, max_concurrent_batches)
        self._pad = pad
        self._bucket = bucket
        self._cost_of = cost
        self._block_timeout = block_timeout
        self._idempotent = idempotent
        self._on_error = on_error
        self._ragged = ragged
        self._in_order = InOrder(self._open) if preserve_order else None
        self._workers: set[asyncio.Task[None]] = set()
        self._delivering: set[asyncio.Task[None]] = set()  # those whose executors have been handed over
        self._starting = False  # a worker was made and has not looked at the queue
        self._settling = 0
        self._timer = Alarm(self._clock, self._pump)
        self._counters = BatchCounters()

    # -- for users -----------------------------------------------------------------------------------------------------

    @property
    def max_batch(self) -> int:
        """The current limit of items in a batch."""
        return self._policy.settings.max_batch

    @property
    def expected_seconds(self) -> float | None:
        """Expected seconds from a submission now to its value; None before the first batches."""
        return self._policy.expected

    def flush_now(self) -> None:
        """Run the waiting requests as soon as an executor is free, without waiting for more. From any thread."""
        self._on_loop(self._flush)

    def hold(self, count: int) -> None:
        """Hold the next batch until ``count`` requests wait: for tests that need a certain batch. From any thread.

        :meth:`flush_now`, draining, and a queue that is full end it earlier.
        """
        self._policy.held = count

    def set(self, *, max_batch: int | None = None, max_wait: float | None = None) -> None:
        """Change settings while it runs, both or neither; for the batches formed from now on. From any thread.

        Raises:
            ValueError: As for the constructor; nothing is changed.
        """
        now = self._policy.settings
        self._policy.settings = replace(
            now,
            max_batch=now.max_batch if max_batch is None else max_batch,
            max_wait=now.max_wait if max_wait is None else max_wait,
        )
        self._on_loop(self._pump)

    def stats(self) -> BatchingStats:
        """Figures since the start. Reads counters only; called on another thread, they may be of different moments."""
        line = self._policy.line
        return self._counters.stats(
            submitted=sum(self._ends.values()) + len(self._open),
            **self._ends,
            queued=line.count,
            blocked=line.blocked,
            running=len(self._open) - line.count - line.blocked,
            queued_cost=line.cost,
            total_time=self._total_time.snapshot(),
        )

    # -- requests ------------------------------------------------------------------------------------------------------

    def _key(self, item: T) -> Hashable:
        return None if self._bucket is None else self._policy.key(self._bucket(item))

    def _cost(self, item: T) -> float:
        return 1 if self._cost_of is None else self._cost_of(item)

    def _admit(self, entry: Entry, now: float, *, may_block: bool) -> None:
        if entry.deadline is not None and self._policy.hopeless(entry, now):
            raise self._expired(entry, "submit", now)
        for dropped in self._policy.add(entry, now, may_block=may_block):
            self._fail(dropped, self._no_room(dropped), "dropped")
        if entry.state is State.BLOCKED and self._block_timeout is not None:
            entry.admit_by = now + self._block_timeout
        self._pump()

    def _no_room(self, entry: Entry) -> Exception:
        return self._policy.no_room(entry)

    def _goes_on(self, entry: Entry) -> bool:
        if not self._policy.settings.delays or entry.state not in (State.QUEUED, State.RUNNING):
            return False
        entry.deadline = None
        if entry.state is State.QUEUED:
            self._policy.line.put_last(entry)
            self._counters.delayed += 1
        return True

    def _leave(self, entry: Entry) -> None:
        self._policy.line.remove(entry)
        if self._policy.line.admit_blocked():
            self._pump()

    def _succeed(self, entry: Entry, value: Any, now: float) -> None:
        if self._in_order is None or entry.number not in self._open:
            super()._succeed(entry, value, now)
        else:
            end = super()._succeed
            self._in_order.end(entry.number, lambda: end(entry, value, self._clock.time()))

    def _fail(self, entry: Entry, error: Exception, reason: str = "failed") -> None:
        if self._in_order is None or reason != "failed" or entry.number not in self._open:
            super()._fail(entry, error, reason)
        else:
            end = super()._fail
            self._in_order.end(entry.number, lambda: end(entry, error, reason))

    def _close_entry(self, entry: Entry, reason: str) -> Any:
        future = super()._close_entry(entry, reason)
        if self._in_order is not None:
            self._in_order.forget(entry.number)
            assert self._loop is not None
            self._loop.call_soon(self._in_order.release)
        return future

    def _readmit(self, entry: Entry) -> None:
        self._policy.line.restore([entry])
        self._pump()

    async def _alone(self, call: UserCall, item: Any) -> Any:
        (row,) = rows_of(await call([item]), 1)
        if isinstance(row, BaseException):
            raise deliverable(row)
        return row

    # -- batches -------------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Start a worker, or set the timer for when one will be needed."""
        policy = self._policy
        running = len(self._workers) - len(self._delivering)
        busy = self._starting or self._settling or running >= policy.settings.max_concurrent_batches
        if busy or self._loop is None or self._stopping is not None:
            return
        now = self._clock.time()
        at = policy.ready_at(now)
        if at is None:
            return
        if at <= now:
            # The batch is formed when the task runs: what is submitted in this iteration of the loop is in it.
            self._starting = True
            # In the server's context: what belongs to one request, such as its key, is not to mark the whole batch.
            task = self._loop.create_task(self._work(), name=f"{self.name}: batches", context=self._context.copy())
            self._workers.add(task)
            task.add_done_callback(self._worker_ended)
        else:
            self._timer.set(at)

    def _flush(self) -> None:
        self._policy.flush_now()
        self._pump()

    async def _work(self) -> None:
        """Run batches as long as there are any."""
        self._starting = False
        while self._stopping is None and (batch := self._policy.take(self._clock.time())) is not None:
            self._policy.line.admit_blocked()
            self._fail_late(batch)
            if not batch.entries:
                continue
            self._pump()  # another executor may be free, and there may be more
            ended = await self._run(batch)
            if asyncio.current_task() in self._delivering:
                break
            if ended > 1:
                await self._settle(ended)

    async def _settle(self, answered: int) -> None:
        """Let the callers that were answered submit their next requests, unless a full batch waits already."""
        self._settling += 1
        seen = self._policy.last
        try:
            for _ in range(SETTLE):
                if self._policy.full or self._policy.last - seen >= answered:
                    break
                await asyncio.sleep(0)
        finally:
            self._settling -= 1

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        self._delivering.discard(worker)
        if worker.cancelled():
            self._starting = False  # it may not have begun
        elif isinstance(error := worker.exception(), Exception):
            _log.error("%s: an internal error ended a batch; its requests have failed", self.name, exc_info=error)
        self._pump()

    def _fail_late(self, batch: Batch) -> None:
        now = self._clock.time()
        for entry in batch.late:
            self._fail(entry, self._expired(entry, "queue", now), "expired")

    async def _run(self, batch: Batch) -> int:
        """Run a batch to the end of all its entries, or back into the queue; returns how many have ended."""
        self._counters.began(batch.entries)
        self._policy.running += 1
        groups = [batch.entries]
        try:
            while groups:
                entries = [entry for entry in groups.pop() if entry.state is State.RUNNING]
                if not entries:
                    continue
                try:
                    rows = await self._results(entries)
                except Exception as e:  # the user's function may raise anything: its requests end in that
                    self._counters.failed += 1
                    if self._splits(e, entries) and self._on_error == "retry_single":
                        groups += [[entry] for entry in reversed(entries)]
                    elif self._splits(e, entries):
                        middle = len(entries) // 2
                        groups += [entries[middle:], entries[:middle]]
                    else:
                        self._fail_all(entries, e)
                else:
                    if not groups and len(entries) >= MANY and self._policy.full:
                        await self._hand_over(rows)
                    await self._deliver(entries, rows)
        except BaseException:  # cancelled, by stop() or with its loop, or Ctrl-C: what it ran has no other end
            for entry in batch.entries:
                if entry.state is State.RUNNING:
                    self._fail(entry, self._stopped(), "stopped")
            raise
        finally:
            self._policy.running -= 1
            if self._ward is not None:
                for entry in batch.entries:
                    if entry.state is State.ENDED:  # others wait for their next run
                        self._ward.ran(entry)
        return sum(entry.state is State.ENDED for entry in batch.entries)

    async def _hand_over(self, rows: list[Any]) -> None:
        """Let the next batch begin before the results of this one are given out, which takes a while."""
        worker = asyncio.current_task()
        if worker is None or not are_values(rows):  # the executor reads what comes in parts
            return
        self._delivering.add(worker)
        self._pump()
        await asyncio.sleep(0)  # in which the other worker calls the function

    async def _results(self, entries: list[Entry]) -> list[Any]:
        """Call the function; gives a result for each entry, and for those that fill it up."""
        items: Any = [entry.item for entry in entries]
        size = len(entries)
        if self._pad is not None:
            size = self._policy.settings.size_for(size)
            items = self._pad(items, size)
        elif self._ragged:
            items = Ragged.of(items)
        started = self._clock.time()
        rows = rows_of(await self._call(items), size)
        seconds = self._clock.time() - started
        self._policy.finished(size, seconds, entries)
        self._counters.ran(len(entries), size, seconds)
        return rows

    async def _deliver(self, entries: list[Entry], rows: list[Any]) -> None:
        """Give each entry its result; returns when those that come in parts are complete."""
        now = self._clock.time()
        if self._in_order is None and self._ward is None and are_values(rows):
            self._succeed_all(entries, rows, now)  # the rest is padding
            return
        given: set[int] = set()
        streams: list[Coroutine[Any, Any, None]] = []
        for entry, row in zip(entries, rows, strict=False):  # the rest is padding
            if isinstance(row, BaseException):
                error = deliverable(row)
                error = copies(error, 2)[1] if id(row) in given else error
                given.add(id(row))
                if self._ward is None or not self._ward.ran(entry, error):
                    self._fail(entry, error)
            elif hasattr(type(row), "__aiter__"):
                streams.append(self._stream_to(entry, row))
            else:
                self._succeed(entry, row, now)
        if streams:
            await asyncio.gather(*streams)

    async def _stream_to(self, entry: Entry, answer: Any) -> None:
        try:
            value = await self._feeders.feed(entry, answer)
        except Exception as e:  # of the user's iterator: its request ends in that
            if entry.state is State.RUNNING:
                self._fail_all([entry], e)
        else:
            self._succeed(entry, value, self._clock.time())

    def _splits(self, error: Exception, entries: list[Entry]) -> bool:
        """True if one of the entries may be the cause of the failure."""
        fault_of_all = isinstance(error, ContextLost | Unrecoverable | BadBatchResult)
        return self._on_error != "fail" and len(entries) > 1 and not fault_of_all

    def _fail_all(self, entries: list[Entry], error: Exception) -> None:
        error = deliverable(error)
        if (ward := self._ward) is not None:  # it hears of those whose callers have left, too
            errors = copies(error, len(entries))
            entries = [each for each, own in zip(entries, errors, strict=True) if not ward.ran(each, own)]
        failed = [entry for entry in entries if entry.state is State.RUNNING]
        if self._idempotent and isinstance(error, ContextLost) and self._stopping is None:
            again = [entry for entry in failed if not (entry.repeated or entry.has_parts)]
            failed = [entry for entry in failed if entry.repeated or entry.has_parts]
            for entry in again:
                entry.repeated = True
            self._counters.repeated += len(again)
            self._policy.line.restore(again)
        for entry, each in zip(failed, copies(error, len(failed)), strict=True):
            self._fail(entry, each)

    # -- life ----------------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        self._policy.draining = True
        self._pump()

    async def _end_work(self) -> None:
        self._timer.cancel()
        await end_workers(self.name, self._call, self._workers, self._clock)
