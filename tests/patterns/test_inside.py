"""A function that submits to its own server is refused: the run would wait for one that begins when it has ended."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import callboard as cb

BOUND = 20.0
SAYS = "lab: its own function submitted to it, and would wait .* submit where the function's results are awaited"

Way = Callable[[Any, Any], Any]


async def gathered(server: Any, item: Any) -> Any:
    return (await asyncio.gather(server.submit(item), server.submit(item)))[0]


async def streamed(server: Any, item: Any) -> Any:
    async with contextlib.aclosing(server.stream(item)) as parts:
        return [part async for part in parts]


ON_LOOP: dict[str, Way] = {
    "submit": lambda server, item: server.submit(item),
    "submit_nowait": lambda server, item: server.submit_nowait(item),
    "submit_threadsafe": lambda server, item: asyncio.wrap_future(server.submit_threadsafe(item)),
    "stream": streamed,
    "tasks": gathered,
    "thread": lambda server, item: asyncio.to_thread(server.ask, item),
}
ON_THREAD: dict[str, Way] = {
    "ask": lambda server, item: server.ask(item),
    "submit_threadsafe": lambda server, item: server.submit_threadsafe(item).result(),
    "iterate": lambda server, item: list(server.iterate(item)),
}


async def refused(server: Any, **options: Any) -> None:
    """A request of which the function makes another one."""
    async with asyncio.timeout(BOUND):
        with pytest.raises(RuntimeError, match=SAYS):
            await server.submit("outer", **options)
        assert await server.submit("plain", **options) in ("plain", ["plain"])  # the server goes on
        assert await server.drain() is True
    stats = server.stats()
    assert (stats.failed, stats.completed) == (1, 1)
    assert stats.rejected >= 1


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("way", ON_LOOP)
async def test_on_the_loop(way: str, batches: int) -> None:
    async def function(items: list[Any]) -> list[Any]:
        return [await ON_LOOP[way](server, "inner") if item == "outer" else item for item in items]

    async with cb.DynamicBatchingServer(function, max_concurrent_batches=batches, name="lab") as server:
        await refused(server)


@pytest.mark.parametrize("own_pool", [False, True])
@pytest.mark.parametrize("way", ON_THREAD)
async def test_on_a_thread(way: str, own_pool: bool) -> None:
    def function(items: list[Any]) -> list[Any]:
        return [ON_THREAD[way](server, "inner") if item == "outer" else item for item in items]

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        async with cb.DynamicBatchingServer(function, executor=pool if own_pool else "thread", name="lab") as server:
            await refused(server)


async def test_an_answer_in_parts() -> None:
    async def parts(item: Any) -> Any:
        yield await server.submit("inner") if item == "outer" else item

    async def function(items: list[Any]) -> list[Any]:
        return [parts(item) for item in items]

    async with cb.DynamicBatchingServer(function, name="lab") as server:
        await refused(server)


async def test_a_step_of_sequences() -> None:
    async def step(slots: list[Any]) -> list[Any]:
        return [cb.Last(await server.submit("inner") if slot.item == "outer" else slot.item) for slot in slots]

    async with cb.ContinuousBatchingServer(step, name="lab") as server:
        await refused(server)


async def test_a_batch_of_sequences() -> None:
    async def function(items: list[Any], slots: list[Any]) -> list[Any]:
        return [await server.submit("inner", sequence="b", start=True) if item == "outer" else item for item in items]

    async with cb.SequenceBatchingServer(function, name="lab") as server:
        await refused(server, sequence="a", start=True, end=True)


async def test_another_server_may_be_asked() -> None:
    async def twice(items: list[Any]) -> list[Any]:
        return [2 * item for item in items]

    async def function(items: list[Any]) -> list[Any]:
        return await asyncio.gather(*(inner.submit(item) for item in items))

    async with cb.DynamicBatchingServer(twice) as inner, cb.DynamicBatchingServer(function) as outer:
        async with asyncio.timeout(BOUND):
            assert await outer.submit(21) == 42


async def test_a_task_that_outlives_the_batch_is_inside_no_more() -> None:
    over = asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    async def later() -> Any:
        await over.wait()
        return await server.submit("later")

    async def function(items: list[Any]) -> list[Any]:
        if items == ["first"]:
            tasks.append(asyncio.create_task(later()))
        return items

    async with cb.DynamicBatchingServer(function) as server, asyncio.timeout(BOUND):
        assert await server.submit("first") == "first"
        await server.submit("second")  # by the same worker, or another: the first batch is over
        over.set()
        assert await tasks[0] == "later"


async def test_a_thread_of_the_pool_is_inside_no_more() -> None:
    """The next thing that the user's own pool does there may be anything."""

    def function(items: list[Any]) -> list[Any]:
        return items

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        async with cb.DynamicBatchingServer(function, executor=pool) as server, asyncio.timeout(BOUND):
            assert await server.submit(1) == 1
            inner = await asyncio.wrap_future(pool.submit(server.submit_threadsafe, 2))
            assert await asyncio.wrap_future(inner) == 2
