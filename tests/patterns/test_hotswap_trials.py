"""Evaluation of a canary: by its time, by its responses, and in shadow."""

import asyncio
from typing import Any

import pytest
from batching_lab import turns
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


def test_what_a_trial_may_be() -> None:
    with pytest.raises(ValueError, match="max_slowdown must be positive, but is 0"):
        cb.Canary(max_slowdown=0)
    with pytest.raises(ValueError, match="judge must be a function"):
        cb.Canary(judge="good")  # type: ignore[arg-type]
