"""The replica pool in virtual time: binding, failures, retries, hedges."""

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from batching_lab import outcome, turns
from pool_lab import Copy, pool_lab

import callboard as cb
from callboard.actors import ManualClock
from callboard.patterns.replicas.ejection import Ejection
from callboard.patterns.replicas.hedging import Hedging
from callboard.patterns.replicas.member import Phase
from callboard.patterns.replicas.server import ModelReplicaPool

LIMIT = 30.0


async def test_alone_in_a_few_lines() -> None:
    async def double(item: int) -> int:
        return 2 * item

    async with ModelReplicaPool([double, double]) as pool:
        assert await asyncio.gather(*(pool.submit(n) for n in range(50))) == [2 * n for n in range(50)]
    assert sum(each.completed for each in pool.stats().replicas) == 50


def test_without_asyncio() -> None:
    with cb.sync.serving(cb.ModelReplicaPool([lambda item: item + 1] * 2)) as pool:
        assert [pool.ask(n, timeout=LIMIT) for n in range(5)] == [1, 2, 3, 4, 5]
    with pytest.raises(cb.ServerStopped):
        pool.ask(1)


async def test_a_request_is_bound_when_a_slot_is_free(clock: ManualClock) -> None:
    """None waits behind a slow replica while another is free."""
    slow, fast = Copy(), Copy()
    async with pool_lab([slow, fast], clock, policy="round_robin", ejection=None) as pool:
        futures = [pool.submit_nowait(item) for item in "abcd"]
        await turns()
        assert (slow.running, fast.running, pool.stats().queued) == (["a"], ["b"], 2)
        await fast.release()
        await fast.release()
        assert fast.items == ["b", "c", "d"]
        await fast.release()
        assert [future.done() for future in futures] == [False, True, True, True]
        await slow.release()
        assert [await future for future in futures] == ["<a>", "<b>", "<c>", "<d>"]


async def test_max_ongoing(clock: ManualClock) -> None:
    copies = [Copy(), Copy()]
    async with pool_lab(copies, clock, max_ongoing=2, policy="least_outstanding") as pool:
        for item in "abcde":
            pool.submit_nowait(item)
        await turns()
        assert [copy.running for copy in copies] == [["a", "c"], ["b", "d"]]


async def test_priorities_and_deadlines_hold_in_the_queue(clock: ManualClock) -> None:
    copy = Copy()
    async with pool_lab([copy], clock) as pool:
        first = pool.submit_nowait("a")
        await turns()
        late = pool.submit_nowait("late", timeout=1.0)
        low, high = pool.submit_nowait("low"), pool.submit_nowait("high", priority=5)
        clock.advance(1.0)
        error = await outcome(late)
        assert isinstance(error, cb.DeadlineExceeded)
        assert error.stage == "queue"
        for _ in range(3):
            await copy.release()
        assert [await future for future in (first, low, high)] == ["<a>", "<low>", "<high>"]
        assert copy.items == ["a", "high", "low"]


@pytest.mark.parametrize("how", ["cancel", "expire"])
async def test_who_leaves_frees_the_slot_at_once(clock: ManualClock, how: str) -> None:
    copy = Copy()
    async with pool_lab([copy], clock) as pool:
        first = pool.submit_nowait("a", timeout=1.0)
        second = pool.submit_nowait("b")
        await turns()
        if how == "cancel":
            first.cancel()
        else:
            clock.advance(1.0)
        await turns()
        assert (copy.cancelled, copy.running) == (1, ["b"])
        assert isinstance(await outcome(first), asyncio.CancelledError if how == "cancel" else cb.DeadlineExceeded)
        await copy.release()
        assert await second == "<b>"


async def test_a_call_on_a_thread_keeps_its_slot_until_it_returns(clock: ManualClock) -> None:
    begun, gate, ran = threading.Event(), threading.Event(), []

    def blocking(item: str) -> str:
        ran.append(item)
        begun.set()
        assert item == "b" or gate.wait(LIMIT)
        return item

    async with pool_lab([blocking], clock) as pool:
        first, second = pool.submit_nowait("a"), pool.submit_nowait("b")
        assert await asyncio.to_thread(begun.wait, LIMIT)
        first.cancel()
        await turns()
        assert pool.stats().replicas[0].ongoing == 1
        gate.set()
        async with asyncio.timeout(LIMIT):
            assert await second == "b"
        assert ran == ["a", "b"]


async def test_a_full_queue_says_when_there_is_room(clock: ManualClock) -> None:
    copy = Copy()
    async with pool_lab([copy], clock, max_queue=1) as pool:
        pool.submit_nowait("a")
        await turns()
        clock.advance(0.5)
        await copy.release()
        for item in "bc":
            pool.submit_nowait(item)
            await turns()
        with pytest.raises(cb.QueueFull) as caught:
            pool.submit_nowait("d")
        assert (caught.value.limit, caught.value.depth, caught.value.retry_after) == (1, 1, 0.5)


async def test_a_full_queue_may_block_or_drop(clock: ManualClock) -> None:
    for overflow in ("block", "drop_oldest"):
        copy = Copy()
        async with pool_lab([copy], clock, max_queue=1, queue=cb.QueueOptions(overflow=overflow)) as pool:
            tasks = []
            for item in "abc":
                tasks.append(asyncio.create_task(pool.submit(item)))
                await turns()
            for _ in range(3 if overflow == "block" else 2):
                await copy.release()
            found = [await outcome(task) for task in tasks]
            assert [found[0], found[2]] == ["<a>", "<c>"]
            assert found[1] == "<b>" if overflow == "block" else isinstance(found[1], cb.QueueFull)


async def test_a_run_has_the_context_of_its_caller(clock: ManualClock) -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who")

    async def tell(item: int) -> str:
        return who.get()

    async with pool_lab([tell], clock, max_ongoing=4) as pool:

        async def caller(name: str) -> str:
            who.set(name)
            return str(await pool.submit(0))

        assert await asyncio.gather(caller("a"), caller("b")) == ["a", "b"]


async def test_a_policy_that_fails_fails_its_request_only(clock: ManualClock) -> None:
    def picky(item: str, loads: list[Any]) -> Any:
        if item == "bad":
            raise KeyError(item)
        return loads[0].name if item == "name" else None

    copy = Copy()
    async with pool_lab([copy], clock, policy=picky, max_ongoing=3) as pool:
        futures = [pool.submit_nowait(item) for item in ("bad", "none", "name")]
        found = [await outcome(future) for future in futures[:2]]
        assert [type(each) for each in found] == [KeyError, TypeError]
        await turns()
        await copy.release()
        assert await futures[2] == "<name>"


async def test_sessions_stay_where_they_are(clock: ManualClock) -> None:
    copies = [Copy() for _ in range(3)]
    async with pool_lab(copies, clock, policy="consistent_hash", key=lambda item: item[0], max_ongoing=8) as pool:
        for step in range(5):
            for user in "xyz":
                future = pool.submit_nowait((user, step))
                await turns()
                copy = next(copy for copy in copies if copy.running)
                await copy.release()
                await future
        homes = {user: {n for n, copy in enumerate(copies) for item in copy.items if item[0] == user} for user in "xyz"}
        assert {len(home) for home in homes.values()} == {1}


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_fault_of_a_replica_is_retried_elsewhere_in_the_old_place(clock: ManualClock, idempotent: bool) -> None:
    bad, good = Copy(), Copy()
    async with pool_lab([bad, good], clock, policy="round_robin", idempotent=idempotent) as pool:
        futures = [pool.submit_nowait(item) for item in "abcd"]
        await turns()
        await bad.release(OSError("broken"))
        await good.release()
        if idempotent:
            assert good.items == ["b", "a"]  # before those that were submitted later
            assert (bad.items, pool.stats().repeated) == (["a", "c"], 1)
            await good.release()
            assert await futures[0] == "<a>"
        else:
            assert isinstance(await outcome(futures[0]), OSError)
            assert (bad.items, good.items) == (["a", "c"], ["b", "d"])


async def test_attempts_are_bounded_and_items_errors_are_not_retried(clock: ManualClock) -> None:
    copies = [Copy(), Copy()]
    async with pool_lab(copies, clock, policy="round_robin", idempotent=True, ejection=None) as pool:
        broken, wrong = pool.submit_nowait("a"), pool.submit_nowait("b")
        await turns()
        await copies[1].release(ValueError("item"))
        assert isinstance(await outcome(wrong), ValueError)
        await copies[0].release(OSError("first"))
        await copies[1].release(OSError("second"))
        assert str(await outcome(broken)) == "second"
        assert [copy.items for copy in copies] == [["a"], ["b", "a"]]


async def test_what_is_a_fault_is_up_to_the_caller(clock: ManualClock) -> None:
    copies = [Copy(), Copy()]

    def fault(error: Exception) -> bool:
        if "hook" in str(error):
            raise RuntimeError
        return isinstance(error, ValueError)

    async with pool_lab(copies, clock, policy="round_robin", idempotent=True, fault=fault) as pool:
        futures = [pool.submit_nowait(item) for item in "ab"]
        await turns()
        await copies[1].release(OSError("hook"))
        assert isinstance(await outcome(futures[1]), OSError)
        await copies[0].release(ValueError("not this one"))
        await copies[1].release()
        assert await futures[0] == "<a>"


async def test_a_failing_replica_is_ejected_and_probed(clock: ManualClock) -> None:
    bad, good = Copy(), Copy()
    ejection = Ejection(errors=2, backoff=1.0)
    async with pool_lab([bad, good], clock, policy="round_robin", ejection=ejection, idempotent=False) as pool:
        for _ in range(2):
            failed, other = pool.submit_nowait("x"), pool.submit_nowait("y")
            await turns()
            await bad.release(OSError("broken"))
            await good.release()
            assert isinstance(await outcome(failed), OSError)
            assert await other == "<y>"
        assert pool.stats().replicas[0].phase is Phase.EJECTED
        waiting = [pool.submit_nowait(item) for item in "pqr"]
        await turns()
        assert (bad.running, good.running) == ([], ["p"])
        clock.advance(1.0)  # the timer, since requests wait
        await turns()
        assert (bad.running, good.running) == (["q"], ["p"])
        await bad.release()
        assert pool.stats().replicas[0].phase is Phase.READY
        assert bad.running == ["r"]
        await bad.release()
        await good.release()
        assert [await future for future in waiting] == ["<p>", "<q>", "<r>"]


async def test_a_lost_context_counts_as_a_fault_where_the_device_is_unknown(clock: ManualClock) -> None:
    bad, good = Copy(), Copy()
    async with pool_lab([bad, good], clock, policy="round_robin", idempotent=True) as pool:
        future = pool.submit_nowait("a")
        await turns()
        await bad.release(cb.ContextPoisoned("lost"))
        await good.release()
        assert await future == "<a>"
        assert [each.failed for each in pool.stats().replicas] == [1, 0]


# -- hedging -----------------------------------------------------------------------------------------------------------


TICK = 1 / 128
"""Seconds; exact in binary. A request that ran for two of them is hedged."""


async def warm(pool: Any, copies: list[Copy], clock: ManualClock) -> None:
    """Answer requests after two ticks, and most of them after one, so that the pool knows how long one takes."""
    for item in range(40):
        future = pool.submit_nowait(item)
        await turns()
        clock.advance(TICK * (2 if item < 4 else 1))
        await next(copy for copy in copies if copy.running).release()
        await future


async def hedged(clock: ManualClock) -> tuple[Any, list[Copy], Any]:
    copies = [Copy(), Copy()]
    hedging = Hedging(samples=10)
    lab = pool_lab(copies, clock, idempotent=True, hedging=hedging, ejection=None, policy="least_outstanding")
    pool = await lab.__aenter__()
    await warm(pool, copies, clock)
    return pool, copies, lab


@pytest.mark.parametrize("winner", [0, 1])
async def test_a_long_request_runs_twice_and_the_loser_is_cancelled(clock: ManualClock, winner: int) -> None:
    pool, copies, lab = await hedged(clock)
    future = pool.submit_nowait("slow")
    await turns()
    first = next(copy for copy in copies if copy.running)
    other = copies[1 - copies.index(first)]
    clock.advance(TICK)
    await turns()
    assert other.running == []
    clock.advance(TICK)
    await turns()
    assert other.running == ["slow"]
    await (first, other)[winner].release()
    assert await future == "<slow>"
    assert (first.cancelled, other.cancelled) == ((0, 1) if winner == 0 else (1, 0))
    stats = pool.stats()
    assert (stats.hedged, stats.hedges_won, stats.completed, stats.running) == (1, winner, 41, 0)
    await lab.__aexit__(None, None, None)


@pytest.mark.parametrize("first_fails", [True, False])
async def test_when_one_run_fails_the_other_counts(clock: ManualClock, first_fails: bool) -> None:
    pool, copies, lab = await hedged(clock)
    future = pool.submit_nowait("slow")
    await turns()
    first = next(copy for copy in copies if copy.running)
    other = copies[1 - copies.index(first)]
    clock.advance(2 * TICK)
    await turns()
    failing, answering = (first, other) if first_fails else (other, first)
    await failing.release(OSError("broken"))
    assert not future.done()
    await answering.release()
    assert await future == "<slow>"
    await lab.__aexit__(None, None, None)


async def test_no_hedge_takes_the_slot_of_a_request_that_waits(clock: ManualClock) -> None:
    pool, copies, lab = await hedged(clock)
    for item in "abc":
        pool.submit_nowait(item)
    await turns()
    clock.advance(1.0)
    await turns()
    running = sorted(item for copy in copies for item in copy.running)
    assert (running, pool.stats().hedged) == (["a", "b"], 0)
    await copies[0].release()
    assert [len(copy.running) for copy in copies] == [1, 1]
    assert pool.stats().hedged == 0
    await lab.__aexit__(None, None, None)


async def test_hedges_keep_to_the_budget(clock: ManualClock) -> None:
    pool, copies, lab = await hedged(clock)  # 40 requests, of which each earned a twentieth of a hedge
    for item in range(10):
        future = pool.submit_nowait(f"slow {item}")
        await turns()
        clock.advance(4 * TICK)
        await turns()
        await next(copy for copy in copies if copy.running).release()
        await future
    assert pool.stats().hedged == 2
    await lab.__aexit__(None, None, None)


async def test_a_second_run_needs_another_replica(clock: ManualClock) -> None:
    copy = Copy()
    async with pool_lab([copy], clock, max_ongoing=2, idempotent=True, hedging=Hedging(samples=10)) as pool:
        await warm(pool, [copy], clock)
        future = pool.submit_nowait("slow")
        await turns()
        clock.advance(1.0)
        await turns()
        assert (copy.running, pool.stats().hedged) == (["slow"], 0)
        await copy.release()
        assert await future == "<slow>"
