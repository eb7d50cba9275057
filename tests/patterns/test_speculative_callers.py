"""Callers of the decoder: deadlines, threads, other loops, and a stop while a model runs on a thread."""

import asyncio
import threading
from typing import Any

import pytest
from batching_lab import outcome, turns
from speculative_lab import TableModel, decoder, plain

import callboard as cb
from callboard.actors import ManualClock

TABLE = TableModel()


def logits(sequences: list[list[int]], rows: list[int]) -> list[Any]:
    return [
        [TABLE.after(each[:i]) for i in range(len(each) - n + 1, len(each) + 1)]
        for each, n in zip(sequences, rows, strict=True)
    ]


async def test_a_deadline_ends_a_text_that_waits_and_one_that_runs() -> None:
    target, clock = TableModel(), ManualClock()
    gate = asyncio.get_running_loop().create_future()

    async def waits(*given: Any) -> Any:
        await gate
        return await target.forward(*given)

    async with decoder(cb.Model(waits, target.begin), max_batch=1, clock=clock) as server:
        futures = [server.submit_nowait(cb.Decode([1], max_new_tokens=2), timeout=t) for t in (1.0, 1.0, None)]
        await turns()
        clock.advance(1.0)
        found = [await outcome(each) for each in futures[:2]]
        assert [each.stage for each in found] == ["run", "queue"]
        assert server.stats().expired == 2
        gate.set_result(None)
        assert (await futures[2]).tokens == plain(target, [1], 2)
    assert target.opened == target.closed == 2  # the second never began


async def test_a_full_queue_refuses_by_the_tokens_of_prefixes() -> None:
    async with decoder(TableModel(), queue=cb.QueueOptions(max_cost=5)) as server:
        first = server.submit_nowait(cb.Decode([1, 2, 3], max_new_tokens=1))
        with pytest.raises(cb.QueueFull, match="3 of 5 cost"):
            server.submit_nowait(cb.Decode([1, 2, 3], max_new_tokens=1))
        await first
        assert server.stats().rejected == 1


def test_a_program_without_asyncio() -> None:
    with cb.sync.serving(cb.SpeculativeDecoder(cb.Cacheless(logits), lambda prefix, k: [0] * k)) as server:
        request = cb.Decode([1, 2], max_new_tokens=12)
        assert server.ask(request, timeout=30).tokens == plain(TABLE, [1, 2], 12)

        async def elsewhere() -> list[int]:
            return [token async for token in server.stream(request)]

        assert asyncio.run(elsewhere()) == plain(TABLE, [1, 2], 12)[2:]


async def test_a_stop_waits_for_the_pass_on_its_thread() -> None:
    begun, let_go = threading.Event(), threading.Event()

    def slow(sequences: list[list[int]], rows: list[int]) -> list[Any]:
        begun.set()
        assert let_go.wait(30)
        return logits(sequences, rows)

    server = await cb.SpeculativeDecoder(cb.Cacheless(slow)).start()
    future = server.submit_nowait(cb.Decode([1], max_new_tokens=9))
    await asyncio.to_thread(begun.wait, 30)
    stopping = asyncio.create_task(server.stop())
    assert isinstance(await outcome(future), cb.ServerStopped)
    await turns()
    assert not stopping.done()
    let_go.set()
    await stopping
    assert server.stats().stopped == 1
