"""The cascade in virtual time: answering stages, batches, failures, deadlines, shadow runs, calibration."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from batching_lab import Model, outcome, turns

from callboard.actors import ManualClock
from callboard.patterns.cascade.server import InferenceCascade
from callboard.patterns.cascade.stages import CascadeReply, CascadeStage
from callboard.patterns.requests.errors import DeadlineExceeded, QueueFull, ServerStopped
from callboard.patterns.requests.waiting import QueueOptions


@asynccontextmanager
async def lab(
    stages: list[CascadeStage], clock: ManualClock, **options: Any
) -> AsyncIterator[InferenceCascade[Any, Any]]:
    cascade: InferenceCascade[Any, Any] = InferenceCascade(stages, clock=clock, **options)
    await cascade.start()
    try:
        yield cascade
    finally:
        await cascade.stop()


def sure_of(limit: int) -> Model:
    """A model that is sure of numbers below a limit; answers when the test says so."""
    return Model(lambda items: [(10 * item, 1.0 if item < limit else 0.2) for item in items])


async def test_what_the_small_model_is_unsure_of_goes_on_in_one_batch(clock: ManualClock) -> None:
    small, large = sure_of(3), sure_of(100)
    async with lab([CascadeStage(small, 0.5), CascadeStage(large)], clock) as cascade:
        futures = [cascade.submit_nowait(n) for n in range(6)]
        await turns()
        await small.release_all()
        assert [await future for future in futures[:3]] == [CascadeReply(10 * n, 0, 1.0) for n in range(3)]
        assert large.batches == [[3, 4, 5]]
        await large.release_all()
        assert [await future for future in futures[3:]] == [CascadeReply(10 * n, 1, 1.0) for n in range(3, 6)]
        stats = cascade.stats()
        assert (stats.submitted, stats.completed, stats.running, stats.degraded) == (6, 6, 0, 0)
        assert [(each.answered, each.escalated, each.failed) for each in stats.stages] == [(3, 3, 0), (3, 0, 0)]
        assert stats.stages[1].batching.batches == 1


async def test_the_last_stage_answers_whatever_it_is_sure_of_and_nan_goes_on(clock: ManualClock) -> None:
    async def unsure(items: list[Any]) -> list[Any]:
        return [(item, float("nan")) for item in items]

    async with lab([CascadeStage(unsure, -1.0), CascadeStage(unsure, 0.9)], clock) as cascade:
        reply = await cascade.submit("a")
    assert (reply.response, reply.stage_index, reply.degraded) == ("a", 1, False)
    assert np.isnan(reply.confidence)


async def test_confidence_of_logits_and_drafts(clock: ManualClock) -> None:
    got: list[Any] = []

    async def logits(items: list[Any]) -> Any:
        return np.array([[item, 0.0] for item in items])

    async def large(pairs: list[Any]) -> list[Any]:
        got.extend(pairs)
        return [("large", 1.0) for _ in pairs]

    async with lab([CascadeStage(logits, 0.5, confidence="margin"), CascadeStage(large, draft=True)], clock) as cascade:
        first, second = await asyncio.gather(cascade.submit(9.0), cascade.submit(0.1))
    assert first.confidence == pytest.approx(1, abs=1e-3)
    assert second.response == "large"
    ((item, draft),) = got
    assert item == 0.1
    assert draft.tolist() == [0.1, 0.0]


@pytest.mark.parametrize("on_error, index", [("escalate", 2), ("fallback", 0), ("fail", None)])
async def test_a_stage_that_fails(clock: ManualClock, on_error: Any, index: int | None) -> None:
    async def broken(items: list[Any]) -> list[Any]:
        raise ValueError("no")

    stages = [
        CascadeStage(sure_of(0)._answer, 0.5),
        CascadeStage(broken, 0.5, on_error=on_error),
        CascadeStage(sure_of(9)._answer),
    ]
    async with lab(stages, clock) as cascade:
        found = await outcome(cascade.submit_nowait(1))
        stats = cascade.stats()
    assert stats.stages[1].failed == 1
    if index is None:
        assert isinstance(found, ValueError)
        assert stats.failed == 1
    else:
        assert (found.stage_index, found.degraded) == (index, index == 0)
        assert stats.degraded == (index == 0)


async def test_a_hook_that_raises_is_a_mistake_that_no_other_stage_hides(clock: ManualClock) -> None:
    def hook(answer: Any) -> float:
        raise KeyError(answer)

    async def echo(items: list[Any]) -> list[Any]:
        return items

    async with lab([CascadeStage(echo, confidence=hook), CascadeStage(echo)], clock) as cascade:
        error = await outcome(cascade.submit_nowait("ab"))
        assert isinstance(error, TypeError)
        assert "confidence failed for 'ab': KeyError('ab')" in str(error)
        assert [each.failed for each in cascade.stats().stages] == [1, 0]


@pytest.mark.parametrize("on_error", ["escalate", "fallback", "fail"])
async def test_results_without_confidence_are_a_mistake_that_no_earlier_answer_hides(
    clock: ManualClock, on_error: Any
) -> None:
    async def unsure(items: list[Any]) -> list[Any]:
        return [(item, 0.1) for item in items]

    async def echo(items: list[Any]) -> list[Any]:
        return items

    async with lab([CascadeStage(unsure, 0.5), CascadeStage(echo, on_error=on_error)], clock) as cascade:
        error = await outcome(cascade.submit_nowait("ab"))
        assert isinstance(error, TypeError)
        assert "return such pairs, of the last stage too, or set confidence=" in str(error)
        stats = cascade.stats()
        assert (stats.failed, stats.degraded, [each.failed for each in stats.stages]) == (1, 0, [0, 1])


async def test_the_answer_that_is_there_at_the_deadline_is_given(clock: ManualClock) -> None:
    small, large = sure_of(1), sure_of(9)
    async with lab([CascadeStage(small, 0.5), CascadeStage(large)], clock) as cascade:
        late = [cascade.submit_nowait(n, timeout=1.0) for n in (1, 2)]
        await turns()
        await small.release_all()
        never = cascade.submit_nowait(3, timeout=0.5)
        await turns()
        clock.advance(1.0)
        await turns()
        assert [await future for future in late] == [CascadeReply(10 * n, 0, 0.2, degraded=True) for n in (1, 2)]
        assert isinstance(await outcome(never), DeadlineExceeded)
        stats = cascade.stats()
        assert (stats.completed, stats.expired, stats.degraded) == (2, 1, 2)
        await small.release_all()
        await large.release_all()


async def test_the_time_of_a_stage(clock: ManualClock) -> None:
    """Without an answer yet, the next stage is asked; with one, that is given."""
    small, middle, large = sure_of(0), sure_of(0), sure_of(9)
    stages = [CascadeStage(small, 0.5, timeout=1.0), CascadeStage(middle, 0.5, timeout=1.0), CascadeStage(large)]
    async with lab(stages, clock) as cascade:
        future = cascade.submit_nowait(1)
        await turns()
        clock.advance(1.0)
        await turns()
        assert middle.batches == [[1]]
        await middle.release()
        await large.release()
        assert (await future).stage_index == 2
        await small.release_all()
        future = cascade.submit_nowait(2)
        await turns()
        await small.release()
        clock.advance(1.0)
        await turns()
        assert await future == CascadeReply(20, 0, 0.2, degraded=True)
        await middle.release_all()


async def test_full_stages(clock: ManualClock) -> None:
    small, large = sure_of(0), sure_of(9)
    tight = {"max_batch": 1, "max_queue": 1}
    async with lab([CascadeStage(small, 0.5, batching=tight), CascadeStage(large, batching=tight)], clock) as cascade:
        futures = []
        for n in range(3):  # one runs in the large model, one waits there, and one has only the small one's answer
            futures.append(cascade.submit_nowait(n))
            await turns()
            await small.release()
        assert await futures[2] == CascadeReply(20, 0, 0.2, degraded=True)
        futures.append(cascade.submit_nowait(3))
        await turns()
        futures.append(cascade.submit_nowait(4))
        with pytest.raises(QueueFull):
            cascade.submit_nowait(5)
        await large.release_all()
        await small.release_all()
        await large.release_all()
        assert [(await future).response for future in futures] == [0, 10, 20, 30, 40]
        stats = cascade.stats()
        assert (stats.rejected, stats.submitted, stats.completed) == (1, 6, 5)


async def test_one_that_the_first_stage_drops_does_not_go_on(clock: ManualClock) -> None:
    small, large = sure_of(9), sure_of(9)
    tight = {"max_batch": 1, "max_queue": 1, "queue": QueueOptions(overflow="drop_oldest")}
    async with lab([CascadeStage(small, 0.5, batching=tight), CascadeStage(large)], clock) as cascade:
        futures = [cascade.submit_nowait(0)]
        await turns()
        futures += [cascade.submit_nowait(n) for n in (1, 2)]
        assert isinstance(await outcome(futures[1]), QueueFull)
        await small.release_all()
        assert large.batches == []
        assert [(await futures[n]).response for n in (0, 2)] == [0, 20]
        assert cascade.stats().dropped == 1


async def test_cancelling_takes_the_request_out_of_its_stage(clock: ManualClock) -> None:
    small, large = sure_of(0), sure_of(9)
    async with lab([CascadeStage(small, 0.5), CascadeStage(large, batching={"max_batch": 1})], clock) as cascade:
        futures = [cascade.submit_nowait(n) for n in range(3)]
        await turns()
        futures[0].cancel()
        await small.release()
        futures[2].cancel()
        await large.release_all()
        assert large.batches == [[1]]
        assert (await futures[1]).response == 10
        assert cascade.stats().cancelled == 2


async def test_stop_and_drain(clock: ManualClock) -> None:
    small, large = sure_of(1), sure_of(9)
    async with lab([CascadeStage(small, 0.5), CascadeStage(large)], clock) as cascade:
        futures = [cascade.submit_nowait(n) for n in range(3)]
        await turns()
        await small.release()
        await cascade.stop()
        assert (await futures[0]).response == 0
        assert [type(await outcome(future)) for future in futures[1:]] == [ServerStopped] * 2
        with pytest.raises(ServerStopped):
            cascade.submit_nowait(4)
    small, large = sure_of(1), sure_of(9)
    async with lab([CascadeStage(small, 0.5), CascadeStage(large)], clock) as cascade:
        future = cascade.submit_nowait(2)
        draining = asyncio.create_task(cascade.drain())
        await turns()
        await small.release_all()
        await large.release_all()
        assert await draining
        assert (await future).stage_index == 1


async def test_shadow_runs_compare_behind_the_answers(clock: ManualClock) -> None:
    small = sure_of(100)
    large = Model(lambda items: [(10 * item if item % 4 else -1, 1.0) for item in items])
    async with lab([CascadeStage(small, 0.5), CascadeStage(large)], clock, shadow=0.5, seed=3) as cascade:
        futures = [cascade.submit_nowait(n) for n in range(32)]
        await turns()
        await small.release_all()
        assert all(future.done() for future in futures)
        await large.release_all()
        stats = cascade.stats()
        ran = [item for batch in large.batches for item in batch]
        assert stats.shadowed == len(ran)
        assert 8 < len(ran) < 24
        assert stats.agreed == sum(item % 4 > 0 for item in ran)
        assert stats.stages[1].answered == 0


async def test_calibration_sets_the_thresholds(clock: ManualClock) -> None:
    """The small model is right where it is sure beyond 0.6; the large one always."""

    async def small(items: list[float]) -> list[Any]:
        return [("right" if item > 0.6 else "wrong", item) for item in items]

    async def large(items: list[float]) -> list[Any]:
        return [("right", 1.0) for _ in items]

    items = [n / 100 for n in range(100)]
    async with lab([CascadeStage(small), CascadeStage(large, cost=9.0)], clock) as cascade:
        found = await cascade.calibrate(items, ["right"] * 100, max_loss=0.0)
        assert cascade.thresholds == found.thresholds == (0.61,)
        assert (found.accuracy, found.escalated) == (1.0, (0.61,))
        assert found.cost == pytest.approx(1 + 9 * 0.61)
        assert (await cascade.submit(0.6)).stage_index == 1
        assert (await cascade.submit(0.61)).stage_index == 0
        cheap = await cascade.calibrate(items, ["right"] * 100, budget=1.0)
        assert cheap.escalated == (0.0,)
        with pytest.raises(ValueError, match="2 thresholds for 2 stages"):
            cascade.set([1, 2])
        with pytest.raises(ValueError, match="100 items, but 1 labels"):
            await cascade.calibrate(items, ["right"], budget=1.0)
        assert cascade.thresholds == cheap.thresholds


def test_a_cascade_has_stages() -> None:
    with pytest.raises(ValueError, match="at least one stage"):
        InferenceCascade([])
    with pytest.raises(ValueError, match="shadow must be a share"):
        InferenceCascade([CascadeStage(len)], shadow=2)
