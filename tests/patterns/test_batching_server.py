"""The batching server in virtual time: how batches form, the hooks, and a full queue."""

import asyncio
import functools
from typing import Any

import pytest
from batching_lab import Model, lab, outcome, set_done, turns

from callboard.actors import ManualClock
from callboard.patterns.batching.server import DynamicBatchingServer
from callboard.patterns.batching.settings import BatchOptions
from callboard.patterns.requests.errors import DeadlineExceeded, ItemTooLarge, QueueFull
from callboard.patterns.requests.waiting import QueueOptions
from callboard.retry import request_key


async def test_alone_in_a_few_lines() -> None:
    async def double(items: list[int]) -> list[int]:
        return [2 * item for item in items]

    async with DynamicBatchingServer(double) as server:
        assert await server.submit(21) == 42
        assert await asyncio.gather(*(server.submit(n) for n in range(100))) == [2 * n for n in range(100)]
    assert server.stats().batches == 1 + 4


async def test_requests_join_until_the_executor_is_free(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=4) as server:
        first = server.submit_nowait("a")
        await turns()
        assert model.batches == [["a"]]  # at once: it was free
        later = [server.submit_nowait(item) for item in "bcdefg"]
        await turns()
        assert model.batches == [["a"]]
        await model.release()
        assert model.batches == [["a"], ["b", "c", "d", "e"]]
        await model.release_all()
        assert model.batches[2] == ["f", "g"]
        assert [await future for future in [first, *later]] == [f"<{item}>" for item in "abcdefg"]


async def test_thirty_requests_onto_a_slow_model_take_three_batches(clock: ManualClock) -> None:
    """Requests every 5 ms, batches of 100 ms: what a queue that forms batches ahead does in thirty."""

    async def slow(items: list[int]) -> list[int]:
        done = asyncio.get_running_loop().create_future()
        clock.call_later(0.100, set_done, done)
        await done
        return items

    async with lab(slow, clock, max_batch=32) as server:
        futures = []
        for n in range(30):
            futures.append(server.submit_nowait(n))
            await turns()
            clock.advance(0.005)
            await turns()
        while not all(future.done() for future in futures):
            clock.advance(0.005)
            await turns()
        assert clock.time() <= 0.35
        assert server.stats().batches == 3


async def test_clients_that_answer_at_once_share_a_batch(clock: ManualClock) -> None:
    """Sixteen clients in a closed loop, half of them always in flight: the settle step brings them together."""
    model = Model()

    async def client(server: DynamicBatchingServer[Any, Any], n: int) -> None:
        for step in range(4):
            await server.submit((n, step))

    async with lab(model, clock, max_batch=32) as server:
        clients = [asyncio.create_task(client(server, n)) for n in range(8)]
        await turns()
        clients += [asyncio.create_task(client(server, n)) for n in range(8, 16)]
        await turns()
        await model.release_all()
        await asyncio.gather(*clients)
    assert [len(batch) for batch in model.batches] == [8, 16, 16, 16, 8]


async def test_a_full_batch_does_not_wait_for_the_callers_of_the_last_one(clock: ManualClock) -> None:
    model = Model()
    order: list[str] = []
    async with lab(model, clock, max_batch=2) as server:

        async def client(item: str) -> None:
            await server.submit(item)
            order.append(f"{item} answered, {len(model.batches)} batches begun")

        clients = [asyncio.create_task(client(item)) for item in "abcd"]
        await turns()
        await model.release_all()
        await asyncio.gather(*clients)
    assert order[0] == "a answered, 2 batches begun"


async def test_one_timer_however_many_requests(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=4, batches=BatchOptions(dispatch="window"), max_wait=0.010) as server:
        for step in range(50):
            server.submit_nowait(step, timeout=10.0 + step)
            await turns()
            assert clock.pending <= 2  # that one, and the one for deadlines
            clock.advance(0.001)
            await turns()
            if model.waiting:
                await model.release()
    assert clock.pending == 0


async def test_a_window_is_counted_from_the_oldest_request(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=4, batches=BatchOptions(dispatch="window"), max_wait=0.010) as server:
        server.submit_nowait("a")
        clock.advance(0.008)
        server.submit_nowait("b")
        clock.advance(0.001)
        await turns()
        assert model.batches == []
        clock.advance(0.001)
        await turns()
        assert model.batches == [["a", "b"]]


async def test_flush_now(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, batches=BatchOptions(dispatch="window"), max_wait=10.0) as server:
        server.submit_nowait("a")
        server.flush_now()
        await turns()
        server.submit_nowait("b")
        await model.release()
        assert model.batches == [["a"]]


async def test_two_batches_at_once(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=2, max_concurrent_batches=2) as server:
        futures = [server.submit_nowait(item) for item in "abcdef"]
        await turns()
        assert model.batches == [["a", "b"], ["c", "d"]]
        await model.release()
        assert model.batches[2] == ["e", "f"]
        await model.release_all()
        assert [await future for future in futures] == [f"<{item}>" for item in "abcdef"]


async def test_settings_change_together_or_not_at_all(clock: ManualClock) -> None:
    model = Model()
    async with lab(
        model, clock, max_batch=4, max_queue=8, batches=BatchOptions(dispatch="window"), max_wait=10.0
    ) as server:
        futures = [server.submit_nowait(item) for item in "ab"]
        with pytest.raises(ValueError, match="max_queue"):
            server.set(max_batch=9, max_wait=0.0)
        await turns()
        assert model.batches == []
        server.set(max_batch=2)
        await turns()
        await model.release()
        assert [future.result() for future in futures] == ["<a>", "<b>"]


async def test_a_batch_carries_the_context_of_no_single_request(clock: ManualClock) -> None:
    from callboard.device.client.line.port import request_key as current

    keys = []

    async def look(items: list[int]) -> list[int]:
        keys.append(current.get())
        return items

    with request_key("server"):
        server = await DynamicBatchingServer(look, clock=clock).start()
    with request_key("request 1"):
        await server.submit(1)
    await server.stop()
    assert [key.partition("#")[0] for key in keys] == ["batching"]


# -- hooks -------------------------------------------------------------------------------------------------------------


async def test_buckets_and_padding(clock: ManualClock) -> None:
    model = Model(lambda items: [sum(item) for item in items])

    def pad(items: list[list[int]], size: int) -> list[list[int]]:
        longest = max(map(len, items))
        return [item + [0] * (longest - len(item)) for item in items] + [[0] * longest] * (size - len(items))

    def kind(item: list[int]) -> bool:
        return len(item) > 2

    async with lab(
        model, clock, max_batch=4, bucket=kind, batches=BatchOptions(pad=pad, preferred=(1, 2, 4))
    ) as server:
        futures = [server.submit_nowait(item) for item in ([1], [5, 5, 5], [1, 1], [2])]
        await turns()
        await model.release_all()
        assert [future.result() for future in futures] == [1, 15, 2, 2]
        assert model.batches == [[[1, 0], [1, 1], [2, 0], [0, 0]], [[5, 5, 5]]]
        assert server.stats().padding == 1
        assert server.stats().run_time_by_size == {4: (1, 0.0), 1: (1, 0.0)}


@pytest.mark.parametrize("hook", ["cost", "bucket"])
async def test_a_hook_that_raises_fails_its_own_item_only(clock: ManualClock, hook: str) -> None:
    def picky(item: str) -> int:
        if item == "bad":
            raise KeyError(item)
        return 1

    model = Model()
    async with lab(model, clock, **{hook: picky}) as server:
        good = server.submit_nowait("a")
        with pytest.raises(KeyError, match="bad"):
            await server.submit("bad")
        later = server.submit_nowait("b")
        await turns()
        await model.release_all()
        assert [await good, await later] == ["<a>", "<b>"]
        assert (server.stats().submitted, server.stats().failed, server.stats().completed) == (3, 1, 2)


async def test_a_cost_is_taken_once_and_bounds_the_batch(clock: ManualClock) -> None:
    asked = []

    def cost(item: int) -> int:
        asked.append(item)
        return item

    model = Model()
    async with lab(model, clock, cost=cost, max_batch_cost=10, queue=QueueOptions(max_cost=20)) as server:
        futures = [server.submit_nowait(item) for item in (4, 5, 3, 6)]
        with pytest.raises(ItemTooLarge, match="11"):
            server.submit_nowait(11)
        with pytest.raises(QueueFull, match="18 of 20 cost"):
            server.submit_nowait(3)
        futures.append(server.submit_nowait(100, cost=1))
        await turns()
        await model.release_all()
        assert all(future.done() for future in futures)
    assert model.batches == [[4, 5], [3, 6, 100]]
    assert asked == [4, 5, 3, 6, 11, 3]


@pytest.mark.parametrize(
    "wrong, error",
    [
        ({"priority": "high"}, TypeError),
        ({"priority": 0.5}, TypeError),
        ({"cost": float("nan")}, ValueError),
        ({"cost": -1}, ValueError),
        ({"deadline": float("nan")}, ValueError),
        ({"timeout": "soon"}, TypeError),
    ],
)
async def test_a_wrong_argument_harms_its_own_request_only(clock: ManualClock, wrong: Any, error: Any) -> None:
    model = Model()
    async with lab(model, clock) as server:
        with pytest.raises(error):
            await server.submit("bad", **wrong)
        good = server.submit_nowait("a")
        await turns()
        await model.release_all()
        assert await good == "<a>"


async def test_a_key_without_a_hash_is_refused_at_the_call(clock: ManualClock) -> None:
    async with lab(Model(), clock, bucket=lambda item: [item]) as server:
        with pytest.raises(TypeError, match=r"bucket returned .* hashed"):
            server.submit_nowait("a")


@pytest.mark.parametrize(
    "wrong, text",
    [
        ({"on_error": "bisect", "idempotent": False}, "idempotent"),
        ({"on_error": "retry"}, "on_error"),
        ({"max_batch": 0}, "max_batch"),
        ({"max_batch": 64, "max_queue": 32}, "max_queue"),
    ],
)
def test_settings_are_checked_when_it_is_made(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        DynamicBatchingServer(Model(), **wrong)


# -- a full queue ------------------------------------------------------------------------------------------------------


async def test_reject(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=2, max_queue=2) as server:
        accepted = [server.submit_nowait("a")]
        await turns()
        accepted += [server.submit_nowait(item) for item in "bc"]
        with pytest.raises(QueueFull, match="2 of 2 requests"):
            await server.submit("d")
        await model.release_all()
        assert [await future for future in accepted] == ["<a>", "<b>", "<c>"]
        assert server.stats().rejected == 1


async def test_drop_oldest(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=2, max_queue=2, queue=QueueOptions(overflow="drop_oldest")) as server:
        first = server.submit_nowait("a")
        await turns()
        queued = [server.submit_nowait(item) for item in "bcd"]
        await model.release_all()
        assert await first == "<a>"
        assert isinstance(await outcome(queued[0]), QueueFull)
        assert [await future for future in queued[1:]] == ["<c>", "<d>"]
        assert (server.stats().dropped, server.stats().rejected) == (1, 0)


async def test_block_waits_for_room_in_order(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=1, max_queue=1, queue=QueueOptions(overflow="block")) as server:
        tasks = []
        for item in "abcd":
            tasks.append(asyncio.create_task(server.submit(item)))
            await turns()
        assert (server.stats().blocked, server.stats().queued, server.stats().running) == (2, 1, 1)
        with pytest.raises(QueueFull):
            server.submit_nowait("e")
        tasks[2].cancel()
        await turns()
        assert server.stats().blocked == 1
        await model.release_all()
        assert [await outcome(task) for task in (tasks[0], tasks[1], tasks[3])] == ["<a>", "<b>", "<d>"]
        assert model.batches == [["a"], ["b"], ["d"]]


async def test_block_gives_up_in_time(clock: ManualClock) -> None:
    model = Model()
    async with lab(
        model, clock, max_batch=1, max_queue=1, queue=QueueOptions(overflow="block", block_timeout=1.0)
    ) as server:
        tasks = []
        for item in "abc":
            tasks.append(asyncio.create_task(server.submit(item)))
            await turns()
        tasks.append(asyncio.create_task(server.submit("d", timeout=0.5)))
        await turns()
        clock.advance(0.5)
        await turns()
        late = await outcome(tasks[3])
        assert isinstance(late, DeadlineExceeded)
        assert not tasks[2].done()
        clock.advance(0.5)
        assert isinstance(await outcome(tasks[2]), QueueFull)
        await model.release_all()
        assert [await outcome(task) for task in tasks[:2]] == ["<a>", "<b>"]  # the limit was of the wait for room


async def test_a_cancelled_request_makes_room_for_one_that_fills_the_batch(clock: ManualClock) -> None:
    model = Model()
    async with lab(
        model,
        clock,
        max_batch=2,
        max_queue=2,
        queue=QueueOptions(overflow="block"),
        batches=BatchOptions(dispatch="window"),
        max_wait=9.0,
        bucket=str.isupper,
    ) as server:
        queued = [server.submit_nowait(item) for item in "aB"]
        waits = asyncio.create_task(server.submit("b"))
        await turns()
        queued[1].cancel()
        await turns()
        assert model.batches == [["a", "b"]]
        await model.release_all()
        assert await waits == "<b>"


async def test_partial_functions_are_looked_through(clock: ManualClock) -> None:
    async def scale(factor: int, items: list[int]) -> list[int]:
        return [factor * item for item in items]

    async with lab(functools.partial(scale, 3), clock) as server:
        assert await server.submit(2) == 6
