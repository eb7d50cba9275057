"""``DynamicBatchingServer``: callers submit single items, a function gets batches."""

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import replace
from typing import Any, TypeVar

from callboard.actors.clock import Clock
from callboard.patterns.batching.figures import BatchCounters, BatchingStats
from callboard.patterns.batching.inorder import InOrder
from callboard.patterns.batching.isolation import OnError
from callboard.patterns.batching.policy import BatchPolicy
from callboard.patterns.batching.results import Rows, rows_of
from callboard.patterns.batching.running import BatchRunner
from callboard.patterns.batching.settings import BatchOptions, BatchSettings
from callboard.patterns.batching.workers import Workers
from callboard.patterns.contract.checks import check_callable, check_choice
from callboard.patterns.quarantine.guard import Quarantine
from callboard.patterns.requests.calling import Executor, UserCall, deliverable
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.fitting import check_fits
from callboard.patterns.requests.queueing import QueueServer
from callboard.patterns.requests.waiting import QueueOptions

__all__ = ["DynamicBatchingServer"]

T = TypeVar("T")
R = TypeVar("R")


class DynamicBatchingServer(QueueServer[T, R]):
    """Collects single requests into batches for a function that is fast on many at once.

    ::

        async with cb.DynamicBatchingServer(embed_many, max_batch=32) as server:
            vector = await server.submit("hello")

    A batch is formed when an executor is free, never earlier: while one runs, the next one fills. A lone request runs
    at once; see :class:`BatchOptions` for when one waits for others.

    Args:
        batch_fn: Gets a list of items, returns (or is awaited for) one result for each, in their order: a list, a
            tuple, or an array or ``GpuRef`` of that many rows. A result that is an exception fails its own request. One
            that is an asynchronous iterator is read to its end while the batch runs: :meth:`stream` gives its
            parts one by one, ``submit`` the list of them. The function may be plain, async,
            ``functools.partial(model.call, Model.predict)`` of a resident actor, or call device ops.
        max_batch: Items of a batch at most.
        max_wait: Seconds that a request waits for others at most, while an executor is free.
        max_concurrent_batches: Batches that run at once; with two, the next one can copy to the device meanwhile.
        bucket: A key of an item, such as its shape or :func:`pow2_length`; only items of equal keys are batched.
        cost: The cost of an item, such as its tokens; called once, in ``submit``.
        max_batch_cost: Summed cost of a batch at most.
        max_queue: Requests that wait at most.
        batches: How batches are formed; see :class:`BatchOptions`.
        queue: Further bounds of the queue, the policy beyond them, and its order; see :class:`QueueOptions`.
        idempotent: ``batch_fn`` may run again for the same item: after a lost context the requests of its batch are
            queued again, and the one that causes the losses is found and refused, by ``quarantine``. False: they fail
            with ``ContextLost``.
        on_error: Which items run again where a batch of n fails with an exception, so that only those fail that cannot
            be done. ``"isolate"``: single ones until one succeeds, then halves of the rest; for k bad items about
            2 k log2 n more calls, and no more than 4 of one item where ``batch_fn`` fails whatever it gets: then all
            fail. ``"bisect"``: halves, and halves of those that fail, in any case. ``"retry_single"``: each item alone.
            All these need ``idempotent``. ``"fail"``: the batch fails. None: ``"isolate"`` if ``idempotent``, else
            ``"fail"``.
        quarantine: The :class:`Quarantine` to use instead of one with its default settings. It gets None as its target,
            and as its spare a function like ``batch_fn``.
        executor: The executor that calls ``batch_fn``; see :class:`UserCall`.
        name: For errors and logs.
        clock: Tells the time; for tests.

    Raises:
        ValueError: A setting out of range, or settings that contradict each other.
        TypeError: ``batch_fn``, ``bucket`` or ``cost`` cannot be called; ``batch_fn`` cannot take a list alone; a
            number of items is no integer.
    """

    _key_hook = "bucket"

    def __init__(
        self,
        batch_fn: Callable[[list[T]], Awaitable[Rows[R]] | Rows[R]],
        *,
        max_batch: int = 32,
        max_wait: float = 0.01,
        max_concurrent_batches: int = 1,
        bucket: Callable[[T], Hashable] | None = None,
        cost: Callable[[T], float] | None = None,
        max_batch_cost: float | None = None,
        max_queue: int = 1024,
        batches: BatchOptions = BatchOptions(),  # noqa: B008 -- frozen
        queue: QueueOptions = QueueOptions(),  # noqa: B008 -- frozen
        idempotent: bool = True,
        on_error: OnError | None = None,
        quarantine: Quarantine[Any] | None = None,
        executor: Executor = "auto",
        name: str = "batching",
        clock: Clock | None = None,
    ) -> None:
        settings = BatchSettings(max_batch, max_wait, max_batch_cost, max_concurrent_batches, max_queue, batches, queue)
        self._policy = BatchPolicy(settings)
        super().__init__(name, clock, self._policy.line, cost)
        check_fits(batch_fn, 1)
        check_callable(bucket=bucket)
        if on_error is None:
            on_error = "isolate" if idempotent else "fail"
        check_choice("on_error", on_error, "isolate", "bisect", "retry_single", "fail")
        if batches.join_buckets and bucket is None:
            raise ValueError("join_buckets=True needs bucket, which gives the length of an item")
        if on_error != "fail" and not idempotent:
            raise ValueError(f'on_error="{on_error}" runs items again, which needs idempotent=True')
        self._guard_queue(quarantine, idempotent=idempotent)
        self._call = UserCall(batch_fn, executor, max_concurrent_batches)
        self._bucket = bucket
        self._in_order = InOrder(self._open) if batches.preserve_order else None
        self._counters = BatchCounters(self._queue_time)
        self._workers = Workers(self, self._policy)
        self._runner = BatchRunner(self, self._policy, self._call, self._counters, on_error=on_error)

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

    def _flush(self) -> None:
        self._policy.flush_now()
        self._pump()

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
        return self._counters.stats(**self._queue_figures())

    # -- requests ------------------------------------------------------------------------------------------------------

    def _key(self, item: T) -> Hashable:
        return None if self._bucket is None else self._policy.key(self._bucket(item))

    @property
    def batch_fn(self) -> Callable[..., Any]:
        """The function that computes its batches."""
        return self._call.function

    def _runs_on(self) -> list[Any]:
        return [self._call]

    def _add(self, entry: Entry, now: float, *, may_block: bool) -> list[Entry]:
        if entry.deadline is not None and self._policy.hopeless(entry, now):
            raise self._expired(entry, "submit", now)
        return self._policy.add(entry, now, may_block=may_block)

    def _retry_after(self) -> float | None:
        return self._policy.retry_after()

    def _pump(self) -> None:
        self._workers.pump()

    def _goes_on(self, entry: Entry) -> bool:
        if not self._policy.settings.form.delays or entry.state not in (State.QUEUED, State.RUNNING):
            return False
        entry.deadline = None
        if entry.state is State.QUEUED:
            self._policy.line.put_last(entry)
            self._counters.delayed += 1
        return True

    def _succeed(self, entry: Entry, value: Any, now: float) -> None:
        if self._in_order is None or entry.number not in self._open:
            super()._succeed(entry, value, now)
        else:
            if self._adapter is not None:  # its run is over: an earlier request may wait for its turn until then
                self._adapter.ran(entry)
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

    async def _alone(self, call: UserCall, item: Any) -> Any:
        (row,) = rows_of(await call([item]), 1)
        if isinstance(row, BaseException):
            raise deliverable(row)
        return row

    # -- life ----------------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        self._policy.draining = True
        self._pump()

    async def _end_work(self) -> None:
        self._workers.stop()
        self._call.close()
        await self._workers.end(interrupt=not self._call.on_thread)
