"""``StreamAllocatorTests``, ``CompletionStrategyTests``: the contracts of one's own strategies, as tests for pytest.

Derive a class from one of them in your test file::

    class TestMyAllocator(StreamAllocatorTests):
        @pytest.fixture
        def make(self):
            return lambda: MyAllocator(size=2)

``make()`` gives a new object each time. The last tests open CPU devices with it.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

import callboard as cb
from callboard.core import registry
from callboard.device.host.context.completion import completion_for
from callboard.device.host.context.streams import SharedStreams
from callboard.device.host.context.timelines import Timeline
from callboard.device.strategies.carried import carried, unpacked

__all__ = ["CompletionStrategyTests", "StreamAllocatorTests"]

Make = Callable[[], Any]

ACTORS = ("memory", "blas", "elementwise", "solver", "memory.d2h", "fft", "embedder", "blas", "tests.Model")
BOUND = 30.0


def _stream_class() -> type[Any]:
    """The class of the CPU's streams, whose work is functions."""
    backend = registry.backend("cpu")
    device = backend.open(backend.devices()[0])
    try:
        stream = device.stream()
        stream.close()
        return type(stream)
    finally:
        device.close()


class _Device:
    """Makes streams of the CPU; ``refuses`` so many times first."""

    def __init__(self, refuses: int = 0) -> None:
        self.refuses = refuses
        self.made: list[Any] = []

    def stream(self, priority: int = 0) -> Any:
        if self.refuses:
            self.refuses -= 1
            raise cb.OutOfMemory("no stream is left")
        self.made.append(_stream_class()(priority))
        return self.made[-1]


class StreamAllocatorTests:
    """The conformance suite of :class:`callboard.StreamAllocator`."""

    isolations: ClassVar[tuple[Literal["thread", "process"], ...]] = ("thread", "process")
    """The isolations of the devices that the last test opens."""

    @staticmethod
    @contextmanager
    def streams(allocator: Any, device: _Device | None = None, **priorities: int) -> Iterator[SharedStreams]:
        """The streams of a context that uses a copy of an allocator, as a host makes it."""
        device = device or _Device()
        streams = SharedStreams(device, priorities, unpacked("streams", carried("streams", allocator)))  # type: ignore[arg-type]
        try:
            yield streams
        finally:
            for timeline in streams.timelines:
                timeline.stream.close()

    def test_every_actor_gets_a_stream_of_the_context(self, make: Make) -> None:
        with self.streams(make(), blas=1, fft=-1) as streams:
            for actor in ACTORS:
                assert streams.acquire(actor) in streams.timelines

    def test_each_context_has_streams_of_its_own(self, make: Make) -> None:
        allocator = make()
        with self.streams(allocator) as one, self.streams(allocator) as other:
            assert not {one.acquire(a) for a in ACTORS} & {other.acquire(a) for a in ACTORS}
        with self.streams(allocator) as later:
            later.acquire("blas")

    def test_a_stream_that_was_closed_is_not_given_again(self, make: Make) -> None:
        with self.streams(make(), urgent=1) as streams:
            for actors in itertools.permutations(("memory", "model", "urgent"), 3):
                for timeline in [streams.acquire(actor) for actor in actors]:
                    streams.release(timeline)
            streams.acquire("blas")

    def test_actors_that_come_and_go_leave_no_streams(self, make: Make) -> None:
        with self.streams(make()) as streams:
            kept = [streams.acquire(actor) for actor in ACTORS]
            most = 0
            for number in range(200):
                streams.release(streams.acquire(f"model-{number}"))
                if number == 100:
                    most = len(streams.timelines)
            assert len(streams.timelines) <= most
            assert set(kept) <= set(streams.timelines)

    def test_a_stream_that_cannot_be_made_is_asked_for_again(self, make: Make) -> None:
        with self.streams(make(), _Device(refuses=1)) as streams:
            with pytest.raises(cb.OutOfMemory):
                streams.acquire("blas")
            assert streams.acquire("blas") in streams.timelines

    def test_a_device_computes_with_it(self, make: Make) -> None:
        for isolation in self.isolations:
            with cb.sync.device("cpu", isolation=isolation, streams=make(), standby=None) as gpu:
                _works(gpu)


class CompletionStrategyTests:
    """The conformance suite of :class:`callboard.CompletionStrategy`."""

    isolations: ClassVar[tuple[Literal["thread", "process"], ...]] = ("thread", "process")
    """The isolations of the devices that the last test opens."""

    @staticmethod
    @contextmanager
    def opened(strategy: Any, wake: Callable[[], None] = lambda: None) -> Iterator[Any]:
        """A copy of a strategy, open, as a host makes it."""
        opened = completion_for(carried("completion", strategy), 1e-4, wake, lambda: None, shared=False, looks=True)
        try:
            yield opened
        finally:
            opened.close()

    def test_waits_are_seconds_or_none(self, make: Make) -> None:
        with self.opened(make()) as strategy:
            for flying in (True, False, True, True, False, False):
                strategy.watch([])
                waits = strategy.wait(flying)
                assert waits is None or (not isinstance(waits, bool) and waits >= 0)
                strategy.came()

    def test_it_does_not_poll_forever_at_rest(self, make: Make) -> None:
        with self.opened(make()) as strategy:
            strategy.wait(True)
            until = time.monotonic() + BOUND
            while strategy.wait(False) == 0:
                strategy.watch([])
                assert time.monotonic() < until, "wait(flying=False) returns 0 again and again"

    def test_work_that_ends_is_noticed(self, make: Make) -> None:
        woken = threading.Event()
        stream, go = _stream_class()(0), threading.Event()
        timeline = Timeline(stream)
        try:
            with self.opened(make(), woken.set) as strategy:
                for number in range(1, 4):
                    go.clear()
                    stream.submit(go.wait, BOUND)
                    timeline.issued = number
                    strategy.watch([timeline])
                    strategy.wait(True)
                    go.set()
                    self._until_done(strategy, timeline, woken)
        finally:
            go.set()
            stream.close()

    def test_a_stream_that_fails_does_not_end_it(self, make: Make) -> None:
        streams = _stream_class()

        class Failing(streams):  # type: ignore[misc,valid-type]
            def synchronize(self) -> None:
                raise cb.ContextPoisoned("by the test")

            def signal(self, semaphore: int) -> bool:
                return True  # like a stream with a sticky error, it never posts

        woken = threading.Event()
        failing, stream = Failing(0), streams(0)
        bad, good = Timeline(failing), Timeline(stream)
        try:
            with self.opened(make(), woken.set) as strategy:
                bad.issued = 1
                strategy.watch([bad, good])
                good.issued = 1
                strategy.watch([bad, good])
                self._until_done(strategy, good, woken)
        finally:
            failing.close()
            stream.close()

    def test_closing_ends_its_threads(self, make: Make) -> None:
        before = set(threading.enumerate())
        with self.opened(make()) as strategy:
            strategy.wait(True)
        for thread in set(threading.enumerate()) - before:
            thread.join(BOUND)
            assert not thread.is_alive(), f"{thread.name} lives on after close()"

    def test_a_device_computes_with_it(self, make: Make) -> None:
        for isolation in self.isolations:
            with cb.sync.device("cpu", isolation=isolation, completion=make(), standby=None) as gpu:
                _works(gpu)

    @staticmethod
    def _until_done(strategy: Any, timeline: Timeline, woken: threading.Event) -> None:
        """The admitting thread's loop, until the work of a timeline is done."""
        until = time.monotonic() + BOUND
        while not (timeline.poll() or timeline.completed == timeline.issued):
            assert time.monotonic() < until, "work that is done is not noticed"
            strategy.watch([timeline])
            woken.wait(strategy.wait(True))
            woken.clear()


def _works(gpu: Any) -> None:
    """Several libraries, chains across them, many results in flight, and a pause."""
    a = np.arange(16.0).reshape(4, 4) + 4 * np.eye(4)
    for _ in range(2):
        ref = gpu.put(a)
        sums = [gpu.xp.sum(gpu.blas.gemm(ref, ref) + k) for k in range(20)]
        inverse = gpu.solver.inverse(ref)
        assert np.allclose([float(s.get()) for s in sums], [(a @ a + k).sum() for k in range(20)])
        assert np.allclose(gpu.blas.gemm(inverse, ref).get(), np.eye(4))
