"""Ten requests within a minute that lose their context, among healthy ones: none of these fails, the device goes on.

All servers have their default settings.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from batching_lab import outcome, turns
from poison_lab import Card
from speculative_lab import TableModel

import callboard as cb
from callboard.serve.calls import CallServer

POISONS = 10
EVERY = 6.0
"""Seconds between two of them."""

BOUND = 20.0


Ask = Callable[[int], Awaitable[int]]


@asynccontextmanager
async def batching(card: Card) -> AsyncIterator[Ask]:
    async with cb.DynamicBatchingServer[int, int](card.double, max_batch=8) as server:
        yield server.submit


@asynccontextmanager
async def two_batches_at_once(card: Card) -> AsyncIterator[Ask]:
    async with cb.DynamicBatchingServer[int, int](card.double, max_batch=3, max_concurrent_batches=2) as server:
        yield server.submit


@asynccontextmanager
async def in_order(card: Card) -> AsyncIterator[Ask]:
    options: dict[str, Any] = {
        "max_batch": 3,
        "max_concurrent_batches": 2,
        "batches": cb.BatchOptions(preserve_order=True),
    }
    async with cb.DynamicBatchingServer[int, int](card.double, **options) as server:
        priorities = itertools.cycle(range(3))

        async def ask(number: int) -> int:
            return await server.submit(number, priority=next(priorities))

        yield ask


@asynccontextmanager
async def pool(card: Card) -> AsyncIterator[Ask]:
    async with cb.ModelReplicaPool[int, int](
        [cb.Replica(card.one, name=name) for name in "ab"], max_ongoing=4
    ) as server:
        yield server.submit


@asynccontextmanager
async def fair_share(card: Card) -> AsyncIterator[Ask]:
    async with cb.FairShareScheduler[int, int](card.one, tenants={"a": 1, "b": 2}, max_in_flight=4) as server:
        yield lambda number: server.submit(number, tenant="ab"[number % 2])


@asynccontextmanager
async def hot_swap(card: Card) -> AsyncIterator[Ask]:
    version = cb.ModelVersion("v1", lambda: card.one)
    async with cb.ModelHotSwapServer[int, int](version, max_concurrent=4) as server:

        async def ask(number: int) -> int:
            return (await server.submit(number)).response

        yield ask


@asynccontextmanager
async def continuous(card: Card) -> AsyncIterator[Ask]:
    async def step(slots: list[cb.Slot[int, int]]) -> list[Any]:
        doubled = await card.double([slot.item for slot in slots])
        return [cb.Last(each) if len(slot.parts) == 4 else each for slot, each in zip(slots, doubled, strict=True)]

    async with cb.ContinuousBatchingServer(step, max_batch=6) as server:

        async def ask(number: int) -> int:
            parts = await server.submit(number)
            assert parts == [2 * number] * 5
            return parts[0]

        yield ask


@asynccontextmanager
async def speculative(card: Card) -> AsyncIterator[Ask]:
    target = TableModel()

    async def forward(states: list[Any], tokens: list[list[int]], rows: list[int]) -> list[Any]:
        texts = [[*state.tokens, *new] for state, new in zip(states, tokens, strict=True)]
        await card.double([-1 if text[0] == 7 else 1 for text in texts])
        return await target.forward(states, tokens, rows)

    async with cb.SpeculativeDecoder(cb.Model(forward, target.begin), max_batch=6) as server:

        async def ask(number: int) -> int:
            prefix = [7, *map(int, np.base_repr(-number, 7))] if number < 0 else [number % 7]
            found = await server.submit(cb.Decode(prefix, max_new_tokens=5))
            return 2 * number if len(found.tokens) == len(prefix) + 5 else 0

        yield ask


SERVERS = [batching, two_batches_at_once, in_order, pool, fair_share, hot_swap, continuous, speculative]


@pytest.mark.parametrize("server", SERVERS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
async def test_ten_poisons_among_healthy_requests(server: Any, at_once: bool) -> None:
    card = Card()
    waves = [[*range(1, 31), *range(-POISONS, 0)]] if at_once else [[1, 2, 3, -n, 4, 5] for n in range(1, POISONS + 1)]
    async with asyncio.timeout(BOUND), server(card) as ask:
        for wave in waves:
            tasks = {number: asyncio.create_task(ask(number)) for number in wave}
            found = {number: await outcome(task) for number, task in tasks.items()}
            assert {number: found[number] for number in wave if number > 0} == {n: 2 * n for n in wave if n > 0}
            assert [type(found[number]) for number in wave if number < 0] == [cb.Quarantined] * sum(n < 0 for n in wave)
            card.now += EVERY
        losses = card.losses
        for number in range(-POISONS, 0):  # refused without a call
            assert isinstance(await outcome(ask(number)), cb.Quarantined)
    assert not card.stopped
    assert losses == card.losses <= 3 * POISONS


@pytest.mark.parametrize("steady", [False, True], ids=["few", "steady"])
@pytest.mark.parametrize(
    "server", [batching, pool, fair_share, continuous, speculative], ids=lambda each: each.__name__
)
async def test_poisons_of_another_server_of_the_device(server: Any, steady: bool) -> None:
    """Each server is alone with its suspect only while the other one begins nothing."""
    card, over = Card(), asyncio.Event()

    async def clients(ask: Ask, number: int) -> list[Any]:
        found = [await outcome(ask(number))]
        while steady and not over.is_set():
            found.append(await outcome(ask(number)))
        return found

    async with asyncio.timeout(BOUND), server(card) as healthy, batching(card) as other:
        tasks = [asyncio.create_task(clients(healthy, number)) for number in range(1, 7)]
        bad = await asyncio.gather(*(outcome(other(-number)) for number in range(1, POISONS + 1)))
        over.set()
        found = await asyncio.gather(*tasks)
    assert {type(each) for each in bad} == {cb.Quarantined}
    assert [set(each) for each in found] == [{2 * number} for number in range(1, 7)]
    assert not card.stopped


async def test_a_long_sequence_outlives_any_number_of_poisons() -> None:
    """Its losses are forgotten after a few steps."""
    card = Card()
    answered = asyncio.Event()

    async def step(slots: list[cb.Slot[int, int]]) -> list[Any]:
        doubled = await card.double([slot.item for slot in slots])
        long = [slot.item == 0 for slot in slots]
        return [each if keeps and not answered.is_set() else cb.DONE for each, keeps in zip(doubled, long, strict=True)]

    async with asyncio.timeout(BOUND), cb.ContinuousBatchingServer(step, max_batch=6) as server:
        long = asyncio.create_task(server.submit(0))
        for number in range(1, 3 * POISONS + 1):
            first, others = card.losses, [asyncio.create_task(server.submit(each)) for each in (number, -number)]
            assert [type(await outcome(each)) for each in others] == [list, cb.Quarantined]
            assert card.losses == first + 2  # with others, and alone
            card.now += EVERY
        answered.set()
        assert set(await long) == {0}
    assert not card.stopped


async def test_another_error_of_a_suspect_is_its_own() -> None:
    """A pass that a suspect takes alone fails, but not by a loss: the other texts go on."""
    card, target = Card(), TableModel()

    async def forward(states: list[Any], tokens: list[list[int]], rows: list[int]) -> list[Any]:
        bad = [[*state.tokens, *new][0] == 7 for state, new in zip(states, tokens, strict=True)]
        if bad == [True]:
            raise ValueError("no such token")
        await card.double([-1 if each else 1 for each in bad])
        return await target.forward(states, tokens, rows)

    async with asyncio.timeout(BOUND), cb.SpeculativeDecoder(cb.Model(forward, target.begin), max_batch=6) as server:
        texts = [cb.Decode([token], max_new_tokens=5) for token in (1, 7, 2)]
        found = [await outcome(task) for task in [asyncio.create_task(server.submit(text)) for text in texts]]
    assert [type(each) for each in found] == [cb.Decoded, ValueError, cb.Decoded]


async def test_a_request_whose_caller_has_left_runs_no_more() -> None:
    """A server of calls: one of its requests waits for its turn alone when its caller leaves."""
    runs, gate, begun = 0, asyncio.Event(), asyncio.Event()

    async def model(number: int) -> int:
        nonlocal runs
        if number > 0:
            begun.set()
            await gate.wait()
            return number
        runs += 1
        error = cb.ContextPoisoned("lost")
        error.device, error.generation = "gpu", runs
        raise error

    async with asyncio.timeout(BOUND), CallServer(model, concurrency=2) as server:
        other = asyncio.create_task(server.submit((1,)))
        await begun.wait()
        bad = asyncio.create_task(server.submit((-1,)))
        while runs < 2:  # noqa: ASYNC110 -- then it is to run alone, when the other has ended
            await asyncio.sleep(0)
        await turns()
        bad.cancel()
        assert isinstance(await outcome(bad), asyncio.CancelledError)
        gate.set()
        assert await other == 1
        await turns()
    assert runs == 2
