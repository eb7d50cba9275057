"""Answers of a pipeline: ingestion, retrieval, context, generation."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.agents.rag.rag_lab import DOCUMENTS, Letters

import callboard as cb
from callboard.agents.index.text import TextIndex


async def echo(messages: list[dict[str, Any]]) -> AsyncIterator[str]:
    yield "as [1] says: "
    yield str(messages[-1]["content"])


async def test_an_answer_has_text_citations_and_times() -> None:
    async with cb.RagPipeline(Letters()) as pipeline:
        await pipeline.ingest(DOCUMENTS)
        answer = await pipeline.query("What does a full queue refuse?", top_k=2)
        again = await pipeline.query(cb.RagPipeline.Query("What does a full queue refuse?", top_k=1))
    first = answer.citations[0]
    assert "A full queue refuses requests at once. [1]" in answer.text
    assert answer.extracted
    assert (first.place, first.passage.heading, first.cited) == ("queues.md:3", "Queues", True)
    assert [first.passage.text[a:b] for a, b in first.marks] == ["A full queue refuses requests at once."]
    assert set(answer.timings) == {"embed", "retrieve", "assemble", "generate"}
    assert (answer.embedding_was_cached, again.embedding_was_cached, len(again.citations)) == (False, True, 1)
    assert answer.skipped == {}
    assert "queues.md" in answer.sources


async def test_only_what_is_new_is_embedded_and_what_vanished_is_removed() -> None:
    embed = Letters()
    async with cb.RagPipeline(embed) as pipeline:
        assert await pipeline.ingest(DOCUMENTS) == cb.Ingested(added=4, unchanged=0, removed=0)
        assert await pipeline.ingest(DOCUMENTS) == cb.Ingested(0, 0, 0)
        longer = cb.Document("loss.md", "Preface.\n\n" + DOCUMENTS[0].text)
        calls = len(embed.calls)
        assert await pipeline.ingest([longer]) == cb.Ingested(added=1, unchanged=2, removed=0)
        assert embed.calls[calls:] == [["Preface."]]
        found = await pipeline.query("arrays stale", top_k=1)
        assert found.citations[0].place == "loss.md:9"  # two lines further down
        assert await pipeline.ingest([longer], complete=True) == cb.Ingested(0, 0, 2)
        assert (pipeline.sources, len(pipeline), len(pipeline.index or ())) == (["loss.md"], 3, 3)
        assert await pipeline.delete(["loss.md", "none.md"]) == cb.Ingested(0, 0, 3)
        assert (await pipeline.query("arrays")).text == "The documents have no passage about this."


async def test_new_metadata_replaces_the_old() -> None:
    async with cb.RagPipeline(Letters()) as pipeline:
        await pipeline.ingest(DOCUMENTS)
        await pipeline.ingest([cb.Document(DOCUMENTS[1].source, DOCUMENTS[1].text, {"area": "ops"})])
        for area, source in (("ops", "plans.md"), ("serving", "queues.md")):
            answer = await pipeline.query("a plan, a queue", where={"area": area})
            assert [each.passage.source for each in answer.citations] == [source]
        assert not (await pipeline.query("a plan", where=lambda each: each.get("area") == "none")).citations


async def test_an_ingestion_that_fails_changes_nothing() -> None:
    bad = asyncio.Event()

    async def embed(texts: list[str]) -> Any:
        if bad.is_set():
            raise ConnectionError("no model")
        return await Letters()(texts)

    async with cb.RagPipeline(embed) as pipeline:
        await pipeline.ingest(DOCUMENTS)
        bad.set()
        with pytest.raises(ConnectionError, match="no model"):
            await pipeline.ingest([cb.Document("new.md", "New text.")], complete=True)
        assert len(pipeline) == 4
        bad.clear()
        await pipeline.ingest([cb.Document("new.md", "New text.")], complete=True)
        assert pipeline.sources == ["new.md"]


async def test_indexes_are_written_off_the_loop_and_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries go on meanwhile, with the documents as they were; a cancellation comes too late."""
    entered, go = threading.Event(), threading.Event()
    original = TextIndex.upsert

    def held(self: TextIndex, *args: Any) -> None:
        entered.set()
        assert go.wait(60)
        original(self, *args)

    async with cb.RagPipeline(Letters()) as pipeline, asyncio.timeout(60):
        await pipeline.ingest(DOCUMENTS)
        monkeypatch.setattr(TextIndex, "upsert", held)
        ingesting = asyncio.create_task(pipeline.ingest([cb.Document("new.md", "New text.")], complete=True))
        await asyncio.to_thread(entered.wait, 60)
        answer = await pipeline.query("What does a full queue refuse? New text?")
        assert {each.passage.source for each in answer.citations} <= {each.source for each in DOCUMENTS}
        ingesting.cancel()
        await asyncio.sleep(0)
        assert not ingesting.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await ingesting
        assert (pipeline.sources, len(pipeline), len(pipeline.index or ())) == (["new.md"], 1, 1)
        assert await pipeline.delete(["new.md"]) == cb.Ingested(0, 0, 1)


async def test_answers_are_streamed_with_their_citations() -> None:
    async with cb.RagPipeline(Letters(), generate=echo) as pipeline:
        await pipeline.ingest(DOCUMENTS)
        stream = pipeline.stream("Which plan is kept?", top_k=2)
        pieces = [(piece, len(stream.citations)) async for piece in stream]
    assert pieces == [("as [1] says: ", 2), ("Which plan is kept?", 2)]
    assert stream.answer.text == "as [1] says: Which plan is kept?"
    assert not stream.answer.extracted
    assert [each.cited for each in stream.answer.citations] == [True, False]


async def test_leaving_a_stream_ends_its_generator() -> None:
    ended = asyncio.Event()

    async def endless(messages: Any) -> AsyncIterator[str]:
        try:
            while True:
                yield "more "
        finally:
            ended.set()

    async with cb.RagPipeline(Letters(), generate=endless) as pipeline:
        await pipeline.ingest(DOCUMENTS)
        stream = pipeline.stream("a plan")
        assert await anext(stream) == "more "
        with pytest.raises(RuntimeError, match="read the stream to its end"):
            _ = stream.answer
        await stream.aclose()
        assert ended.is_set()


async def test_the_generator_gets_passages_earlier_messages_and_the_question() -> None:
    got: list[Any] = []

    def generate(messages: Any) -> str:
        got.extend(messages)
        return "fine"

    talk = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    async with cb.RagPipeline(generate=generate) as pipeline:
        await pipeline.ingest(DOCUMENTS)
        answer = await pipeline.query([*talk, {"role": "user", "content": "a full queue?"}], top_k=1)
    assert answer.text == "fine"
    assert got[1:] == [*talk, {"role": "user", "content": "a full queue?"}]
    assert "[1] queues.md:3 (Queues)\nA full queue refuses requests at once." in got[0]["content"]


async def test_responses_of_the_openai_client_are_pieces() -> None:
    def chunk(**content: Any) -> Any:
        return SimpleNamespace(choices=[SimpleNamespace(**content)])

    async def generate(messages: Any) -> Any:
        if len(messages) > 2:
            return chunk(message=SimpleNamespace(content="whole"))

        async def chunks() -> AsyncIterator[Any]:
            yield chunk(delta=SimpleNamespace(content="piece"))
            yield chunk(delta=SimpleNamespace(content=None))
            yield SimpleNamespace(choices=[])

        return chunks()

    async with cb.RagPipeline(generate=generate) as pipeline:
        await pipeline.ingest(DOCUMENTS)
        assert (await pipeline.query("a queue")).text == "piece"
        assert (await pipeline.query("a queue", history=[{"role": "user", "content": "hi"}])).text == "whole"


async def test_a_reranker_orders_and_is_called_once_for_queries_at_the_same_time() -> None:
    calls: list[int] = []
    entered, go = asyncio.Event(), asyncio.Event()

    async def rerank(pairs: list[tuple[str, str]]) -> Any:
        calls.append(len({question for question, _ in pairs}))
        entered.set()
        await go.wait()
        return [float("stale" in text) for _, text in pairs]

    async with cb.RagPipeline(Letters(), rerank=rerank) as pipeline:
        await pipeline.ingest(DOCUMENTS)
        queries = [asyncio.create_task(pipeline.query(f"a plan for {n}")) for n in range(6)]
        await entered.wait()
        for _ in range(200):  # until the others wait in the stage
            await asyncio.sleep(0)
        go.set()
        answers = await asyncio.gather(*queries)
    assert all(answer.citations[0].passage.heading == "Loss > Arrays" for answer in answers)
    assert sum(calls) == 6
    assert len(calls) <= 3


async def test_any_index_of_the_protocol_and_any_cache(tmp_path: Any) -> None:
    cache = cb.EmbeddingCache(Letters(), model="letters", revision="1")
    async with cb.device("cpu") as gpu:
        index = cb.DeviceVectorIndex(gpu, cb.CpuVectorIndex(26))
        async with cb.RagPipeline(cache, index=index, words=False) as pipeline:
            await pipeline.ingest(DOCUMENTS)
            text = "Plans\nA plan is kept for each shape. A new shape makes another plan."
            assert (await pipeline.query(text, top_k=1)).citations[0].place == "plans.md:3"
    assert pipeline.index is index
    assert cache.stats().hits


async def test_saved_documents_are_not_embedded_again(tmp_path: Any) -> None:
    async with cb.RagPipeline(Letters()) as pipeline:
        await pipeline.ingest(DOCUMENTS)
        before = await pipeline.query("a stale array")
        pipeline.save(tmp_path)
    embed = Letters()
    async with cb.RagPipeline(embed) as pipeline:
        assert await pipeline.restore(tmp_path)
        assert await pipeline.ingest(DOCUMENTS) == cb.Ingested(0, 0, 0)
        assert (await pipeline.query("a stale array")).citations == before.citations
        embed.calls.clear()
        assert await pipeline.ingest(DOCUMENTS[:2], complete=True) == cb.Ingested(0, 0, 1)
        assert embed.calls == []
        pipeline.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2  # the older vectors are removed
    for other in (cb.Chunking(size=10, overlap=0), cb.Chunking(by="tokens")):
        async with cb.RagPipeline(Letters(), chunking=other) as pipeline:
            assert not await pipeline.restore(tmp_path)
    (tmp_path / "passages.json").write_text("{")
    async with cb.RagPipeline(Letters()) as pipeline:
        with pytest.raises(ValueError, match="damaged"):
            await pipeline.restore(tmp_path)


async def test_vectors_of_another_model_are_not_restored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with cb.RagPipeline(Letters()) as pipeline:
        await pipeline.ingest(DOCUMENTS)
        pipeline.save(tmp_path)

    def embed(texts: list[str]) -> Any:
        return np.ones((len(texts), 5), "f4")

    for index in (None, cb.CpuVectorIndex(5)):
        pipeline = cb.RagPipeline(embed, index=index)
        with pytest.raises(ValueError, match="have 5: another model made them"):
            await pipeline.restore(tmp_path)
        assert len(pipeline) == 0
    assert not await cb.RagPipeline(cb.EmbeddingCache(embed, revision="2")).restore(tmp_path)
    assert "it has revision '', and the pipeline '2'; ingest" in caplog.text


@pytest.mark.parametrize("wrong", [[("a", "b")], ["text"], "text", DOCUMENTS[0]])
async def test_what_is_no_document_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"cb\.Document\(source, text\)"):
        await cb.RagPipeline(Letters()).ingest(wrong)


async def test_queries_are_filtered_by_metadata_of_documents() -> None:
    documents = [cb.Document(f"{n}.md", f"A plan, number {n}.", {"n": np.int64(n), "tags": ["all"]}) for n in range(4)]
    for embed in (Letters(), None):
        async with cb.RagPipeline(embed) as pipeline:
            await pipeline.ingest(documents)
            for where, sources in [({"n": {"$gt": 2}}, {"3.md"}), ({"n": [0, 1], "tags": "all"}, {"0.md", "1.md"})]:
                assert {*(await pipeline.query("a plan", where=where)).sources} == sources
    with pytest.raises(TypeError, match="metadata of a Document has 'a'"):
        cb.Document("a.md", "A text.", {"a": object()})  # type: ignore[dict-item]


async def test_contexts_have_no_duplicates_and_keep_to_the_budget() -> None:
    text = "A plan is kept for each shape."
    documents = [cb.Document(f"{n}.md", text if n < 3 else f"A plan, number {n}, is kept. " * n) for n in range(8)]
    async with cb.RagPipeline(Letters(), context=cb.RagContext(budget=40)) as pipeline:
        await pipeline.ingest(documents)
        answer = await pipeline.query("a plan is kept for each shape", top_k=8)
    texts = [each.passage.text for each in answer.citations]
    assert texts.count(text) == 1
    assert sum(len(each.split()) for each in texts) < 40
    assert [each.number for each in answer.citations] == list(range(1, len(texts) + 1))


def test_orders_of_a_context_and_repeated_parts() -> None:
    text = "One two three four. Five six seven eight. Nine ten eleven twelve. Thirteen, the last."
    first, second = cb.Chunking(by="sentences", size=16, overlap=6).passages(cb.Document("a.md", text))
    (other,) = cb.Chunking().passages(cb.Document("b.md", "Other words here, all different."))
    assert first.end > second.start
    found = cb.RagContext(order="source").assemble([(second, 3.0), (other, 2.0), (first, 1.0)], 5)
    places = [(each.passage.source, each.passage.start, each.passage.end) for each in found]
    assert places == [("a.md", 0, second.start), ("a.md", second.start, second.end), ("b.md", 0, other.end)]
    assert found[0].passage.text == text[: second.start]
    best = [(cb.Passage(str(n), f"{n}", f"text number {n}", 0, 13, 1), -float(n)) for n in range(5)]
    assert [each.passage.id for each in cb.RagContext(order="edges").assemble(best, 5)] == ["0", "2", "4", "3", "1"]


async def test_what_is_wrong_is_said_before_anything_is_done() -> None:
    pipeline = cb.RagPipeline(Letters())
    with pytest.raises(RuntimeError, match="async with"):
        pipeline.stream("a question")
    async with pipeline:
        for query, error in (
            ("  ", ValueError),
            ([], ValueError),
            (7, TypeError),
            ([{"role": "assistant"}], ValueError),
        ):
            with pytest.raises(error):
                pipeline.stream(query)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="top_k is 0"):
            await pipeline.query("a", top_k=0)
        with pytest.raises(TypeError, match="within the Query"):
            await pipeline.query(cb.RagPipeline.Query("a"), top_k=3)
        with pytest.raises(ValueError, match=r"'loss\.md'"):
            await pipeline.ingest([DOCUMENTS[0], DOCUMENTS[0]])
    full = cb.CpuVectorIndex(2)
    full.upsert([1], np.ones((1, 2)))
    skip = cb.RagStage(on_failure="skip")
    wrong: list[dict[str, Any]] = [
        {"words": False, "embed": None},
        {"index": full},
        {"stages": {"cut": cb.RagStage()}},
        {"words": False, "stages": {"embed": skip}},
        {"timeout": 0},
    ]
    for options in wrong:
        with pytest.raises(ValueError, match=r"words|index|stages|timeout"):
            cb.RagPipeline(**{"embed": Letters(), **options})
