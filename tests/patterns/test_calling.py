"""Functions of all kinds, on the loop and on threads; callers of all kinds, on loops and on threads."""

import asyncio
import concurrent.futures
import contextlib
import functools
import gc
import signal
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from batching_lab import turns

import callboard as cb
from callboard.patterns.batching.server import DynamicBatchingServer
from callboard.patterns.contract import callers
from callboard.patterns.requests.calling import UserCall, deliverable
from callboard.patterns.requests.errors import DeadlineExceeded, ServerStopped

LIMIT = 30.0


def where(items: list[Any]) -> list[str]:
    return [threading.current_thread().name] * len(items)


async def where_async(items: list[Any]) -> list[str]:
    return where(items)


class Caller:
    async def __call__(self, items: list[Any]) -> list[str]:
        return where(items)


def future_of(items: list[Any]) -> Any:
    """Returns something to await, as device ops do."""
    return where_async(items)


@pytest.mark.parametrize(
    "function, executor, on_loop",
    [
        (where, "auto", False),
        (where, "loop", True),
        (where, "thread", False),
        (where_async, "auto", True),
        (Caller(), "auto", True),
        (functools.partial(where_async), "auto", True),
        (functools.partial(where), "auto", False),
        (future_of, "auto", True),  # made on a thread, run on the loop
    ],
)
async def test_where_a_function_runs(function: Any, executor: Any, on_loop: bool) -> None:
    async with DynamicBatchingServer(function, executor=executor) as server:
        name = await server.submit("a")
    assert (name == threading.current_thread().name) is on_loop
    assert on_loop or name.startswith("callboard-server")


@pytest.mark.parametrize("executor", ["thread", "loop"])
async def test_the_items_of_a_call_that_fails_are_dropped_without_a_search_for_cycles(executor: Any) -> None:
    class Item:
        pass

    def fail(items: list[Any]) -> list[Any]:
        raise ValueError("no")

    call = UserCall(fail, executor, 1)
    item = Item()
    seen = weakref.ref(item)
    gc.disable()
    try:
        with pytest.raises(ValueError, match="no"):
            await call([item])
        del item
        with pytest.raises(ValueError, match="no"):  # a thread lets go of a call behind its answer, and before the next
            await call([])
        assert seen() is None
    finally:
        gc.enable()
        call.close()


async def test_a_generator_function_is_called_on_the_loop() -> None:
    called: list[str] = []

    async def parts(item: int) -> Any:
        called.append(threading.current_thread().name)
        for n in range(item):
            yield n

    call = UserCall(parts, "auto", 1)
    assert not call.on_thread
    assert [part async for part in await call(3)] == [0, 1, 2]
    assert called == [threading.current_thread().name]


async def test_an_executor_of_the_callers_is_used_and_left_open() -> None:
    with concurrent.futures.ThreadPoolExecutor(1, "mine") as pool:
        async with DynamicBatchingServer(where, executor=pool) as server:
            assert (await server.submit("a")).startswith("mine")
        assert pool.submit(where, ["b"]).result(LIMIT)[0].startswith("mine")


@pytest.mark.parametrize("function, executor", [("not a function", "auto"), (where, "somewhere")])
def test_what_cannot_be_called_is_refused(function: Any, executor: Any) -> None:
    with pytest.raises(TypeError):
        UserCall(function, executor, 1)


async def test_requests_gather_while_a_thread_computes() -> None:
    """The loop is free meanwhile; a batch that blocks in the loop would have left it no time to collect any."""
    gate = threading.Event()
    batches: list[list[int]] = []

    def slow(items: list[int]) -> list[int]:
        batches.append(items)
        assert gate.wait(LIMIT)
        return items

    async with DynamicBatchingServer(slow, max_batch=8) as server:
        futures = [server.submit_nowait(0)]
        await turns()
        futures += [server.submit_nowait(n) for n in range(1, 8)]
        gate.set()
        assert [await future for future in futures] == list(range(8))
    assert [len(batch) for batch in batches] == [1, 7]


async def test_an_exit_on_a_thread_is_an_error_of_the_request() -> None:
    def leaves(items: list[int]) -> list[int]:
        if items == [0]:
            raise SystemExit(1)
        return items

    async with DynamicBatchingServer(leaves, max_batch=1) as server:
        with pytest.raises(RuntimeError, match="SystemExit"):
            await server.submit(0)
        assert await server.submit(1) == 1


async def test_stop_waits_for_a_thread_but_its_callers_do_not() -> None:
    begun, gate = threading.Event(), threading.Event()

    def slow(items: list[int]) -> list[int]:
        begun.set()
        assert gate.wait(LIMIT)
        return items

    server = await DynamicBatchingServer(slow).start()
    future = server.submit_nowait(1)
    assert await asyncio.to_thread(begun.wait, LIMIT)
    stopping = asyncio.create_task(server.stop())
    with pytest.raises(ServerStopped):
        await future
    assert not stopping.done()
    gate.set()
    await stopping


def test_what_a_future_cannot_hold_is_wrapped() -> None:
    own = ValueError("own")
    assert deliverable(own) is own
    for bad in (StopIteration(1), KeyboardInterrupt()):
        assert isinstance(deliverable(bad), RuntimeError)
        assert deliverable(bad).__cause__ is bad


# -- callers on threads ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def on_a_thread(function: Any, **options: Any) -> Iterator[DynamicBatchingServer[Any, Any]]:
    """A server whose loop runs on another thread."""
    server: DynamicBatchingServer[Any, Any] = DynamicBatchingServer(function, **options)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(LIMIT)
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(LIMIT)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LIMIT)
        loop.close()


async def double(items: list[int]) -> list[int]:
    if any(item < 0 for item in items):
        raise ValueError("negative")
    return [2 * item for item in items]


async def never(items: list[int]) -> list[int]:
    await asyncio.get_running_loop().create_future()
    return items


def test_threads_ask() -> None:
    with on_a_thread(double, max_batch=8, idempotent=True, on_error="bisect") as server:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert list(pool.map(server.ask, range(64), timeout=LIMIT)) == [2 * n for n in range(64)]
        with pytest.raises(ValueError, match="negative"):
            server.ask(-1, LIMIT)
        futures = [server.submit_threadsafe(n) for n in range(8)]
        assert [future.result(LIMIT) for future in futures] == [2 * n for n in range(8)]


def test_a_thread_that_gives_up_cancels_its_request() -> None:
    with on_a_thread(never, max_batch=1) as server:
        with pytest.raises(cb.AskTimeout, match="cancelled"):
            server.ask(1, timeout=0.001)
        with pytest.raises(DeadlineExceeded):
            server.submit_threadsafe(2, timeout=0.001).result(LIMIT)
        future = server.submit_threadsafe(3)
        assert future.cancel()

        async def open_requests() -> int:
            await turns()
            return server.stats().submitted - server.stats().cancelled - server.stats().expired

        assert server._loop is not None
        assert asyncio.run_coroutine_threadsafe(open_requests(), server._loop).result(LIMIT) == 0


def test_a_value_that_comes_as_a_thread_gives_up_is_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(future: Any, timeout: float | None) -> Any:
        """Comes to its end just before the value does, and is seen just after."""
        concurrent.futures.wait([future], LIMIT)
        raise TimeoutError

    monkeypatch.setattr(callers, "wait", late)
    with on_a_thread(double, max_batch=1) as server:
        assert server.ask(1, timeout=0.001) == 2
        with pytest.raises(ValueError, match="negative"):
            server.ask(-1, timeout=0.001)


def test_threads_flush_and_change_settings() -> None:
    with on_a_thread(double, batches=cb.BatchOptions(dispatch="window"), max_wait=1e6) as server:
        for change in (server.flush_now, lambda: server.set(max_wait=0.0)):
            future = server.submit_threadsafe(1)
            assert server._loop is not None
            asyncio.run_coroutine_threadsafe(turns(), server._loop).result(LIMIT)
            assert not future.done()
            change()
            assert future.result(LIMIT) == 2


def test_stop_ends_the_requests_of_threads() -> None:
    with on_a_thread(never) as server:
        future = server.submit_threadsafe(1)
    with pytest.raises(ServerStopped):
        future.result(LIMIT)
    with pytest.raises(ServerStopped):
        server.ask(2)


def test_tasks_of_another_loop_submit_as_well() -> None:
    async def elsewhere(server: DynamicBatchingServer[int, int]) -> list[int]:
        with pytest.raises(RuntimeError, match="submit_threadsafe"):
            server.submit_nowait(1)
        return await asyncio.gather(*(server.submit(n) for n in range(10)))

    with on_a_thread(double) as server:
        assert asyncio.run(elsewhere(server)) == [2 * n for n in range(10)]


async def test_ask_on_the_servers_own_loop_says_what_to_do() -> None:
    async with DynamicBatchingServer(double) as server:
        with pytest.raises(RuntimeError, match="await submit"):
            server.ask(1)


async def test_what_ends_a_loop_belongs_to_the_caller() -> None:
    class Odd(BaseException):
        pass

    for error in (SystemExit(3), Odd()):

        async def ends(item: int, error: BaseException = error) -> None:
            raise error

        with pytest.raises(RuntimeError, match=type(error).__name__) as found:
            await UserCall(ends, "auto", 1)(1)
        assert found.value.__cause__ is error


@pytest.fixture
def handled() -> Iterator[None]:
    """SIGINT is taken by a handler, as a server does."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit])
@pytest.mark.usefixtures("handled")
async def test_what_a_model_raises_ends_its_request_only(error: type[BaseException]) -> None:
    async def ends(items: list[int]) -> list[int]:
        await asyncio.sleep(0)
        if items == [0]:
            raise error
        return items

    async def parts(items: list[int]) -> list[Any]:
        return [part(item) for item in items]

    async def part(item: int) -> Any:
        yield item
        if item == 0:
            raise error

    async with asyncio.timeout(LIMIT), DynamicBatchingServer(ends, max_batch=1) as server:
        with pytest.raises(RuntimeError, match=error.__name__):
            await server.submit(0)
        assert await server.submit(1) == 1
    async with asyncio.timeout(LIMIT), DynamicBatchingServer(parts, max_batch=1) as server:
        with pytest.raises(RuntimeError, match=error.__name__):
            await server.submit(0)
        assert await server.submit(1) == [1]


async def test_a_coroutine_that_is_closed_ends() -> None:
    async def waits(item: int) -> None:
        await asyncio.Event().wait()

    call = UserCall(waits, "auto", 1)(1)
    call.send(None)
    closed = asyncio.Event()

    def close() -> None:  # as by the garbage collection
        call.close()  # does not raise "coroutine ignored GeneratorExit"
        closed.set()

    asyncio.get_running_loop().call_soon(close)
    await closed.wait()


async def test_ctrl_c_is_not_held_back() -> None:
    async def pressed(item: int) -> None:
        raise KeyboardInterrupt

    call = UserCall(pressed, "auto", 1)(1)
    with pytest.raises(KeyboardInterrupt):
        call.send(None)
