"""``min_score``: of searches, of words, and of questions to a pipeline."""

from typing import Any

import numpy as np
import pytest
from tests.agents.index_lab import vectors
from tests.agents.rag.rag_lab import DOCUMENTS, Letters

import callboard as cb

QUESTION = "What does a full queue refuse?"


@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
async def test_a_search_leaves_out_what_scores_less(dtype: Any) -> None:
    index = cb.CpuVectorIndex(24, dtype=dtype)
    index.upsert(range(500), vectors(500))
    query = vectors(1, seed=1)[0]
    whole = await index.search(query, 20)
    least = float(whole.scores[7])
    some = await index.search(query, 20, min_score=least)
    assert some.ids.tolist() == whole.ids.tolist()[:8]
    assert index.search_now(query, 3, min_score=least).ids.tolist() == whole.ids.tolist()[:3]
    assert len(await index.search(query, 20, min_score=1.0)) == 0
    assert index.scores(query, whole.ids.tolist()).tolist() == whole.scores.tolist()
    with pytest.raises(KeyError):
        index.scores(query, [500])


@pytest.mark.parametrize(
    "metric, least, shape, says",
    [
        ("cosine", 1.5, (3,), "min_score is 1.5; it must be between -1 and 1, as cosines are"),
        ("cosine", float("nan"), (3,), "min_score is nan; it must be between"),
        ("ip", float("inf"), (3,), "min_score is inf; it must be finite"),
        ("ip", 10**400, (3,), "min_score is 1000.*; it must be finite"),
        ("ip", "0.5", (3,), "min_score is '0.5'; it must be a number"),
        ("ip", True, (3,), "min_score is True; it must be a number"),
        ("l2", 0.5, (3,), "scores of 'l2' are distances"),
        ("cosine", 0.5, (2, 3), "min_score with several queries"),
    ],
)
async def test_a_score_that_cannot_be_compared_is_refused(metric: Any, least: Any, shape: Any, says: str) -> None:
    index = cb.CpuVectorIndex(3, metric=metric)
    index.upsert([0], np.ones((1, 3)))
    with pytest.raises((TypeError, ValueError), match=says):
        await index.search(np.ones(shape), min_score=least)


@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
def test_the_scores_of_a_cosine_index_are_least_scores(dtype: Any) -> None:
    index = cb.CpuVectorIndex(24, dtype=dtype)
    index.upsert(range(500), vectors(500))
    scores = [index.search_now(row, 1).scores[0] for row in index.rows(range(500))]
    at = int(np.argmax(scores))  # above 1 by rounding
    assert len(index.search_now(index.rows([at])[0], 3, min_score=scores[at])) == 1


@pytest.mark.filterwarnings("error")
def test_no_product_reaches_a_score_that_is_no_f32() -> None:
    index = cb.CpuVectorIndex(3, metric="ip")
    index.upsert([0], np.ones((1, 3)))
    assert len(index.search_now(np.ones(3), min_score=1e300)) == 0
    assert len(index.search_now(np.ones(3), min_score=-1e300)) == 1


def test_words_have_a_least_score_of_bm25() -> None:
    index = cb.TextIndex()
    index.upsert([1, 2, 3], ["a full queue", "a queue of a hundred requests", "a plan"])
    found = index.search("full queue")
    assert found.ids.tolist() == [1, 2]
    assert index.search("full queue", min_score=float(found.scores[0])).ids.tolist() == [1]
    with pytest.raises(ValueError, match="min_score is nan"):
        index.search("full queue", min_score=float("nan"))


async def test_a_question_finds_only_passages_that_are_near() -> None:
    embed = Letters()
    async with cb.RagPipeline(embed) as pipeline:
        await pipeline.ingest(DOCUMENTS)
        whole = await pipeline.query(QUESTION)
        rows = await embed([QUESTION, *(each.passage.described for each in whole.citations)])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        cosines = rows[1:] @ rows[0]
        least = float(np.sort(cosines)[-2]) - 1e-3
        some = await pipeline.query(QUESTION, min_score=least)
        assert len(some.citations) == 2 < len(whole.citations)
        near = {each.passage.id for each, cosine in zip(whole.citations, cosines, strict=True) if cosine > least}
        assert {each.passage.id for each in some.citations} == near
        assert not (await pipeline.query(QUESTION, min_score=1.0)).citations
        with pytest.raises(ValueError, match="min_score is 2"):
            await pipeline.query(QUESTION, min_score=2)
    async with cb.RagPipeline() as pipeline:  # words only: of BM25
        await pipeline.ingest(DOCUMENTS)
        assert (await pipeline.query(QUESTION, min_score=0.1)).citations
        assert not (await pipeline.query(QUESTION, min_score=100)).citations


async def test_a_question_without_a_vector_says_that_nothing_was_compared() -> None:
    embed = Letters()

    async def failing(texts: list[str]) -> Any:
        if QUESTION in texts:
            raise OSError("no model")
        return await embed(texts)

    skip = {"embed": cb.RagStage(on_failure="skip")}
    async with cb.RagPipeline(failing, stages=skip) as pipeline:
        await pipeline.ingest(DOCUMENTS)
        answer = await pipeline.query(QUESTION, min_score=0.99)
    assert answer.citations
    assert answer.skipped["min_score"] == "the question has no vector to compare"


async def test_an_index_that_cannot_score_passages_is_told() -> None:
    class Plain:
        """An index with the protocol's methods only."""

        def __init__(self) -> None:
            self._index = cb.CpuVectorIndex(26)
            self.dim, self.metric = 26, self._index.metric
            self.upsert, self.delete, self.search = self._index.upsert, self._index.delete, self._index.search

        def __len__(self) -> int:
            return len(self._index)

    index: Any = Plain()
    async with cb.RagPipeline(Letters(), index=index) as pipeline:
        await pipeline.ingest(DOCUMENTS)
        with pytest.raises(TypeError, match=r"min_score needs scores\(query, ids\)"):
            await pipeline.query(QUESTION, min_score=0.5)
    index = Plain()
    async with cb.RagPipeline(Letters(), index=index, words=False) as pipeline:
        await pipeline.ingest(DOCUMENTS)
        assert (await pipeline.query(QUESTION, min_score=0.5)).citations
