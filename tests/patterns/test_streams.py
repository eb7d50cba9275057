"""Answers that come part by part: bounded, in order, ended once; the iterator is closed when its reader leaves."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from batching_lab import lab, turns

import callboard as cb
from callboard.actors import ManualClock
from callboard.patterns.contract.outlet import STREAMED, Outlet

LIMIT = 30.0


class Source:
    """An answer of numbers, which notes how far it has come and whether it was closed."""

    def __init__(self, count: int, error: Exception | None = None, gate: asyncio.Event | None = None) -> None:
        self.count, self.error, self.gate = count, error, gate
        self.made = 0
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[int]:
        try:
            for n in range(self.count):
                if self.gate is not None and n == 1:
                    await self.gate.wait()
                self.made += 1
                yield n
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True


async def itself(items: list[Any]) -> list[Any]:
    """A batch function whose items are their own answers."""
    return [aiter(item) if isinstance(item, Source) else item for item in items]


async def read(stream: Any) -> tuple[list[Any], BaseException | None]:
    found: list[Any] = []
    try:
        async for part in stream:
            found.append(part)  # noqa: PERF401 -- what came before an error counts
    except Exception as e:  # is what the test looks at
        return found, e
    return found, None


async def test_parts_of_several_items_and_a_whole_value() -> None:
    async with lab(itself, ManualClock(), max_batch=4) as server:
        sources = [Source(3), Source(5, ValueError("broken")), Source(0)]
        found = await asyncio.gather(*(read(server.stream(item)) for item in (*sources, "whole")))
        assert [parts for parts, _ in found] == [[0, 1, 2], [0, 1, 2, 3, 4], [], ["whole"]]
        assert [type(error) for _, error in found] == [type(None), ValueError, type(None), type(None)]
        assert all(source.closed for source in sources)
        assert await server.submit(Source(4)) == [0, 1, 2, 3]
        stats = server.stats()
    assert (stats.completed, stats.failed, stats.submitted, stats.batches) == (4, 1, 5, 2)


async def test_an_answer_is_never_further_ahead_of_its_reader_than_the_buffer() -> None:
    async with lab(itself, ManualClock()) as server:
        source = Source(100)
        stream = server.stream(source, buffer=3)
        for n in range(5):
            assert await anext(stream) == n
            await turns()
            assert source.made == n + 4
        await stream.aclose()
        await turns()
        assert source.closed
        assert source.made == 8
        assert server.stats().cancelled == 1


@pytest.mark.parametrize("how", ["aclose", "break", "cancel"])
async def test_a_reader_that_leaves_closes_the_iterator(how: str) -> None:
    async with lab(itself, ManualClock(), max_batch=2) as server:
        source = Source(9, gate=asyncio.Event())  # it hangs behind its first part
        came = asyncio.Event()

        async def reader() -> None:
            stream = server.stream(source)
            async for _ in stream:
                came.set()
                if how == "break":
                    break
                if how == "aclose":
                    await stream.aclose()

        task = asyncio.create_task(reader())
        await came.wait()
        await turns()
        if how == "cancel":
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await turns()
        assert source.closed
        assert server.stats().cancelled == 1
        assert await server.submit("next") == "next"  # the batch is over


async def test_a_deadline_and_a_stop_in_the_middle() -> None:
    clock = ManualClock()
    async with lab(itself, clock, max_concurrent_batches=2) as server:
        sources = [Source(3, gate=asyncio.Event()) for _ in range(2)]
        readers = [
            asyncio.create_task(read(server.stream(sources[0], timeout=1.0))),
            asyncio.create_task(read(server.stream(sources[1]))),
        ]
        await turns()
        clock.advance(1.0)
        parts, error = await readers[0]
        assert parts == [0]
        assert isinstance(error, cb.DeadlineExceeded)
        assert error.stage == "run"
        await server.stop()
        parts, error = await readers[1]
        assert parts == [0]
        assert isinstance(error, cb.ServerStopped)
        assert all(source.closed for source in sources)
    assert clock.pending == 0


async def test_a_reader_that_takes_nothing_loses_its_request() -> None:
    clock = ManualClock()
    async with lab(itself, clock) as server:
        source = Source(9)
        stream = server.stream(source, buffer=2, patience=5.0)
        assert await anext(stream) == 0
        await turns()
        clock.advance(5.0)
        await turns()
        parts, error = await read(stream)
        assert parts == [1, 2]
        assert isinstance(error, cb.SlowReader)
        assert "waited 5 s" in str(error)
        assert source.closed
        assert server.stats().failed == 1
    assert clock.pending == 0


@pytest.mark.parametrize("parts_before", [0, 1])
async def test_a_lost_context_repeats_an_answer_that_no_one_has_seen_of(parts_before: int) -> None:
    sources = [Source(parts_before, cb.ContextPoisoned("lost")), Source(3)]

    async def model(items: list[Any]) -> list[Any]:
        return [aiter(sources.pop(0)) for _ in items]

    async with lab(model, ManualClock(), idempotent=True) as server:
        parts, error = await read(server.stream("x"))
    assert (parts, type(error)) == (([0], cb.ContextPoisoned) if parts_before else ([0, 1, 2], type(None)))


async def test_through_a_pool_and_a_fair_share() -> None:
    async def model(item: int) -> AsyncIterator[int]:
        for n in range(item):
            yield n

    charged: list[Any] = []

    def charge(_: int, parts: list[int], __: float) -> float:
        charged.append(parts)
        return len(parts)

    async with (
        cb.ModelReplicaPool([model, model]) as pool,
        cb.FairShareScheduler[int, list[int]](pool.stream, charge=charge) as fair,
    ):
        assert (await read(fair.stream(4, tenant="a")))[0] == [0, 1, 2, 3]
        assert await fair.submit(2, tenant="b") == [0, 1]
        assert charged == [[0, 1, 2, 3], [0, 1]]
        assert pool.stats().completed == fair.stats().completed == 2


async def test_an_option_that_no_one_takes() -> None:
    async with lab(itself, ManualClock()) as server:
        with pytest.raises(TypeError, match="DynamicBatchingServer, which takes no option 'tenant'"):
            await server.submit(1, tenant="a")
        misspelt: Any = {"priorty": 1}
        with pytest.raises(TypeError, match="'priorty' is not a request option; use one of cost, deadline, priority"):
            await server.submit(1, **misspelt)
        assert server.stats().failed == 2


async def test_from_another_loop_and_from_a_thread() -> None:
    source, left = Source(50), Source(50)
    async with cb.DynamicBatchingServer[Any, Any](itself) as server:
        with pytest.raises(RuntimeError, match="dead-lock"):
            next(server.iterate(1))

        async def elsewhere() -> list[Any]:
            return [part async for part in server.stream(source, buffer=2)]

        def thread() -> tuple[list[Any], Any]:
            stream = server.iterate(left)
            first = next(stream)
            stream.close()
            return asyncio.run(elsewhere()), first

        async with asyncio.timeout(LIMIT):
            found, first = await asyncio.to_thread(thread)
        assert (found, first) == (list(range(50)), 0)
        await turns()
        assert left.closed
        assert server.stats().cancelled == 1
    assert threading.active_count() >= 1


def test_parts_in_a_program_without_asyncio() -> None:
    async def count(items: list[int]) -> list[Any]:
        return [aiter(Source(item)) for item in items]

    with cb.sync.serving(cb.DynamicBatchingServer[int, Any](count)) as server:
        assert list(server.iterate(3)) == [0, 1, 2]


async def test_an_outlet_by_hand() -> None:
    clock = ManualClock()
    for wrong in ({"size": 0, "patience": None}, {"size": 1, "patience": 0.0}):
        with pytest.raises(ValueError, match=r"must be (at least 1|positive)"):
            Outlet(clock=clock, **wrong)
    outlet = Outlet(2, 1.0, clock)
    outlet.put("a")
    assert not outlet.full
    outlet.put("b")
    assert outlet.full
    assert clock.pending == 1
    assert await outlet.get() == "a"
    assert clock.pending == 0
    outlet.put("c")
    outlet.close()
    outlet.put("d")
    assert [await outlet.get() for _ in range(3)] == ["b", "c", STREAMED]
    assert clock.pending == 0


async def test_an_exit_in_a_stream_ends_its_request_and_not_the_loop() -> None:
    async def one(item: int) -> AsyncIterator[int]:
        yield item
        if item == 0:
            raise SystemExit(3)

    async def parts(items: list[int]) -> list[AsyncIterator[int]]:
        return [one(item) for item in items]

    async with cb.DynamicBatchingServer[int, int](parts) as server:
        with pytest.raises(RuntimeError, match="SystemExit"):
            await server.submit(0)
        assert await server.submit(1) == [1]
