"""Pipelines without a device: order, room, errors, cancelling, draining, and the streams."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import callboard as cb

LIMIT = 30.0


class Source:
    """Numbers, and how many were taken; whether it was closed."""

    def __init__(self, count: int, raises: Exception | None = None) -> None:
        self.taken = 0
        self.closed = False
        self._count = count
        self._raises = raises

    async def __aiter__(self) -> AsyncGenerator[int, None]:
        try:
            for n in range(self._count):
                self.taken += 1
                yield n
            if self._raises is not None:
                raise self._raises
        finally:
            self.closed = True


class Gate:
    """A stage whose items are let through by hand.

    Attributes:
        entered: Items in the order in which they came.
    """

    def __init__(self) -> None:
        self.entered: list[int] = []
        self.cancelled: list[int] = []
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._came = asyncio.Event()

    async def __call__(self, n: int) -> Any:
        self.entered.append(n)
        self._waiting[n] = asyncio.get_running_loop().create_future()
        self._came.set()
        try:
            return await self._waiting[n]
        except asyncio.CancelledError:
            self.cancelled.append(n)
            raise

    async def until(self, count: int) -> None:
        async with asyncio.timeout(LIMIT):
            while len(self.entered) < count:
                self._came.clear()
                await self._came.wait()

    def open(self, n: int, value: Any) -> None:
        if isinstance(value, Exception):
            self._waiting[n].set_exception(value)
        else:
            self._waiting[n].set_result(value)


async def settle() -> None:
    """Let all tasks come to where they wait."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_slow_reader_holds_the_source_back() -> None:
    source = Source(100)
    pipeline = cb.PipelineExecutor[int](lambda n: n, lambda n: 10 * n, in_flight=3)
    async with contextlib.aclosing(pipeline.run(source)) as results:
        for n in range(20):
            assert await anext(results) == 10 * n
            await settle()
            assert source.taken == n + 4  # the one that was read made room for one
            assert pipeline.stats.in_flight == 3
    assert source.closed
    assert pipeline.stats.in_flight == 0


async def test_items_enter_each_stage_in_order_and_results_come_in_order() -> None:
    first, second = Gate(), Gate()
    pipeline = cb.PipelineExecutor[str](first, second, in_flight=3)
    results = asyncio.ensure_future(pipeline.collect(Source(3)))
    await first.until(3)
    first.open(2, 2)
    first.open(1, 1)
    await settle()
    assert second.entered == []  # 0 has to come first
    first.open(0, 0)
    await second.until(3)
    assert second.entered == [0, 1, 2]
    for n in (2, 0, 1):
        second.open(n, str(n))
    assert await results == ["0", "1", "2"]


async def test_results_as_they_are_ready() -> None:
    gate = Gate()
    async with contextlib.aclosing(
        cb.PipelineExecutor[int](gate, ordered=False, in_flight=3).run(Source(3))
    ) as results:
        reading = asyncio.ensure_future(anext(results))
        await gate.until(3)
        gate.open(2, 2)
        assert await reading == 2
        gate.open(0, 0)
        assert await anext(results) == 0
        gate.open(1, 1)
        assert [n async for n in results] == [1]


async def test_a_stage_holds_as_many_items_as_it_may() -> None:
    gate = Gate()
    stage = cb.PipelineStage(gate, parallelism=2)
    done = asyncio.ensure_future(cb.PipelineExecutor[int](stage, in_flight=5).collect(Source(5)))
    await gate.until(2)
    await settle()
    assert gate.entered == [0, 1]
    for n in range(5):
        await gate.until(min(5, n + 1))
        gate.open(n, n)
    assert await done == [0, 1, 2, 3, 4]


def failing(n: int) -> int:
    if n % 3 == 1:
        raise ValueError(f"bad {n}")
    return n


async def gather_into(found: list[Any], results: AsyncIterable[Any]) -> None:
    async for each in results:
        found.append(each)  # noqa: PERF401 - what came before an error stays


async def test_fail_raises_behind_the_results_before() -> None:
    source = Source(10)
    got: list[int] = []
    with pytest.raises(ValueError, match="bad 1") as caught:
        await gather_into(got, cb.PipelineExecutor[int](failing).run(source))
    assert got == [0]
    assert caught.value.__notes__ == ["item 1 of pipeline, stage failing, attempt 1"]
    assert source.closed


async def test_skip_leaves_out_counts_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    pipeline = cb.PipelineExecutor[int](failing, on_error="skip")
    assert await pipeline.collect(range(6)) == [0, 2, 3, 5]
    stats = pipeline.stats
    assert (stats.taken, stats.completed, stats.failed, stats.skipped) == (6, 4, 2, 2)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2


async def test_errors_stand_among_the_results() -> None:
    found = await cb.PipelineExecutor[Any](str, int, failing, on_error="item").collect(range(3))
    assert found[0::2] == [0, 2]
    assert (found[1].index, found[1].item, found[1].stage, found[1].attempts) == (1, 1, "failing", 1)


async def test_a_function_decides_by_the_error() -> None:
    def stage(n: int) -> int:
        raise [KeyError, ValueError, OSError][n](str(n))

    def policy(failed: cb.ItemError) -> Any:
        return "skip" if isinstance(failed.error, KeyError) else "item" if isinstance(failed.error, ValueError) else 3

    got: list[Any] = []
    with pytest.raises(ValueError, match="returned 3"):
        await gather_into(got, cb.PipelineExecutor[Any](stage, on_error=policy).run(range(3)))
    assert [type(each.error) for each in got] == [ValueError]


async def test_an_error_of_the_source_comes_behind_its_items() -> None:
    got: list[int] = []
    with pytest.raises(OSError, match="gone"):
        await gather_into(got, cb.PipelineExecutor[int](lambda n: n).run(Source(5, OSError("gone"))))
    assert got == [0, 1, 2, 3, 4]


async def test_cancelling_the_reader_ends_items_and_source() -> None:
    gate, source = Gate(), Source(10)
    reader = asyncio.ensure_future(cb.PipelineExecutor[int](gate, in_flight=2).collect(source))
    await gate.until(2)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert gate.cancelled == [0, 1]
    assert source.closed


async def test_something_cancelled_inside_a_stage_is_an_error_of_that_item() -> None:
    async def stage(n: int) -> int:
        if n == 1:
            raise asyncio.CancelledError
        return n

    found = await cb.PipelineExecutor[Any](stage, on_error="item").collect(range(3))
    assert [getattr(each, "stage", each) for each in found] == [0, "stage", 2]


async def test_drain_finishes_what_is_in_flight_and_takes_no_more() -> None:
    gate, source = Gate(), Source(10)
    pipeline = cb.PipelineExecutor[int](gate, in_flight=2)
    done = asyncio.ensure_future(pipeline.collect(source))
    await gate.until(2)
    draining = asyncio.ensure_future(pipeline.drain())
    await settle()
    assert not draining.done()
    gate.open(0, 0)
    gate.open(1, 1)
    await draining
    assert await done == [0, 1]
    assert (source.taken, source.closed) == (2, True)


async def test_drain_in_a_stage_is_refused() -> None:
    async def stage(n: int) -> int:
        await pipeline.drain()
        return n

    pipeline = cb.PipelineExecutor[Any](stage, on_error="item")
    (found,) = await pipeline.collect([1])
    assert isinstance(found.error, RuntimeError)
    assert "would wait for itself" in str(found.error)


async def test_a_blocking_stage_runs_on_threads() -> None:
    both = threading.Barrier(2, timeout=LIMIT)

    def stage(n: int) -> tuple[int, bool]:
        both.wait()
        return n, threading.current_thread() is threading.main_thread()

    threaded = cb.PipelineStage(stage, thread=True, parallelism=2)
    assert await cb.PipelineExecutor[Any](threaded).collect(range(4)) == [(n, False) for n in range(4)]


# -- streams -----------------------------------------------------------------------------------------------------------


async def test_streams_over_a_queue() -> None:
    queue: asyncio.Queue[Any] = asyncio.Queue()
    for n in [1, 2, 3, 4, 5, cb.END]:
        queue.put_nowait(n)

    async def times_ten(n: int) -> int:
        await asyncio.sleep(0)
        return 10 * n

    source = cb.source_from_unbounded(queue)
    assert await cb.run_collect(cb.gpu_stage(source, 2, times_ten), 3, str) == ["10", "20", "30", "40", "50"]


async def test_leaving_early_closes_the_whole_chain() -> None:
    source = Source(100)
    async with contextlib.aclosing(cb.gpu_stage(cb.gpu_stage(source, 2, str), 2, int)) as results:
        assert await anext(results) == 0
    assert source.closed


async def test_a_sink_has_bounds_and_keeps_order() -> None:
    gate = Gate()
    async with cb.PipelineSink[int, int](cb.PipelineExecutor[int](gate, in_flight=1), capacity=2) as sink:
        sink.try_submit(0)
        sink.try_submit(1)
        with pytest.raises(cb.MailboxFull):
            sink.try_submit(2)
        waiting = [asyncio.ensure_future(sink.submit(n)) for n in (2, 3)]
        reading = asyncio.ensure_future(anext(aiter(sink)))
        await gate.until(1)  # 0 has left the queue, so 2 is in
        await waiting[0]
        assert not waiting[1].done()
        gate.open(0, 0)
        assert await reading == 0
        reading = asyncio.ensure_future(anext(aiter(sink)))
        await gate.until(2)
        await waiting[1]
        late = asyncio.ensure_future(sink.submit(4))
        await settle()
        sink.close()
        gate.open(1, 1)
        assert await reading == 1
        rest = asyncio.ensure_future(_all(aiter(sink)))
        for n in (2, 3):
            await gate.until(n + 1)
            gate.open(n, n)
        assert await rest == [2, 3]
        with pytest.raises(cb.ServerStopped):
            await late
        with pytest.raises(cb.ServerStopped):
            sink.try_submit(5)


async def _all(results: AsyncIterator[Any]) -> list[Any]:
    return [each async for each in results]


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: cb.PipelineExecutor(), "at least one stage"),
        (lambda: cb.PipelineExecutor(str, in_flight=0), "in_flight is 0"),
        (lambda: cb.PipelineExecutor(str, attempts=0), "attempts 0"),
        (lambda: cb.PipelineExecutor(str, on_error="ignore"), "on_error is 'ignore'"),  # type: ignore[arg-type]
        (lambda: cb.PipelineExecutor(3), "a stage has to be a function"),  # type: ignore[arg-type]
        (lambda: cb.PipelineStage(str, parallelism=0), "parallelism is 0"),
        (lambda: cb.PipelineStage(settle, thread=True), "leave thread=True out"),  # type: ignore[arg-type]
        (lambda: cb.PipelineSink(cb.PipelineExecutor(str), 0), "capacity is 0"),
    ],
)
async def test_bad_arguments(make: Callable[[], Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        make()


class Lost(cb.ContextLost):
    """A loss without a device."""


PLANS = st.lists(st.lists(st.sampled_from(["ok", "slow", "lost", "error"]), min_size=1, max_size=3), max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    plans=PLANS,
    in_flight=st.integers(1, 5),
    width=st.integers(1, 3),
    attempts=st.integers(1, 3),
    ordered=st.booleans(),
)
def test_each_item_ends_once(plans: list[list[str]], in_flight: int, width: int, attempts: int, ordered: bool) -> None:
    """Whatever the stages do: each item has one result, in order, and no more are in flight than may be."""
    tries: dict[int, int] = {}
    inside = most = 0

    async def stage(n: int) -> int:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        try:
            what = plans[n][min(tries.get(n, 0), len(plans[n]) - 1)]
            tries[n] = tries.get(n, 0) + 1
            for _ in range(n % 4 if what == "slow" else 0):
                await asyncio.sleep(0)
            if what == "lost":
                raise Lost("gone")
            if what == "error":
                raise ValueError("bad")
            return n
        finally:
            inside -= 1

    def ends(plan: list[str]) -> tuple[type | None, int]:
        for attempt in range(1, attempts + 1):
            what = plan[min(attempt - 1, len(plan) - 1)]
            if what != "lost":
                return (ValueError if what == "error" else None), attempt
        return Lost, attempts

    async def run() -> None:
        pipeline = cb.PipelineExecutor[Any](
            cb.PipelineStage(stage, parallelism=width),
            lambda n: n,
            in_flight=in_flight,
            attempts=attempts,
            ordered=ordered,
            on_error="item",
        )
        async with asyncio.timeout(LIMIT):
            found = await pipeline.collect(range(len(plans)))
        indices = [each.index if isinstance(each, cb.ItemError) else each for each in found]
        assert sorted(indices) == list(range(len(plans)))
        assert not ordered or indices == sorted(indices)
        for index, each in zip(indices, found, strict=True):
            error, tried = ends(plans[index])
            assert tries[index] == tried
            assert (type(each.error) if isinstance(each, cb.ItemError) else None) is error
        assert most <= min(in_flight, width)
        stats = pipeline.stats
        assert (stats.taken, stats.in_flight) == (len(plans), 0)
        assert stats.completed + stats.failed == len(plans)
        assert stats.retried == sum(tries.values()) - len(plans)

    asyncio.run(run())


async def test_a_sink_is_closed_when_its_pipeline_ends_by_an_error() -> None:
    def fails(n: int) -> int:
        raise ArithmeticError(n)

    made: cb.PipelineSink[int, int] = cb.PipelineSink(cb.PipelineExecutor(fails, in_flight=1), capacity=1)
    async with asyncio.timeout(LIMIT), made as sink:
        producers = [asyncio.create_task(sink.submit(n)) for n in range(8)]
        with pytest.raises(ArithmeticError):
            async for _ in sink:
                pass
        ended = await asyncio.gather(*producers, return_exceptions=True)
        assert any(isinstance(each, cb.ServerStopped) for each in ended)
        with pytest.raises(cb.ServerStopped):
            sink.try_submit(9)


async def test_leaving_early_closes_a_generator_that_the_caller_has() -> None:
    closed: list[bool] = []

    def numbers() -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            closed.append(True)

    source = numbers()
    pipeline: cb.PipelineExecutor[int] = cb.PipelineExecutor(lambda n: n)
    async with contextlib.aclosing(pipeline.run(source)) as results:
        assert await anext(results) == 0
    assert closed == [True]
