"""Evaluation of a canary: by its time, by its responses, and in shadow."""

import asyncio
import threading
from typing import Any

import pytest
from batching_lab import Model, turns
from swap_lab import Held, bounded, lab

import callboard as cb
from callboard.actors import ManualClock


async def test_a_canary_that_is_too_slow_is_withdrawn(clock: ManualClock) -> None:
    one, two = Held("1", hold=True), Held("2", hold=True)
    async with lab(one, clock=clock, max_concurrent=8) as server:
        for seconds, passes in ((0.4, False), (0.2, True)):
            canary = cb.Canary(share=0.5, requests=4, max_slowdown=2.5, seed=3)
            swap = asyncio.create_task(server.swap(two.version(), canary=canary))
            await turns()
            works = [server.submit_nowait(n) for n in range(12)]
            await turns()
            clock.advance(0.1)
            while one.calls:
                await one.release()
            clock.advance(seconds - 0.1)
            while two.calls:
                await two.release()
            for _ in range(12):
                for held in (one, two):
                    while held.calls:
                        await held.release()
            await asyncio.gather(*works)
            if passes:
                assert (await bounded(swap)).version == "2"
            else:
                with pytest.raises(cb.SwapFailed, match=r"times as long, and at most 2\.5 is allowed"):
                    await bounded(swap)


async def test_a_canary_whose_numbers_are_not_finite_is_withdrawn() -> None:
    def version(name: str, value: float) -> cb.ModelVersion:
        return cb.ModelVersion(name, lambda: lambda item: {"y": [item * value]})

    async with cb.ModelHotSwapServer[float, Any](version("1", 1.0)) as server:
        canary = cb.Canary(share=1.0, requests=4, judge="finite")
        swap = asyncio.create_task(server.swap(version("2", float("nan")), canary=canary))
        await turns()
        while not swap.done():
            await server.submit(1.0)
        with pytest.raises(cb.SwapFailed, match="1 of 1 requests failed"):
            await swap
        assert (await server.submit(2.0)).response == {"y": [2.0]}


async def test_a_shadow_runs_behind_the_answers_and_is_compared() -> None:
    async with lab(Held("1")) as server:
        for name, agree, good in (("2", lambda a, b: a == b, False), ("3", lambda a, b: a[1] == b[1], True)):
            new = Held(name)
            canary = cb.Canary(share=1.0, requests=5, shadow=True, agree=agree)
            swap = asyncio.create_task(server.swap(new.version(), canary=canary))
            await turns()
            answers = []
            while not swap.done():
                answers.append((await server.submit(len(answers))).version)
            assert set(answers) <= {"1", name}
            assert answers[:2] == ["1", "1"]
            assert new.seen[:2] == [0, 1] or not good
            if good:
                assert (await bounded(swap)).version == name
            else:
                with pytest.raises(cb.SwapFailed, match="1 of 1 requests failed"):
                    await bounded(swap)


async def test_a_hook_that_cannot_judge_withdraws_the_version() -> None:
    def no(*_: Any) -> bool:
        raise ArithmeticError("cannot say")

    for canary in (
        cb.Canary(share=1.0, requests=2, shadow=True, agree=no),
        cb.Canary(share=1.0, requests=2, shadow=True, judge=no),
        cb.Canary(share=1.0, requests=2, judge=no),
    ):
        async with lab(Held("1")) as server:
            swap = asyncio.create_task(server.swap(Held("2").version(), canary=canary))
            await turns()
            while not swap.done():
                await server.submit(0)
            with pytest.raises(cb.SwapFailed, match=r"canary failed: ArithmeticError\('cannot say'\)"):
                await swap


async def loses(_: Any) -> Any:
    raise cb.ContextPoisoned("killed")


def version_of(model: Any, **settings: Any) -> cb.ModelVersion:
    """Version 2; it is loaded on the loop, within a few turns."""

    async def load() -> Any:
        return model

    return cb.ModelVersion("2", load, **settings)


@pytest.mark.parametrize("shadow", [False, True])
@pytest.mark.parametrize("batching", [False, True])
async def test_a_canary_that_loses_its_context_is_withdrawn(batching: bool, shadow: bool) -> None:
    version = version_of(cb.DynamicBatchingServer[Any, Any](loses) if batching else loses)
    async with lab(Held("1")) as server:
        canary = cb.Canary(share=1.0, requests=4, shadow=shadow)
        swap = asyncio.create_task(server.swap(version, canary=canary))
        await turns()
        end = (await asyncio.gather(server.submit(0), return_exceptions=True))[0]
        assert isinstance(end, cb.HotSwapReply if shadow else cb.Quarantined)
        with pytest.raises(cb.SwapFailed, match="1 of 1 requests failed"):
            await bounded(swap)


@pytest.mark.parametrize("shadow", [False, True])
@pytest.mark.parametrize("batching", [False, True])
async def test_a_canary_that_hangs_is_withdrawn_at_a_deadline(clock: ManualClock, batching: bool, shadow: bool) -> None:
    two, batches = Held("2", hold=True), Model()
    version = two.version()
    if batching:
        version = version_of(cb.DynamicBatchingServer[Any, Any](batches, clock=clock))
    async with lab(Held("1"), clock=clock) as server:
        canary = cb.Canary(share=1.0, requests=4, shadow=shadow)
        swap = asyncio.create_task(server.swap(version, canary=canary))
        await turns()
        work = server.submit_nowait(0, timeout=1.0)
        await turns()
        assert (len(two.calls), batches.waiting) == ((0, 1) if batching else (1, 0))
        clock.advance(1.0)
        with pytest.raises(cb.SwapFailed, match="1 of 1 requests failed"):
            await bounded(swap)
        if shadow:
            assert (await work).version == "1"
        else:
            with pytest.raises(cb.DeadlineExceeded) as late:
                await work
            assert late.value.stage == "run"
        assert (await server.submit(1)).version == "1"
        assert (two.unloaded, two.calls) == (int(not batching), [])


@pytest.mark.parametrize("batching", [False, True])
async def test_requests_that_do_not_reach_a_canary_do_not_count(clock: ManualClock, batching: bool) -> None:
    two, batches = Held("2", hold=True), Model()
    version = two.version()
    if batching:
        behind = cb.DynamicBatchingServer[Any, Any](batches, max_batch=1, max_queue=1, max_wait=0, clock=clock)
        version = version_of(behind)
    async with lab(Held("1"), clock=clock) as server:
        swap = asyncio.create_task(server.swap(version, canary=cb.Canary(share=1.0, requests=1)))
        await turns()
        runs = server.submit_nowait(0)
        await turns()
        late = server.submit_nowait(1, timeout=1.0)
        await turns()
        refused = server.submit_nowait(2) if batching else None
        await turns()
        clock.advance(1.0)
        with pytest.raises(cb.DeadlineExceeded) as error:
            await late
        assert error.value.stage == "queue"
        if refused is not None:
            with pytest.raises(cb.QueueFull):
                await refused
        assert not swap.done()
        await (batches if batching else two).release()
        assert (await runs).version == "2"
        assert (await bounded(swap)).version == "2"


async def test_a_request_that_its_client_has_cancelled_does_not_count() -> None:
    two = Held("2", hold=True)
    async with lab(Held("1")) as server:
        swap = asyncio.create_task(server.swap(two.version(), canary=cb.Canary(share=1.0, requests=1)))
        await turns()
        server.submit_nowait(0).cancel()
        work = server.submit_nowait(1)
        await turns()
        work.cancel()
        await two.release(ArithmeticError("told that nobody waits"))
        assert not swap.done()
        last = server.submit_nowait(2)
        await turns()
        await two.release()
        assert (await last).version == (await bounded(swap)).version == "2"


async def test_a_trial_ends_in_time(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    two = Held("2", hold=True)
    async with lab(Held("1"), clock=clock, max_concurrent=2) as server:
        swap = asyncio.create_task(server.swap(two.version(), canary=cb.Canary(share=1.0, requests=3, timeout=60)))
        await turns()
        hangs, slow = server.submit_nowait(0), server.submit_nowait(1)
        await turns()
        clock.advance(60)
        await turns()
        assert (await server.submit(2)).version == "1"
        call = two.calls[1][1]
        call.set_result("late")  # what still runs may end
        assert (await slow).response == "late"
        assert not swap.done()
        clock.advance(60)
        with pytest.raises(cb.SwapFailed, match=r"canary failed: .*undecided after 60 s: 0 of 3 requests have ended"):
            await bounded(swap)
        with pytest.raises(cb.DeadlineExceeded, match="version '2' was withdrawn"):
            await hangs
        assert "version 2 is withdrawn: undecided after 60 s" in caplog.text
        assert (two.unloaded, two.calls) == (1, [])


@pytest.mark.parametrize("shadow", [False, True])
async def test_a_call_on_a_thread_that_hangs_holds_no_swap_back(clock: ManualClock, shadow: bool) -> None:
    over, began, unloaded = threading.Event(), threading.Event(), []

    def hang(item: int) -> None:
        began.set()
        over.wait(30)

    async with lab(Held("1"), clock=clock) as server:
        version = version_of(hang, unload=unloaded.append)
        canary = cb.Canary(share=1.0, requests=3, shadow=shadow)
        swap = asyncio.create_task(server.swap(version, canary=canary))
        async with asyncio.timeout(30):
            await turns()
            work = server.submit_nowait(0, timeout=1.0)
            assert await asyncio.to_thread(began.wait, 30)
            await turns()
            clock.advance(1.0)
            while not swap.done():  # as often as it waits for the thread
                clock.advance(5.0)
                await turns()
        with pytest.raises(cb.SwapFailed, match="1 of 1 requests failed") as failed:
            await swap
        assert isinstance(failed.value.unload_error, TimeoutError)
        assert unloaded == []
        await asyncio.gather(work, return_exceptions=True)
        over.set()  # the server waits for the thread


def test_what_a_trial_may_be() -> None:
    with pytest.raises(ValueError, match="timeout must be positive seconds, or None for no limit, but is 0"):
        cb.Canary(timeout=0)
    with pytest.raises(ValueError, match="max_slowdown must be positive, but is 0"):
        cb.Canary(max_slowdown=0)
    with pytest.raises(ValueError, match="judge must be a function"):
        cb.Canary(judge="good")  # type: ignore[arg-type]
