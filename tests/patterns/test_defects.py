"""Defects of others that no test of a feature shows by itself; docs/contributing/defects.md has all of them."""

import asyncio
from typing import Any

import pytest
from batching_lab import Model, lab, turns
from fair_lab import Bench
from speculative_lab import TableModel, plain

import callboard as cb
from callboard.actors import ManualClock


async def test_figures_and_flushes_do_not_wait_for_the_batch_that_runs(clock: ManualClock) -> None:
    model = Model()
    async with lab(
        model, clock, max_batch=4, batches=cb.BatchOptions(dispatch="window"), max_wait=5.0, max_concurrent_batches=2
    ) as server:
        first = server.submit_nowait("a")
        server.flush_now()
        await turns()
        assert model.batches == [["a"]]
        second = server.submit_nowait("b")
        stats = server.stats()
        assert (stats.running, stats.queued, stats.batches) == (1, 1, 0)
        server.flush_now()  # with the first batch still running
        await turns()
        assert model.batches == [["a"], ["b"]]
        await model.release_all()
        assert (first.result(), second.result()) == ("<a>", "<b>")


async def test_a_request_in_a_later_stage_holds_up_no_other_one(clock: ManualClock) -> None:
    small = Model(lambda items: [(item, 0.0 if item == "hard" else 1.0) for item in items])
    large = Model(lambda items: [(item, 1.0) for item in items])
    stages = [cb.CascadeStage(small, 0.5), cb.CascadeStage(large)]
    async with cb.InferenceCascade[str, str](stages, clock=clock) as cascade:
        hard = cascade.submit_nowait("hard")
        await turns()
        await small.release()
        assert large.batches == [["hard"]]
        easy = cascade.submit_nowait("easy")
        await turns()
        await small.release()
        assert easy.done()
        assert not hard.done()
        await large.release()
        assert (await hard).response == "hard"


def test_tenants_that_are_alike_are_served_in_the_order_of_their_requests() -> None:
    bench = Bench()
    tenants = [f"tenant {n * 7919 % 101}" for n in range(40)]
    for tenant in tenants:
        bench.add(tenant)
    assert bench.run(40) == tenants


async def test_where_all_proposals_are_kept_the_pass_gives_one_token_more() -> None:
    target = TableModel()
    prefix = [1, 2, 3]
    expected = plain(target, prefix, 12)
    target.passes.clear()

    async def draft(tokens: list[int], k: int) -> list[int]:
        return expected[len(tokens) : len(tokens) + k]

    async with cb.SpeculativeDecoder(target, draft, k=3, adaptive=False) as server:
        found = await server.submit(cb.Decode(prefix, max_new_tokens=12))
    assert found.tokens == expected
    assert target.passes == [[3], [4], [4], [3]]  # the prefix gives one token, 3 proposals 4, and 2 proposals 3


async def test_a_reply_whose_request_was_cancelled_while_it_ran_reaches_no_other(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=2) as server:
        waiting = [asyncio.ensure_future(server.submit(n)) for n in range(4)]
        await turns()
        waiting[0].cancel()
        await turns()
        await model.release_all()
        found: list[Any] = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert found[1:] == ["<1>", "<2>", "<3>"]


@pytest.mark.parametrize("fixed, per_item", [(0.002, 0.0001), (0.1, 0.001)])
async def test_a_light_load_pays_no_window(clock: ManualClock, fixed: float, per_item: float) -> None:
    model = Model()
    async with lab(model, clock, max_wait=0.05) as server:
        for number in range(60):  # ten times the time of a batch apart
            clock.advance(10 * fixed)
            future = server.submit_nowait(number)
            await turns()
            assert model.waiting == 1  # it runs at once
            clock.advance(fixed + per_item)
            await model.release()
            assert future.done()
        assert server.stats().queue_time.max == 0
