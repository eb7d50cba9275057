"""A cascade with short deadlines: two stages at once, and the first sufficient answer."""

from typing import Any

import pytest
from batching_lab import Model, outcome, turns
from test_cascade_server import lab, sure_of

from callboard.actors import ManualClock
from callboard.patterns.cascade.server import InferenceCascade
from callboard.patterns.cascade.stages import CascadeReply, CascadeStage


async def learn(cascade: InferenceCascade[Any, Any], clock: ManualClock, small: Model, large: Model) -> None:
    """Each stage takes a second, as far as the cascade knows."""
    for _ in range(8):
        future = cascade.submit_nowait(99)  # the small one is unsure
        for model in (small, large):
            await turns()
            clock.advance(1.0)
            await model.release()
        await future
    small.batches.clear()
    large.batches.clear()


def pair(**options: Any) -> tuple[Model, Model, list[CascadeStage]]:
    small, large = sure_of(3), sure_of(1000)
    return small, large, [CascadeStage(small, 0.5), CascadeStage(large, **options)]


async def test_a_request_with_time_enough_takes_one_stage_after_the_other(clock: ManualClock) -> None:
    small, large, stages = pair()
    async with lab(stages, clock, ahead=True) as cascade:
        await learn(cascade, clock, small, large)
        later = [cascade.submit_nowait(5), cascade.submit_nowait(6, timeout=9.0)]
        await turns()
        assert (small.batches, large.batches) == ([[5, 6]], [])
        await small.release_all()
        await large.release_all()
        assert [(await each).stage_index for each in later] == [1, 1]
        assert [each.ahead for each in cascade.stats().stages] == [0, 0]


@pytest.mark.parametrize("first", ["small", "large"])
async def test_where_time_is_short_the_first_answer_that_clears_is_given(clock: ManualClock, first: str) -> None:
    small, large, stages = pair()
    async with lab(stages, clock, ahead=True) as cascade:
        await learn(cascade, clock, small, large)
        future = cascade.submit_nowait(2, timeout=1.5)
        await turns()
        assert (small.batches, large.batches) == ([[2]], [[2]])
        await (small if first == "small" else large).release()
        assert await future == CascadeReply(20, 0 if first == "small" else 1, 1.0)
        await (large if first == "small" else small).release()  # dropped
        stats = cascade.stats()
        assert (stats.completed, stats.running) == (9, 0)
        assert [(each.ahead, each.batching.cancelled) for each in stats.stages] in ([(0, 0), (1, 1)], [(0, 1), (1, 0)])


async def test_an_unsure_answer_waits_for_the_stage_that_runs_already(clock: ManualClock) -> None:
    small, large, stages = pair()
    async with lab(stages, clock, ahead=True) as cascade:
        await learn(cascade, clock, small, large)
        future = cascade.submit_nowait(7, timeout=1.5)
        await turns()
        await small.release()
        assert large.batches == [[7]]
        clock.advance(1.0)
        await large.release()
        assert (await future).stage_index == 1
        assert large.batches == [[7]]  # once
        late = cascade.submit_nowait(8, timeout=1.5)
        await turns()
        await small.release()
        clock.advance(2.0)
        await turns()
        assert await late == CascadeReply(80, 0, 0.2, degraded=True)


async def test_an_unsure_answer_ahead_counts_when_its_turn_has_come(clock: ManualClock) -> None:
    small, large = sure_of(0), sure_of(3)
    stages = [CascadeStage(small, 0.5), CascadeStage(large, 0.5), CascadeStage(sure_of(0))]
    async with lab(stages, clock, ahead=True) as cascade:
        last: Any = stages[2].function
        for _ in range(8):
            future = cascade.submit_nowait(99)
            for model in (small, large, last):
                await turns()
                clock.advance(1.0)
                await model.release()
            await future
        future = cascade.submit_nowait(50, timeout=1.9)
        await turns()
        assert (len(small.batches), len(large.batches), len(last.batches)) == (9, 9, 8)
        await large.release()  # unsure
        assert not future.done()
        await small.release()  # so is this one
        assert last.batches[-1] == [50]
        await last.release()
        assert (await future).stage_index == 2


async def test_what_fails_ahead_is_that_stages_failure_when_its_turn_comes(clock: ManualClock) -> None:
    small, large, stages = pair(on_error="fail")
    async with lab(stages, clock, ahead=True) as cascade:
        await learn(cascade, clock, small, large)
        for item, expected in ((1, "0"), (7, "large")):
            future = cascade.submit_nowait(item, timeout=1.5)
            await turns()
            await large.release(ValueError("large"))
            assert not future.done()
            await small.release()
            found = await outcome(future)
            assert expected == (str(found) if isinstance(found, ValueError) else str(found.stage_index))
        assert [each.failed for each in cascade.stats().stages] == [0, 1]


async def test_a_stage_that_takes_drafts_is_not_entered_ahead(clock: ManualClock) -> None:
    small, large = sure_of(3), Model(lambda pairs: [(10 * item, 1.0) for item, _ in pairs])
    async with lab([CascadeStage(small, 0.5), CascadeStage(large, draft=True)], clock, ahead=True) as cascade:
        await learn(cascade, clock, small, large)
        future = cascade.submit_nowait(7, timeout=1.5)
        await turns()
        assert large.batches == []
        await small.release()
        await large.release()
        assert (await future).stage_index == 1


async def test_cancelling_and_stopping_end_both_calls(clock: ManualClock) -> None:
    small, large, stages = pair()
    async with lab(stages, clock, ahead=True) as cascade:
        await learn(cascade, clock, small, large)
        future = cascade.submit_nowait(1, timeout=1.5)
        await turns()
        future.cancel()
        await turns()
        assert [each.batching.cancelled for each in cascade.stats().stages] == [1, 1]
