"""Strategies pass their conformance suites, ours and one of a user; what a wrong one does is named."""

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.faults.load import BOUND

import callboard as cb
from callboard.testing.strategies import CompletionStrategyTests, StreamAllocatorTests


class CopiesApart(cb.StreamAllocator):
    """Two streams: one for copies, one for all else."""

    def __init__(self) -> None:
        self.streams: dict[bool, Any] = {}

    def acquire(self, actor: str, priority: int, new: Callable[[int], Any]) -> Any:
        copies = actor.startswith("memory")
        if copies not in self.streams:
            self.streams[copies] = new(priority)
        return self.streams[copies]


class Naps(cb.CompletionStrategy):
    """Looks every half millisecond."""

    def wait(self, flying: bool) -> float | None:
        return 0.0005 if flying else None


ALLOCATORS: dict[str, Callable[[], Any]] = {
    "chained": cb.ChainedAllocator,
    "per_actor": cb.PerActorAllocator,
    "single": cb.SingleStreamAllocator,
    "pooled": lambda: cb.PooledAllocator(2),
}
COMPLETIONS = {"polled": cb.PolledCompletion, "host_fn": cb.HostFnCompletion, "sync": cb.SyncCompletion}


class TestOurAllocators(StreamAllocatorTests):
    isolations = ("thread",)

    @pytest.fixture(params=ALLOCATORS)
    def make(self, request: pytest.FixtureRequest) -> Callable[[], Any]:
        return ALLOCATORS[request.param]


class TestOurCompletions(CompletionStrategyTests):
    isolations = ("thread",)

    @pytest.fixture(params=COMPLETIONS)
    def make(self, request: pytest.FixtureRequest) -> Callable[[], Any]:
        return COMPLETIONS[request.param]


class TestMyAllocator(StreamAllocatorTests):
    @pytest.fixture
    def make(self) -> Callable[[], Any]:
        return CopiesApart


class TestMyCompletion(CompletionStrategyTests):
    @pytest.fixture
    def make(self) -> Callable[[], Any]:
        return Naps


# -- what a wrong one does ---------------------------------------------------------------------------------------------


class Wrong(CopiesApart):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def acquire(self, actor: str, priority: int, new: Callable[[int], Any]) -> Any:
        if self.fault == "raises":
            raise KeyError("mine")
        if self.fault == "exits":
            sys.exit(3)
        if self.fault == "foreign":
            return "a stream of another context"
        return super().acquire(actor, 9 if self.fault == "priority" else priority, new)

    def release(self, stream: Any) -> Any:
        return "yes" if self.fault == "word" else True


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class WrongNaps(Naps):
    def __init__(self, value: Any) -> None:
        self.value = value

    def wait(self, flying: bool) -> Any:
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value


class OnlyHere:
    """Its copies cannot be made."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def unmade() -> cb.StreamAllocator:
    allocator = CopiesApart()
    allocator.streams = {True: OnlyHere()}
    return allocator


class Model(cb.ResidentActor):
    def one(self) -> int:
        return 1


async def use(dev: cb.Device) -> None:
    await dev.put(np.ones(3)).get()
    actor = dev.actor_of(cb.Props(Model))
    await actor.call(Model.one)
    await actor.stop_and_wait()
    await dev.put(np.ones(3)).get()


@pytest.mark.parametrize(
    "options, text",
    [
        ({"streams": Wrong("foreign")}, r"Wrong\.acquire\('memory'\) returned 'a stream of another context'; return a"),
        ({"streams": Wrong("raises")}, r"Wrong\.acquire\('memory'\) failed: KeyError: 'mine'"),
        ({"streams": Wrong("exits")}, r"Wrong\.acquire\('memory'\) failed: SystemExit: 3"),
        ({"streams": Wrong("priority")}, "priority is 9; use -1, 0 or 1"),
        ({"streams": Wrong("word")}, r"Wrong\.release\(\) returned 'yes'; return True"),
        ({"streams": unmade()}, "streams: CopiesApart cannot be made in the context host: ValueError: invalid literal"),
        ({"completion": WrongNaps("soon")}, r"WrongNaps\.wait returned 'soon'; return a finite number of seconds"),
        ({"completion": WrongNaps(-1.0)}, r"WrongNaps\.wait returned -1\.0"),
        ({"completion": WrongNaps(float("nan"))}, r"WrongNaps\.wait returned nan"),
        ({"completion": WrongNaps(KeyError("mine"))}, r"WrongNaps\.wait failed: KeyError: 'mine'"),
        ({"completion": WrongNaps(asyncio.CancelledError())}, r"WrongNaps\.wait failed: CancelledError"),
        ({"completion": WrongNaps(Unprintable())}, r"WrongNaps\.wait failed: Unprintable: <Unprintable, whose text"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_wrong_strategy_stops_the_device_and_is_named(options: Any, text: str) -> None:
    with pytest.raises(cb.Unrecoverable, match=text):
        async with asyncio.timeout(BOUND), cb.device("cpu", isolation="thread", **options) as dev:
            await use(dev)


@pytest.mark.parametrize("seconds", [1e300, 10**400])
async def test_a_wait_of_ages_is_a_long_one(seconds: float) -> None:
    async with asyncio.timeout(BOUND), cb.device("cpu", isolation="thread", completion=WrongNaps(seconds)) as dev:
        await use(dev)


async def test_a_stream_that_another_actor_has_is_not_closed() -> None:
    async with asyncio.timeout(BOUND), cb.device("cpu", isolation="thread", streams=Wrong("closes")) as dev:
        await dev.blas.gemm(dev.put(np.eye(2)), dev.put(np.eye(2)))
        with pytest.raises(cb.Unrecoverable, match=r"Wrong\.release\(\) returned True; return False: \d other actors"):
            await use(dev)


async def test_a_strategy_that_never_wakes_delays_work_by_a_moment_only() -> None:
    async with asyncio.timeout(BOUND), cb.device("cpu", isolation="thread", completion=WrongNaps(None)) as dev:
        await use(dev)


def unpicklable() -> cb.StreamAllocator:
    allocator: Any = CopiesApart()
    allocator.lock = threading.Lock()
    return allocator  # type: ignore[no-any-return]


class Long(Naps):
    def watch(self, timelines: Any, now: float) -> None: ...  # type: ignore[override]


class Coroutine(CopiesApart):
    async def release(self, stream: Any) -> bool:  # type: ignore[override]
        return True


@pytest.mark.parametrize(
    "error, options, text",
    [
        (TypeError, {"streams": CopiesApart}, "streams is the class CopiesApart; pass an object"),
        (TypeError, {"streams": Naps()}, "a class that derives from cb.StreamAllocator"),
        (TypeError, {"completion": 3}, "completion is 3; pass a name, or an object"),
        (TypeError, {"streams": unpicklable()}, "cannot be sent to the context host: TypeError: cannot pickle"),
        (TypeError, {"completion": Long()}, r"Long.watch\(.* is called as watch\(timelines\): missing .* 'now'"),
        (TypeError, {"streams": Coroutine()}, "Coroutine.release is a coroutine function"),
        (ValueError, {"streams": "doubled"}, "streams = 'doubled': use one of 'chained', .* cb.StreamAllocator"),
        (ValueError, {"completion": "soon"}, "completion = 'soon': use one of 'polled', .* cb.CompletionStrategy"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_is_no_strategy_is_refused_when_the_device_is_opened(error: Any, options: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        async with cb.device("cpu", **options):
            pass


@pytest.mark.parametrize("size", [0, 1.5, "3", True])
def test_a_pool_of_no_streams_is_refused(size: Any) -> None:
    with pytest.raises(ValueError, match=rf"PooledAllocator \(pooled_streams\) is {size!r}; it is a whole number"):
        cb.PooledAllocator(size)


@pytest.mark.parametrize("spin", [-1, float("nan"), float("inf"), "x", True])
def test_a_spin_that_is_no_time_is_refused(spin: Any) -> None:
    with pytest.raises(ValueError, match=f"PolledCompletion is {spin!r}; pass a finite number"):
        cb.PolledCompletion(spin)


async def test_the_settings_of_a_host_take_them_too() -> None:
    host = cb.HostConfig(streams=CopiesApart(), completion=Naps())  # type: ignore[arg-type]
    async with asyncio.timeout(BOUND), cb.device("cpu", isolation="thread", host=host) as dev:
        await use(dev)
        assert (await dev.stats()).live_streams == 2


# -- the suites find what is wrong -------------------------------------------------------------------------------------

GLOBAL: dict[str, Any] = {}


class Leaks(CopiesApart):
    def acquire(self, actor: str, priority: int, new: Callable[[int], Any]) -> Any:
        return new(priority)


class Forgets(CopiesApart):
    def release(self, stream: Any) -> bool:
        return stream is not self.streams.get(True)


class AcrossContexts(CopiesApart):
    def acquire(self, actor: str, priority: int, new: Callable[[int], Any]) -> Any:
        if "stream" not in GLOBAL:
            GLOBAL["stream"] = new(priority)
        return GLOBAL["stream"]


class TriesOnce(CopiesApart):
    def acquire(self, actor: str, priority: int, new: Callable[[int], Any]) -> Any:
        tried, self.tried = getattr(self, "tried", False), True
        if not tried:
            self.streams[True] = new(0)
        return self.streams[True]


class Spins(Naps):
    def wait(self, flying: bool) -> float | None:
        return 0


class LeavesThread(Naps):
    def open(self, wake: Any, enter: Any) -> None:
        self.over = GLOBAL["over"] = threading.Event()
        threading.Thread(target=self.over.wait, daemon=True).start()


class Blocks(Naps):
    def watch(self, timelines: Any) -> None:
        for timeline in timelines:
            if timeline.completed < timeline.issued:
                timeline.stream.synchronize()  # not on the admitting thread: it has other streams to admit for


@pytest.mark.parametrize(
    "make, test",
    [
        (Leaks, "test_actors_that_come_and_go_leave_no_streams"),
        (Forgets, "test_a_stream_that_was_closed_is_not_given_again"),
        (AcrossContexts, "test_each_context_has_streams_of_its_own"),
        (TriesOnce, "test_a_stream_that_cannot_be_made_is_asked_for_again"),
        (Spins, "test_it_does_not_poll_forever_at_rest"),
        (LeavesThread, "test_closing_ends_its_threads"),
        (Blocks, "test_a_stream_that_fails_does_not_end_it"),
        (lambda: WrongNaps(-1.0), "test_waits_are_seconds_or_none"),
    ],
)
def test_the_suites_can_fail(make: Any, test: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.testing.strategies.BOUND", 0.05)
    suite = StreamAllocatorTests() if isinstance(make(), cb.StreamAllocator) else CompletionStrategyTests()
    try:
        with pytest.raises((AssertionError, cb.AccelError)):
            getattr(suite, test)(make)
    finally:
        for left in GLOBAL.values():
            (left.set if isinstance(left, threading.Event) else left.close)()
        GLOBAL.clear()
