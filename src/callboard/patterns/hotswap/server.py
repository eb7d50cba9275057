"""``ModelHotSwapServer``: replaces the model behind a queue of requests without failing or delaying one of them."""

import asyncio
import logging
from collections.abc import Callable, Hashable
from typing import Any, Literal, Self, TypeVar

from callboard.actors.clock import Clock
from callboard.actors.errors import printable
from callboard.patterns.contract.checks import check_choice, check_whole
from callboard.patterns.contract.hooks import hashable
from callboard.patterns.hotswap.canary import Canary
from callboard.patterns.hotswap.errors import SwapInProgress
from callboard.patterns.hotswap.memory import DeviceMemory
from callboard.patterns.hotswap.results import HotSwapReply, HotSwapStats, SwapReport
from callboard.patterns.hotswap.runs import VersionRuns
from callboard.patterns.hotswap.swapping import SwapMode, Swapper
from callboard.patterns.hotswap.versions import (
    ModelVersion,
    Version,
    VersionBook,
    VersionState,
    VersionStats,
    check_version,
)
from callboard.patterns.requests.calling import Executor
from callboard.patterns.requests.entries import Entry
from callboard.patterns.requests.errors import DeadlineExceeded, ServerStopped, Stage
from callboard.patterns.requests.queueing import QueueServer
from callboard.patterns.requests.runs import RunLimit
from callboard.patterns.requests.server import RequestServer
from callboard.patterns.requests.waiting import QueueOptions, WaitingLine
from callboard.patterns.requests.workers import STOP_TIMEOUT, within

__all__ = ["ModelHotSwapServer"]

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger(__name__)


class ModelHotSwapServer(QueueServer[T, HotSwapReply[R]]):
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
        queue: Further bounds of the queue, the policy beyond them, and its order; see :class:`QueueOptions`.
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
        queue: QueueOptions = QueueOptions(),  # noqa: B008 -- frozen
        idempotent: bool = True,
        executor: Executor = "auto",
        name: str = "hot swap",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name, clock, WaitingLine(max_queue, queue))
        check_choice("concurrent_swaps", concurrent_swaps, "wait", "refuse")
        check_whole(1, max_concurrent=1 if max_concurrent is None else max_concurrent)
        check_version(first)
        self._first = first
        self._refuses = concurrent_swaps == "refuse"
        self._key_of = key
        self._book = VersionBook(keep, history)
        self._guard_calls(idempotent=idempotent)
        self._runs = VersionRuns(self, key, max_concurrent)
        self._swapper = Swapper(
            self._book, self._clock, executor, max_concurrent or 1, memory, self._pump, self._runs.give_up
        )
        self._turn = asyncio.Lock()
        self._swaps: set[asyncio.Task[SwapReport]] = set()

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
        book = self._book
        return HotSwapStats(
            **self._queue_figures(),
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
        check_choice("mode", mode, "auto", "beside", "in_place")
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

        task = self._spawn(take_turn(), "swap")
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

    def limit_runs(self, limit: RunLimit) -> None:
        """Bound each run of the versions that are loaded from now on; one whose runs cannot be ended is not loaded."""
        self._swapper.limit = limit

    def _runs_on(self) -> list[Any]:
        return [] if self._book.active is None else [self._book.active.model]

    def _cost(self, item: T) -> float:
        model = None if self._book.active is None else self._book.active.model
        return 1 if model is None or model.server is None else model.server._cost(item)

    def _close_entry(self, entry: Entry, reason: str) -> Any:
        left = self._runs.leave(entry, reason)
        future = super()._close_entry(entry, reason)
        if left is not None:
            left.left(entry)
        return future

    def _expired(self, entry: Entry, stage: Stage, now: float) -> DeadlineExceeded:
        if stage == "run" and not self._runs.has_run(entry):
            stage = "queue"
        return super()._expired(entry, stage, now)

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
            if self._runs.has_room(version):
                entry = self._line.pop(bucket)
                if self._starts(entry):
                    self._runs.start(entry, version)
                return True
        return False

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

    async def _end_work(self) -> None:
        """End swaps and calls, then unload every version on which none runs any more."""
        swaps = self._swaps - {asyncio.current_task()}
        for swap in swaps:
            swap.cancel()
        rest: set[asyncio.Task[Any]] = {*swaps, *self._runs.cancel()}
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
