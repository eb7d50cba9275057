"""``ModelHotSwapServer``: replaces the model behind a queue of requests without failing or delaying one of them."""

import asyncio
import logging
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Literal, Self, TypeVar

from callboard.actors.clock import Clock
from callboard.actors.errors import printable
from callboard.patterns.contract.checks import check_whole
from callboard.patterns.contract.hooks import hashable
from callboard.patterns.hotswap.canary import Canary, is_failure
from callboard.patterns.hotswap.errors import SwapInProgress
from callboard.patterns.hotswap.memory import DeviceMemory
from callboard.patterns.hotswap.results import HotSwapReply, HotSwapStats, SwapReport
from callboard.patterns.hotswap.shadow import compare
from callboard.patterns.hotswap.swapping import SwapMode, Swapper
from callboard.patterns.hotswap.versions import (
    ModelVersion,
    Version,
    VersionBook,
    VersionState,
    VersionStats,
    check_version,
)
from callboard.patterns.quarantine.guarded import GuardedCalls
from callboard.patterns.requests.calling import Executor, deliverable
from callboard.patterns.requests.ending import STOP_TIMEOUT, within
from callboard.patterns.requests.entries import Entry, RequestFuture, State
from callboard.patterns.requests.errors import DeadlineExceeded, QueueFull, ServerStopped, Stage
from callboard.patterns.requests.passage import PASSAGE
from callboard.patterns.requests.server import RequestServer
from callboard.patterns.requests.stats import SECONDS, Histogram
from callboard.patterns.requests.waiting import Limits, OverflowPolicy, WaitingLine

__all__ = ["ModelHotSwapServer"]

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger(__name__)


class ModelHotSwapServer(RequestServer[T, HotSwapReply[R]]):
    """Serves a model that can be replaced by another version while requests run (a blue/green deployment).

    ::

        async with cb.ModelHotSwapServer[str, str](cb.ModelVersion("1", load_old)) as server:
            reply = await server.submit("hello")
            report = await server.swap(cb.ModelVersion("2", load_new, warmup=["hello"]))

    A swap loads the new version beside the old one, makes its warm-up calls and checks its golden items, while requests
    go on. Then it flips: requests that start from then on run on the new version, those that run end on the old one.
    When none runs on it any more, the old version is unloaded. A swap that fails before the flip leaves the old version
    as it was. The first version is loaded by ``start``; requests wait until it is there.

    Args:
        first: The version that is loaded by ``start``.
        keep: Versions that stay loaded beside the active one, so that going back to them takes no loading.
        history: Versions that are remembered when they are not loaded, so that they can be activated again.
        memory: What is free where versions are loaded. A version whose ``memory`` does not fit beside the active one is
            then swapped in place, or refused before anything is touched; and one that was unloaded and has not given
            its memory back is reported (:class:`MemoryKept`, in ``unload_errors``).
        concurrent_swaps: What happens to a swap while another one runs: ``"wait"``: it waits for its turn, in the order
            of the calls. ``"refuse"``: it fails with :class:`SwapInProgress`.
        key: Finds the key of an item. With a canary, requests of equal keys all go to it, or none of them does.
        max_concurrent: Requests that run at once on one version. None: 1, and no bound on a version that is a server,
            which has a queue of its own.
        max_queue: Requests that wait at most.
        overflow: The policy beyond that; see :class:`OverflowPolicy`.
        block_timeout: Seconds that ``"block"`` waits at most; None waits for ever.
        ageing: Seconds of waiting that count as much as one level of priority; None: priorities are strict.
        idempotent: A model that is a function may run again for the same item: after a lost context its call is
            repeated, and a request that causes losses is refused, as by :class:`Quarantine`. A server has its own.
        executor: Where models are called: ``"auto"``: async functions and methods of a ``ResidentRef`` on the loop,
            others on threads. Or ``"loop"``, ``"thread"``, or an executor of the caller's.
        name: For errors and logs.
        clock: Tells the time; for tests.

    Raises:
        ValueError: A setting out of range.
        TypeError: ``first`` is not a ``ModelVersion``.
    """

    def __init__(
        self,
        first: ModelVersion,
        *,
        keep: int = 0,
        history: int = 8,
        memory: DeviceMemory | None = None,
        concurrent_swaps: Literal["wait", "refuse"] = "wait",
        key: Callable[[T], Hashable] | None = None,
        max_concurrent: int | None = None,
        max_queue: int = 1024,
        overflow: OverflowPolicy
        | Literal["reject", "block", "drop_oldest", "drop_lowest_priority"] = OverflowPolicy.REJECT,
        block_timeout: float | None = None,
        ageing: float | None = 1.0,
        idempotent: bool = True,
        executor: Executor = "auto",
        name: str = "hot swap",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name, clock)
        if concurrent_swaps not in ("wait", "refuse"):
            raise ValueError(f'concurrent_swaps must be "wait" or "refuse", but is {concurrent_swaps!r}')
        check_whole(1, max_concurrent=1 if max_concurrent is None else max_concurrent)
        check_version(first)
        if block_timeout is not None and not block_timeout > 0:
            raise ValueError(f"block_timeout must be positive seconds, but is {block_timeout}")
        self._first = first
        self._refuses = concurrent_swaps == "refuse"
        self._key_of = key
        self._max_concurrent = max_concurrent
        self._block_timeout = block_timeout
        self._line = WaitingLine(Limits(max_queue, None, OverflowPolicy(overflow)), ageing)
        self._book = VersionBook(keep, history)
        self._swapper = Swapper(
            self._book, self._clock, executor, max_concurrent or 1, memory, self._pump, self._give_up
        )
        self._guarded = GuardedCalls(None, name, clock) if idempotent else None
        self.quarantine = None if self._guarded is None else self._guarded.quarantine
        self._turn = asyncio.Lock()
        self._swaps: set[asyncio.Task[SwapReport]] = set()
        self._calls: dict[asyncio.Task[None], tuple[Version, Entry | None]] = {}  # None: of a shadow
        self._reached: dict[int, Version] = {}  # the version that a request was passed to, until its end was counted
        self._passed_on: dict[int, asyncio.Future[Any]] = {}  # requests in the queue of a version that is a server
        self._queue_time = Histogram(SECONDS)

    # -- for users -----------------------------------------------------------------------------------------------------

    async def swap(self, version: ModelVersion, *, canary: Canary | None = None, mode: SwapMode = "auto") -> SwapReport:
        """Make a new version the active one; returns when the old one was drained and unloaded.

        Cancelled before the flip, the swap is undone. Cancelled after it, it goes on without its caller.

        Args:
            version: The new one. Its name may be that of a version that is not loaded any more.
            canary: Try it on a share of the requests before the flip; too many errors withdraw it, and so
                does the end of its time. Its requests then have as long again to end.
            mode: ``"beside"``: it is loaded beside the active version. ``"in_place"``: requests wait until those that
                run have ended, then its ``update`` puts its weights into the loaded model, golden items are checked,
                and the weights of the active version are put back where that fails. ``"auto"``: beside, unless
                ``memory`` says that there is no room.

        Raises:
            SwapFailed: Before the flip; the old version is still active.
            SwapInProgress: Another swap runs, and ``concurrent_swaps`` is ``"refuse"``.
            ValueError: A version of that name is loaded.
            TypeError: ``version`` is not a ``ModelVersion``.
            ServerStopped: The server has stopped, is draining, or stopped before the swap was done.
            RuntimeError: Called on another loop than the server's.
        """
        check_version(version)
        return await self._swap(lambda: self._book.add(version), canary, mode)

    async def activate(self, version: str, *, canary: Canary | None = None, mode: SwapMode = "auto") -> SwapReport:
        """The same with a version that was loaded before: at once if it still is, else it is loaded again.

        Raises:
            UnknownVersion: There is no such version, or it was forgotten.
            SwapFailed, SwapInProgress, ServerStopped, RuntimeError: As :meth:`swap`.
        """
        return await self._swap(lambda: self._book.find(version), canary, mode)

    async def rollback(self, *, mode: SwapMode = "auto") -> SwapReport:
        """Activate the version that was active before the active one; doing so again goes back further.

        Raises:
            UnknownVersion: There is none, or it was forgotten.
            SwapFailed, SwapInProgress, ServerStopped, RuntimeError: As :meth:`swap`.
        """
        return await self._swap(lambda: self._book.previous, None, mode, back=True)

    @property
    def active_server(self) -> RequestServer[Any, Any] | None:
        """The blueprint that the active version is; None where it is a function, or while none is active."""
        model = None if self._book.active is None else self._book.active.model
        return None if model is None else model.server

    def versions(self) -> tuple[VersionStats, ...]:
        """All versions that are remembered; the last one is the newest, or was active last. On the server's loop."""
        return tuple(version.stats() for version in self._book.all())

    def stats(self) -> HotSwapStats:
        """Figures since the start. It reads counters only; on the server's loop."""
        book, line = self._book, self._line
        return HotSwapStats(
            submitted=sum(self._ends.values()) + len(self._open),
            **self._ends,
            queued=line.count,
            blocked=line.blocked,
            running=len(self._open) - line.count - line.blocked,
            queued_cost=line.cost,
            queue_time=self._queue_time.snapshot(),
            total_time=self._total_time.snapshot(),
            active=None if book.active is None else book.active.name,
            generation=book.generation,
            swaps=max(0, book.generation - 1),
            failed_swaps=self._swapper.failures,
            versions={version.name: version.stats() for version in book.all()},
        )

    # -- swaps ---------------------------------------------------------------------------------------------------------

    async def _swap(
        self, find: Callable[[], Version], canary: Canary | None, mode: SwapMode, *, back: bool = False
    ) -> SwapReport:
        if mode not in ("auto", "beside", "in_place"):
            raise ValueError(f'mode must be "auto", "beside" or "in_place", but is {mode!r}')
        if self._closing or self._loop is None:
            raise self._refusal()
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(f"{self.name}: swaps are for the loop of the server; use run_coroutine_threadsafe")
        if self._refuses and self._swaps:
            raise SwapInProgress(f"{self.name}: another swap is running; wait for it, or set concurrent_swaps")
        flipped = False

        def flip() -> None:
            nonlocal flipped
            flipped = True

        async def take_turn() -> SwapReport:
            async with self._turn:
                version = find()
                if version is self._book.active:
                    return SwapReport(version.name, version.name, self._book.generation)
                return await self._swapper.swap(version, canary=canary, back=back, mode=mode, flipped=flip)

        task = self._loop.create_task(take_turn(), name=f"{self.name}: swap", context=self._context.copy())
        self._swaps.add(task)
        task.add_done_callback(self._swaps.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # by stop()
                raise ServerStopped(f"{self.name} stopped before the swap was done") from None
            if not flipped:
                task.cancel()
                await asyncio.wait({task})
            raise

    # -- requests ------------------------------------------------------------------------------------------------------

    def _key(self, item: T) -> Hashable:
        """The version that it was drawn for: None for the active one."""
        key = None if self._key_of is None else hashable("key", self._key_of(item))
        if self._swapper.canary is None:
            return None
        version, trial = self._swapper.canary
        return version if not trial.canary.shadow and trial.draws(key) else None

    def _runs_on(self) -> list[Any]:
        return [] if self._book.active is None else [self._book.active.model]

    def _cost(self, item: T) -> float:
        model = None if self._book.active is None else self._book.active.model
        return 1 if model is None or model.server is None else model.server._cost(item)

    def _admit(self, entry: Entry, now: float, *, may_block: bool) -> None:
        if self._guarded is not None:
            self._guarded.read_key(entry)
        for each in self._line.add(entry, may_block=may_block):
            self._fail(each, self._no_room(each), "dropped")
        if entry.state is State.BLOCKED and self._block_timeout is not None:
            entry.admit_by = now + self._block_timeout
        self._pump()

    def _no_room(self, entry: Entry) -> Exception:
        return self._line.full(entry)

    def _leave(self, entry: Entry) -> None:
        self._line.remove(entry)
        if self._line.blocked and self._line.admit_blocked():
            self._pump()

    def _close_entry(self, entry: Entry, reason: str) -> Any:
        passed_on = self._passed_on.pop(entry.number, None)
        if passed_on is not None:
            passed_on.cancel()
        version = self._reached.get(entry.number)
        if reason == "expired":  # the call may never return
            self._count_run(entry, failed=True)
        elif reason == "cancelled":
            self._reached.pop(entry.number, None)
        future = super()._close_entry(entry, reason)
        if version is not None and version.model is not None and reason in ("cancelled", "expired"):
            version.model.left(entry)
        return future

    def _expired(self, entry: Entry, stage: Stage, now: float) -> DeadlineExceeded:
        if stage == "run" and not self._has_run(entry):
            stage = "queue"
            self._reached.pop(entry.number, None)
        return super()._expired(entry, stage, now)

    def _has_run(self, entry: Entry) -> bool:
        """True if a request has left the queues: that of this server, and that of a version that is a server."""
        behind = self._passed_on.get(entry.number)
        if not isinstance(behind, RequestFuture):
            return entry.number in self._reached
        if not behind.done():
            return behind.entry.state is State.RUNNING or behind.entry.repeated
        error = None if behind.cancelled() else behind.exception()
        return error is None or is_failure(error)

    def _count_run(self, entry: Entry, *, failed: bool, error: Exception | None = None) -> None:
        """Count the end of a request that has reached a version; once."""
        version = self._reached.pop(entry.number, None)
        if version is not None:
            self._swapper.ended(version, failed=failed, seconds=self._clock.time() - entry.started, error=error)

    def _pump(self) -> None:
        """Start the requests that can start, and let those in that wait for room in the queue."""
        if self._loop is None or self._stopping is not None or self._book.active is None or self._swapper.holds:
            return
        while self._start_next() or self._line.admit_blocked():
            pass

    def _start_next(self) -> bool:
        """Start the most urgent request whose version has room, if there is one."""
        canary = None if self._swapper.canary is None else self._swapper.canary[0]
        for bucket in self._line.buckets():
            version = canary if canary is not None and bucket.key is canary else self._book.active
            assert version is not None
            if self._has_room(version):
                self._start(self._line.pop(bucket), version)
                return True
        return False

    def _has_room(self, version: Version) -> bool:
        unbounded = self._max_concurrent is None and version.model.server is not None
        return unbounded or version.running < (self._max_concurrent or 1)

    def _start(self, entry: Entry, version: Version) -> None:
        """The request runs on this version, and on no other."""
        assert self._loop is not None
        now = self._clock.time()
        entry.state, entry.started = State.RUNNING, now
        if entry.deadline is not None and entry.deadline <= now:
            self._fail(entry, self._expired(entry, "queue", now), "expired")
            return
        self._queue_time.add(now - entry.arrived)
        version.running += 1
        # In the server's context: what belongs to one request is not to mark what its call leaves behind.
        task = self._loop.create_task(self._run(entry, version), name=self.name, context=self._context.copy())
        self._calls[task] = version, entry
        task.add_done_callback(self._call_ended)

    async def _run(self, entry: Entry, version: Version) -> None:
        item = entry.item
        PASSAGE.set(entry.passage)
        failed, judged = False, None
        try:
            if entry.state is State.ENDED:
                return
            response = await self._respond(entry, item, version)
            now = self._clock.time()
            version.completed += 1
            version.run_time.add(now - entry.started)
            try:
                failed = not self._good(version, response)
            except Exception as e:  # of the user's judge: the response is not its business
                failed, judged = True, deliverable(e)
            self._shadow(item, version, response, None if entry.deadline is None else entry.deadline - entry.arrived)
            self._succeed(entry, HotSwapReply(response, version.name), now)
        except asyncio.CancelledError:  # with its request, by stop(), or with its loop
            self._fail(entry, self._stopped(), "stopped")
            return
        except Exception as e:  # of the user's model: its request ends in that
            failed = True
            version.failed += 1
            if not is_failure(e):
                self._reached.pop(entry.number, None)
            ends = {DeadlineExceeded: "expired", QueueFull: "dropped"}
            self._fail(
                entry, deliverable(e), next((end for kind, end in ends.items() if isinstance(e, kind)), "failed")
            )
        except BaseException:  # Ctrl-C
            self._fail(entry, self._stopped(), "stopped")
            raise
        self._count_run(entry, failed=failed, error=judged)

    def _good(self, version: Version, response: Any) -> bool:
        """True if a response does not count against a canary."""
        trial = self._swapper.canary
        return trial is None or trial[0] is not version or trial[1].canary.good(response)

    def _shadow(self, item: Any, version: Version, response: Any, timeout: float | None) -> None:
        """Run a request that the active version has answered on a canary as well, if it is drawn and there is room.

        Its call there has as many seconds as the request had.
        """
        trial = self._swapper.canary
        if trial is None or not trial[1].canary.shadow or version is not self._book.active:
            return
        try:
            drawn = trial[1].draws(None if self._key_of is None else self._key_of(item))
        except Exception:  # of the user's key, which has named the request before
            return
        if drawn and self._has_room(trial[0]) and self._loop is not None and self._stopping is None:
            trial[0].running += 1
            ended = self._swapper.ended
            work = compare(trial[0], trial[1].canary, item, response, timeout, self._clock, ended)
            task = self._loop.create_task(work, name=f"{self.name}: shadow", context=self._context.copy())
            self._calls[task] = trial[0], None
            task.add_done_callback(self._call_ended)

    def _give_up(self, version: Version, everything: bool) -> bool:
        """End the calls of a version that nobody waits for, or all; False if no request waits for one."""
        awaited = False
        for task, (of, entry) in list(self._calls.items()):
            if of is not version:
                continue
            if entry is not None and entry.state is not State.ENDED:
                awaited = True
                if not everything:
                    continue
                text = f"{self.name}: version {version.name!r} was withdrawn, and the request still ran on it"
                self._fail(entry, DeadlineExceeded(text, "run", self._clock.time() - entry.arrived), "expired")
            if not version.model.on_thread:
                task.cancel()
        return awaited

    async def _respond(self, entry: Entry, item: Any, version: Version) -> Any:
        server = version.model.server
        if server is None and self._guarded is not None:
            return await self._guarded.run(entry, partial(self._call, entry, item, version))
        if server is None:
            return await self._call(entry, item, version)
        self._reached[entry.number] = version
        future = server.submit_nowait(item, deadline=entry.deadline, priority=entry.priority, cost=entry.cost)
        self._passed_on[entry.number] = future
        try:
            return await future
        finally:
            self._passed_on.pop(entry.number, None)

    async def _call(self, entry: Entry, item: Any, version: Version) -> Any:
        self._reached[entry.number] = version
        return await version.model(item, entry)

    def _call_ended(self, task: asyncio.Task[None]) -> None:
        version, entry = self._calls.pop(task)
        if entry is not None:
            self._reached.pop(entry.number, None)
        version.running -= 1
        if not version.running and version.idle is not None and not version.idle.done():
            version.idle.set_result(None)
        self._pump()

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Load the first version and take requests from now on, on this loop; ``async with`` does this.

        Raises:
            SwapFailed: The first version could not be loaded, or was refused; the server has stopped.
            RuntimeError: It was started before.
        """
        await super().start()
        try:
            await self.swap(self._first)
        except BaseException:  # also cancelled: nothing else would stop what has begun
            await self.stop()
            raise
        return self

    def _drain(self) -> None:
        self._pump()

    async def _end_work(self) -> None:
        """End swaps and calls, then unload every version on which none runs any more."""
        rest: set[asyncio.Task[Any]] = {*self._swaps, *self._calls}
        rest.discard(asyncio.current_task())
        for task in rest:
            model = self._calls[task][0].model if task in self._calls else None
            if task not in self._calls or (model is not None and not model.on_thread):
                task.cancel()
        work = asyncio.ensure_future(self._unload_all(rest))
        if not await within(work, STOP_TIMEOUT, self._clock):
            _log.warning("%s: calls still run %g s after stop(), and their models stay loaded", self.name, STOP_TIMEOUT)
            for task in {work, *rest}:
                task.cancel()

    async def _unload_all(self, rest: set[asyncio.Task[Any]]) -> None:
        """Unload the loaded version once these tasks have ended."""
        if rest:
            await asyncio.wait(rest)
        for version in self._book.all():
            error = await self._swapper.unload(version, VersionState.UNLOADED) if version.model is not None else None
            if error is not None:
                _log.warning("%s: unloading version %s failed: %s", self.name, version.name, printable(error, repr))
