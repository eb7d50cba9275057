"""``DynamicBatchingServer``: callers submit single items, a function gets batches."""

from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

from callboard.actors.clock import Clock
from callboard.patterns.batching.figures import BatchCounters, BatchingStats
from callboard.patterns.batching.inorder import InOrder
from callboard.patterns.batching.isolation import OnError
from callboard.patterns.batching.policy import BatchPolicy
from callboard.patterns.batching.results import Rows, rows_of
from callboard.patterns.batching.running import BatchRunner
from callboard.patterns.batching.settings import BatchSettings, Dispatch, check_choice
from callboard.patterns.batching.workers import Workers
from callboard.patterns.contract.checks import check_callable
from callboard.patterns.quarantine.adapter import QuarantineAdapter
from callboard.patterns.quarantine.guard import Quarantine
from callboard.patterns.requests.calling import Executor, UserCall, deliverable
from callboard.patterns.requests.ending import end_workers
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.fitting import check_fits
from callboard.patterns.requests.server import RequestServer
from callboard.patterns.requests.waiting import Limits, OverflowPolicy

__all__ = ["DynamicBatchingServer"]

T = TypeVar("T")
R = TypeVar("R")


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
        quarantine_key: Key of an item: equal for items that would kill alike. Otherwise it is that of the caller's
            :func:`callboard.request_key`, or a hash of the item's contents.
        executor: The executor that calls ``batch_fn``; see :class:`UserCall`.
        name: For errors and logs.
        clock: Tells the time; for tests.

    Raises:
        ValueError: A setting out of range, or settings that contradict each other.
        TypeError: ``batch_fn``, ``bucket``, ``cost`` or ``pad`` cannot be called; ``batch_fn``
            cannot take a list alone; a number of items is no integer.
    """

    _key_hook = "bucket"

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
        idempotent: bool = True,
        on_error: OnError | None = None,
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
        check_fits(batch_fn, 1)
        check_callable(bucket=bucket, cost=cost, pad=pad)
        check_choice("order", order, "arrival", "deadline")
        check_choice("timeout_action", timeout_action, "reject", "delay")
        if on_error is None:
            on_error = "isolate" if idempotent else "fail"
        check_choice("on_error", on_error, "isolate", "bisect", "retry_single", "fail")
        if join_buckets and bucket is None:
            raise ValueError("join_buckets=True needs bucket, which gives the length of an item")
        if on_error != "fail" and not idempotent:
            raise ValueError(f'on_error="{on_error}" runs items again, which needs idempotent=True')
        if ragged and pad is not None:
            raise ValueError("ragged batches are not padded; give ragged or pad")
        if block_timeout is not None and not block_timeout > 0:
            raise ValueError(f"block_timeout must be positive seconds, but is {block_timeout}")
        self._adapter = QuarantineAdapter.of(quarantine, quarantine_key, self, idempotent=idempotent)
        self._feeders.guard = self._adapter
        self.quarantine = None if self._adapter is None else self._adapter.quarantine
        self._policy = BatchPolicy(settings)
        self._call = UserCall(batch_fn, executor, max_concurrent_batches)
        self._bucket = bucket
        self._cost_of = cost
        self._block_timeout = block_timeout
        self._in_order = InOrder(self._open) if preserve_order else None
        self._counters = BatchCounters()
        self._workers = Workers(self, self._policy)
        self._runner = BatchRunner(
            *(self, self._policy, self._call, self._counters),
            pad=pad,
            ragged=ragged,
            on_error=on_error,
        )

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
        self._workers.pump()

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
        self._on_loop(self._workers.pump)

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

    @property
    def batch_fn(self) -> Callable[..., Any]:
        """The function that computes its batches."""
        return self._call.function

    def _runs_on(self) -> list[Any]:
        return [self._call]

    def _admit(self, entry: Entry, now: float, *, may_block: bool) -> None:
        if entry.deadline is not None and self._policy.hopeless(entry, now):
            raise self._expired(entry, "submit", now)
        for dropped in self._policy.add(entry, now, may_block=may_block):
            self._fail(dropped, self._no_room(dropped), "dropped")
        if entry.state is State.BLOCKED and self._block_timeout is not None:
            entry.admit_by = now + self._block_timeout
        self._workers.pump()

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
            self._workers.pump()

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

    def _readmit(self, entry: Entry) -> None:
        self._policy.line.restore([entry])
        self._workers.pump()

    async def _alone(self, call: UserCall, item: Any) -> Any:
        (row,) = rows_of(await call([item]), 1)
        if isinstance(row, BaseException):
            raise deliverable(row)
        return row

    # -- life ----------------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        self._policy.draining = True
        self._workers.pump()

    async def _end_work(self) -> None:
        self._workers.end()
        await end_workers(self.name, self._call, self._workers.tasks, self._clock)
