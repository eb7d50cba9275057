"""Common behaviour of all hosts: one suite over processes and threads."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from callboard.device.protocol.arena import ArenaPool
from callboard.device.protocol.messages import Answer, Ask, Closed, Completions, Hello, UnmapArena

Start = Callable[..., Awaitable[Any]]
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(params=["process", "thread"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def talk(start: Start, kind: str) -> Any:
    return await start(kind)


async def test_requests_and_calls_are_answered_in_order(talk: Any) -> None:
    assert await talk.ask("echo", b"hello") == b"hello"
    for op in range(1000):
        talk.call(op)
    await talk.ask("echo")
    assert talk.done == list(range(1000))
    assert not talk.ends


async def test_messages_of_each_thread_arrive_in_order(talk: Any) -> None:
    def post(thread: int) -> None:
        for n in range(2000):
            talk.host.post(Ask(thread * 10_000 + n, "echo", b""))

    threads = [threading.Thread(target=post, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    post(4)

    def answered() -> list[int]:
        return [message.id for message in talk.messages if isinstance(message, Answer)]

    await talk.until(lambda: len(talk.messages) >= 10_000 and len(answered()) == 10_000)
    for thread in threads:
        thread.join()
    for thread in range(5):
        assert [ask for ask in answered() if ask // 10_000 == thread] == [thread * 10_000 + n for n in range(2000)]


@pytest.mark.slow
async def test_a_large_burst_both_ways(talk: Any) -> None:
    count = 100_000
    for op in range(0, count, 2):
        talk.call(op, op + 1)
    await talk.until(lambda: len(talk.messages) >= count // 2 and len(talk.done) == count)
    assert talk.done == list(range(count))
    assert talk.host.unsent_bytes == 0


async def test_messages_of_many_host_threads(talk: Any) -> None:
    await talk.ask("flood", b"2000")
    completions = [message.done for message in talk.messages if type(message) is Completions]
    for thread in range(1, 5):
        assert [n for who, n in completions if who == thread] == list(range(2000))


async def test_a_long_message(talk: Any) -> None:
    argument = bytes(range(256)) * 20_000
    assert await talk.ask("echo", argument) == argument


async def test_wake_ends_a_wait(talk: Any) -> None:
    for _ in range(20):
        assert await talk.ask("wake") == b"0"


async def test_a_wait_ends_in_time(talk: Any) -> None:
    assert await talk.ask("wait", b"0.05") == b"0 1"


async def test_close(talk: Any) -> None:
    talk.call(1)
    await talk.host.close(20.0)
    assert talk.host.reaped.done()
    assert [end.reason for end in talk.ends] == ["closed"]
    assert talk.done == [1]
    assert type(talk.messages[-1]) is Closed
    talk.call(2)  # of no effect, and no error
    await talk.host.close(20.0)
    assert len(talk.ends) == 1


async def test_leaving_with_a_code(talk: Any) -> None:
    talk.ask_later("leave", b"70")
    end = await talk.ended()
    assert (end.reason, end.detail.splitlines()[0]) == ("exited", "exit code 70")
    assert talk.messages[-1].value == b"last words"


async def test_an_exception_that_ends_serving(talk: Any) -> None:
    talk.ask_later("raise", b"so it goes")
    end = await talk.ended()
    assert end.reason == "exited"
    assert "ZeroDivisionError: so it goes" in end.detail
    assert "do_raise" in end.detail


async def test_kill(talk: Any) -> None:
    await talk.ask("echo")
    talk.host.kill("a reason")
    talk.host.kill("another")
    end = await talk.ended()
    assert end.reason == "killed"
    assert end.detail.startswith("a reason")
    talk.host.kill("too late")
    talk.call(1)


async def test_a_message_that_cannot_be_acted_on_ends_the_host(talk: Any) -> None:
    def fail(message: Any) -> None:
        if type(message) is Completions and message.done[0] == 50:
            raise ZeroDivisionError("op 50")

    talk.on_message = fail
    for op in range(100):
        talk.call(op)
    end = await talk.ended()
    assert end.reason == "broken"
    assert "ZeroDivisionError: op 50" in end.detail


async def test_a_flood_leaves_the_loop_its_turns(talk: Any) -> None:
    """A receiver that takes 50 µs a message: some thirty messages, then other callbacks."""
    loop = asyncio.get_running_loop()
    between = [0]

    def slow(message: Any) -> None:
        between[-1] += 1
        until = loop.time() + 50e-6
        while loop.time() < until:
            pass

    def tick() -> None:
        between.append(0)
        loop.call_soon(tick)

    talk.on_message = slow
    talk.call(*range(10))
    for op in range(10, 4000):
        talk.call(op)
    tick()
    await talk.until(lambda: len(talk.done) == 4000)
    assert max(between) <= 40


async def test_arenas(talk: Any, kind: str) -> None:
    pool = ArenaPool(1 << 20, talk.host.send_arena, shared=kind == "process")
    slot = pool.take(1000)
    slot.array[:] = 41
    for _ in range(2):
        await talk.ask("arena_add", b"%d" % slot.arena_id)
    assert (slot.array == 43).all()
    talk.host.post(UnmapArena(slot.arena_id))
    await talk.ask("echo")


async def test_a_process_greets(talk: Any, kind: str) -> None:
    await talk.ask("echo")
    assert [type(message) for message in talk.messages if type(message) is Hello] == [Hello] * (kind == "process")
    assert talk.host.pid == (talk.messages[0].pid if kind == "process" else os.getpid())
