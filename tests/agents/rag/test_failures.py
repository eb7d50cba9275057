"""Stages that fail or take too long: the query fails, or goes on without them and says so."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.agents.rag.rag_lab import DOCUMENTS, Letters

import callboard as cb
from callboard.patterns.requests.errors import DeadlineExceeded

SKIP = cb.RagStage(on_failure="skip")
BRIEF = cb.RagStage(on_failure="skip", timeout=0.01)


async def never(*_: Any) -> Any:
    await asyncio.Event().wait()


async def fails(*_: Any) -> Any:
    raise ConnectionError("no model")


class Failing(Letters):
    """Embeds the documents, and then no question."""

    async def __call__(self, texts: list[str]) -> Any:
        if self.calls:
            await fails()
        return await super().__call__(texts)


async def answer(embed: Any, stages: dict[str, cb.RagStage], **options: Any) -> cb.RagAnswer:
    async with cb.RagPipeline(embed, stages=stages, **options) as pipeline:
        await pipeline.ingest(DOCUMENTS)
        return await pipeline.query("What does a full queue refuse?")


async def test_a_failure_is_the_querys_by_default() -> None:
    with pytest.raises(ConnectionError):
        await answer(Failing(), {})
    for stage in ("rerank", "generate"):
        with pytest.raises(ConnectionError):
            await answer(Letters(), {}, **{stage: fails})


@pytest.mark.parametrize("stage", ["rerank", "generate"])
@pytest.mark.parametrize("function, options, why", [(fails, SKIP, "no model"), (never, BRIEF, "longer than 0.01 s")])
async def test_a_query_goes_on_without_a_stage_and_says_so(stage: str, function: Any, options: Any, why: str) -> None:
    found = await answer(Letters(), {stage: options}, **{stage: function})
    assert why in found.skipped[stage]
    assert "A full queue refuses requests at once. [1]" in found.text


async def test_without_vectors_words_find() -> None:
    found = await answer(Failing(), {"embed": SKIP})
    assert found.skipped == {"embed": "no model"}
    assert found.citations[0].place == "queues.md:3"


async def test_a_stage_that_takes_too_long_fails_the_query() -> None:
    with pytest.raises(DeadlineExceeded, match=r"the stage 'rerank' took longer than 0\.01 s"):
        await answer(Letters(), {"rerank": cb.RagStage(timeout=0.01)}, rerank=never)
    for options in ({"rerank": never}, {"generate": never}):
        with pytest.raises(DeadlineExceeded, match="the query"):
            await answer(Letters(), {}, **options, timeout=0.05)


async def test_a_text_that_breaks_off_is_kept_and_said_to_be_cut() -> None:
    async def breaks(messages: Any) -> AsyncIterator[str]:
        yield "half a"
        raise ConnectionError("gone")

    found = await answer(Letters(), {"generate": SKIP}, generate=breaks)
    assert (found.text, found.skipped, found.extracted) == ("half a", {"generate": "gone"}, False)
    with pytest.raises(ConnectionError):
        await answer(Letters(), {}, generate=breaks)


async def test_an_item_that_fails_in_a_batch_fails_alone() -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    async def rerank(pairs: list[tuple[str, str]]) -> list[float]:
        entered.set()
        await go.wait()
        if any("poison" in question for question, _ in pairs):
            raise ValueError("poison")
        return [0.0] * len(pairs)

    async with cb.RagPipeline(rerank=rerank) as pipeline:
        await pipeline.ingest(DOCUMENTS)
        texts = ["a queue", "a queue, poison", "a plan", "an array"]
        queries = [asyncio.create_task(pipeline.query(text)) for text in texts]
        await entered.wait()
        go.set()
        found = await asyncio.gather(*queries, return_exceptions=True)
    assert [isinstance(each, ValueError) for each in found] == [False, True, False, False]


@pytest.mark.parametrize("result", [7, None, ["a"]])
async def test_what_a_generator_may_not_return(result: Any) -> None:
    async def generate(messages: Any) -> Any:
        return result

    with pytest.raises(TypeError, match="generate returned"):
        await answer(Letters(), {}, generate=generate)
    with pytest.raises(TypeError, match="rerank returned"):
        await answer(Letters(), {}, rerank=lambda pairs: [float("nan")] * len(pairs))


async def test_a_query_that_is_cancelled_leaves_the_others_alone() -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    async def rerank(pairs: list[tuple[str, str]]) -> list[float]:
        entered.set()
        await go.wait()
        return [0.0] * len(pairs)

    async with cb.RagPipeline(rerank=rerank) as pipeline:
        await pipeline.ingest(DOCUMENTS)
        first, second = (asyncio.create_task(pipeline.query(text)) for text in ("a queue", "a plan"))
        await entered.wait()
        first.cancel()
        go.set()
        assert (await second).citations
        assert (await asyncio.gather(first, return_exceptions=True))[0].__class__ is asyncio.CancelledError


class Lossy(Letters):
    """Loses its device at some of its calls."""

    def __init__(self, *lossy: int) -> None:
        super().__init__()
        self.lossy = lossy

    async def __call__(self, texts: list[str]) -> Any:
        found = await super().__call__(texts)
        if len(self.calls) in self.lossy:
            raise cb.ContextLost(f"at call {len(self.calls)}")
        return found


async def test_a_lost_device_costs_time_in_every_stage() -> None:
    """In an ingestion, for the question, and for the sentences of its passages."""
    expected = await answer(Letters(), {})
    embed = Lossy(1, 3, 5)
    found = await answer(embed, {})
    assert (found.text, found.skipped) == (expected.text, {})
    assert len(embed.calls) == 6
    with pytest.raises(cb.ContextLost):
        await answer(Lossy(1, 2), {})
