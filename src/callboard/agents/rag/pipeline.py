"""``RagPipeline``: answers from documents, with citations."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from callboard.agents.cache.cache import EmbeddingCache
from callboard.agents.cache.embedding import Embed
from callboard.agents.checks import positive
from callboard.agents.index.cpu import CpuVectorIndex
from callboard.agents.index.protocol import VectorIndex
from callboard.agents.index.text import TextIndex
from callboard.agents.rag import files
from callboard.agents.rag.answer import Citation, Message, RagAnswer, RagQuery, RagRun, as_query
from callboard.agents.rag.context import RagContext
from callboard.agents.rag.extraction import candidates as sentences_of
from callboard.agents.rag.extraction import extracted
from callboard.agents.rag.generation import Generate, Generation
from callboard.agents.rag.library import Change, Library
from callboard.agents.rag.passages.chunking import Chunking
from callboard.agents.rag.passages.documents import Document, Ingested
from callboard.agents.rag.passages.terms import terms
from callboard.agents.rag.reranking import Rerank, Reranking
from callboard.agents.rag.retrieval import Retrieval
from callboard.agents.rag.stages import Deadline, RagStage, Stage, left_out
from callboard.agents.rag.stream import RagStream
from callboard.core.errors import ContextLost

__all__ = ["RagPipeline"]

STAGES = ("embed", "retrieve", "rerank", "generate")
AT_ONCE = 256
"""Passages that one call for vectors gets."""


class RagPipeline:
    """Answers questions from documents: retrieval by vectors and words, a context with citations, a generator.

    A query passes the stages ``embed``, ``retrieve``, ``rerank``, ``assemble`` and ``generate``. Queries that are in a
    stage at the same time share its calls. A device that is lost meanwhile costs time, no answer: what ran on it
    runs again.

    ::

        async with cb.RagPipeline(embed, generate=generate) as pipeline:
            await pipeline.ingest([cb.Document("guide.md", text)])
            answer = await pipeline.query("What is a generation?")
            print(answer.text, [citation.place for citation in answer.citations])

    Args:
        embed: Function of a list of texts that returns a row for each, or an :class:`EmbeddingCache` of one. None:
            passages are found by their words only.
        index: Any index of vectors that is empty; None: a :class:`CpuVectorIndex`, made when vectors are first known.
        words: Also search by words (BM25), and rank by both; or the :class:`TextIndex` for it.
        chunking: How documents are cut.
        rerank: Function of a list of (question, passage) pairs that returns a score for each: the larger, the better.
        generate: Gets the messages of a conversation; returns, or is awaited for, a text or an asynchronous iterator
            of pieces. A call of OpenAI's client is one, with ``stream=True`` or without. None: the answer is extracted,
            the sentences of the passages that are nearest to the question.
        context: How the context is assembled.
        stages: Settings by the names of the stages that have some.
        prefixes: Put in front of questions and of passages for the model, such as ``("query: ", "passage: ")``.
        candidates: Passages that each index gives to the ranking.
        timeout: Seconds for an answer.

    Raises:
        ValueError: A setting is out of its range, or settings contradict each other.
    """

    Query = RagQuery

    def __init__(
        self,
        embed: Embed | EmbeddingCache | None = None,
        *,
        index: VectorIndex | None = None,
        words: bool | TextIndex = True,
        chunking: Chunking = Chunking(),  # noqa: B008 -- frozen
        rerank: Rerank | None = None,
        generate: Generate | None = None,
        context: RagContext = RagContext(),  # noqa: B008 -- frozen
        stages: Mapping[str, RagStage] = {},
        prefixes: tuple[str, str] = ("", ""),
        candidates: int = 20,
        timeout: float = 60.0,
    ) -> None:
        options = _checked(stages)
        if embed is None and (index is not None or words is False):
            what = "an index of vectors needs embed" if index is not None else "words=False needs embed"
            raise ValueError(f"{what}, the function that makes the vectors of texts")
        if index is not None and len(index):
            raise ValueError(f"index has {len(index)} vectors already; give an empty one, and ingest the documents")
        if words is False and "skip" in (options["embed"].on_failure, options["retrieve"].on_failure):
            raise ValueError("on_failure='skip' of embed and retrieve goes on by words, which words=False leaves out")
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout}; it must be positive")
        self.cache = embed if isinstance(embed, EmbeddingCache) or embed is None else EmbeddingCache(embed)
        self._library, self._context, self._prefixes, self._timeout = Library(chunking), context, prefixes, timeout
        text = TextIndex(tokens=terms) if words is True else words or None
        self._retrieval = Retrieval(index, text, options["retrieve"], positive("candidates", candidates))
        self._embed: Stage[str, Any] = Stage("embed", self._vectors, options["embed"])
        self._rerank = None if rerank is None else Reranking(rerank, options["rerank"])
        self._generate = None if generate is None else Generation(generate, options["generate"])
        self._ingesting = asyncio.Lock()
        self._open = False

    # -- documents -----------------------------------------------------------------------------------------------------

    async def ingest(self, documents: Iterable[Document], *, complete: bool = False) -> Ingested:
        """Add documents, or replace those of the same sources. Passages that are there already are not embedded again.

        Queries meanwhile see the documents as they were. An ingestion that fails changes nothing.

        Args:
            documents: The documents, each with a source of its own.
            complete: These are all documents: others are removed.

        Raises:
            TypeError: They are something else than documents.
            ValueError: Two documents have the same source.
            Exception: Raised by ``embed``.
        """
        if isinstance(documents, Document | str):
            raise TypeError(f"documents is {documents!r:.80}; pass a list of cb.Document(source, text)")
        given = list(documents)
        async with self._ingesting:
            change = await asyncio.to_thread(self._library.change, given, complete=complete)
            return await self._apply(change)

    async def delete(self, sources: Sequence[str]) -> Ingested:
        """Remove documents; those that are not there are ignored."""
        if isinstance(sources, str):
            raise TypeError(f"sources is {sources!r}; pass a list of sources")
        async with self._ingesting:
            return await self._apply(self._library.removal(sources))

    async def _apply(self, change: Change) -> Ingested:
        vectors = None
        if self.cache is not None and change.added:
            texts = [each.described for each in change.added]
            prefix = self._prefixes[1]
            parts = [texts[start : start + AT_ONCE] for start in range(0, len(texts), AT_ONCE)]
            vectors = np.concatenate([await _rows(self.cache, part, prefix) for part in parts])
        writing = asyncio.ensure_future(self._written(change, vectors))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:  # a write that has begun is completed
            await asyncio.wait([writing])
            raise
        added = len(change.added)
        return Ingested(added, len(change.passages) - added, len(change.removed))

    async def _written(self, change: Change, vectors: Any) -> None:
        await self._retrieval.upsert(change.added, vectors)
        self._library.apply(change)
        await self._retrieval.delete(change.removed)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the passages and their vectors to a folder, for :meth:`restore`.

        Raises:
            TypeError: The index is not a :class:`CpuVectorIndex`.
        """
        index = self._retrieval.vectors
        if index is not None and not isinstance(index, CpuVectorIndex):
            raise TypeError(f"the index is {index!r}; only a CpuVectorIndex can be saved")
        library = self._library
        files.keep(Path(folder), files.Kept(self._settings(), library.digests, list(library.passages.values())), index)

    async def restore(self, folder: str | PathLike[str]) -> bool:
        """Have the documents of a folder that :meth:`save` has written; False if it has none of this pipeline's kind.

        They were cut by the same chunking, and embedded by the same model, revision and prefix; the log tells what
        differs. Models without a name (``EmbeddingCache(model=)``) are told apart by the length of their vectors only.
        Call :meth:`ingest` after it: only what has changed since is embedded.

        Raises:
            ValueError: The folder is damaged, or its vectors have another length than the pipeline's; nothing changes.
            Exception: Raised by ``embed``, which embeds a passage if neither a name of the model nor an index tells the
                length.
            RuntimeError: The pipeline has documents already.
        """
        async with self._ingesting:
            if len(self):
                raise RuntimeError(f"the pipeline has {len(self)} passages already; restore before the first ingestion")
            found = await asyncio.to_thread(files.kept, Path(folder), self._settings())
            if found is None:
                return False
            content, vectors = found
            if vectors is not None and self.cache is not None:
                await self._check_length(vectors.dim, content.passages[0].described, folder)
            if self._retrieval.vectors is None:
                self._retrieval.vectors = vectors
                rows = None
            else:
                rows = None if vectors is None else vectors.rows([each.id for each in content.passages])
            await self._retrieval.upsert(content.passages, rows)
            self._library.restore(content.passages, content.digests)
            return True

    async def _check_length(self, kept: int, text: str, folder: str | PathLike[str]) -> None:
        """Refuse vectors of a folder that are of another length than those of the pipeline."""
        assert self.cache is not None
        index = self._retrieval.vectors
        if index is not None:
            length = index.dim
        elif self.cache.model:  # its name is that of the folder
            return
        else:
            length = (await _rows(self.cache, [text], self._prefixes[1])).shape[1]
        if length != kept:
            raise ValueError(
                f"{folder} has vectors of length {kept}, and those of the pipeline have {length}: another model made"
                " them; remove the folder, and ingest the documents again"
            )

    def _settings(self) -> dict[str, str]:
        chunking, cache = self._library.chunking, self.cache
        return files.settings_of(
            model="" if cache is None else cache.model,
            revision="" if cache is None else cache.revision,
            vectors=cache is not None,
            prefix=self._prefixes[1],
            chunking=(chunking.by, chunking.size, chunking.overlap),
        )

    @property
    def index(self) -> VectorIndex | None:
        """The index of vectors; None as long as there are none."""
        return self._retrieval.vectors

    @property
    def sources(self) -> list[str]:
        """The documents."""
        return list(self._library.sources)

    def __len__(self) -> int:
        """Number of passages."""
        return len(self._library.passages)

    def __repr__(self) -> str:
        return f"<RagPipeline of {len(self)} passages of {len(self.sources)} documents>"

    # -- questions -----------------------------------------------------------------------------------------------------

    async def query(self, query: str | RagQuery | Sequence[Message], **options: Any) -> RagAnswer:
        """The answer to a question.

        Args:
            query: A text, a ``RagPipeline.Query``, or a list of messages whose last one is the question.
            options: ``top_k``, ``where``, ``min_score``, ``history`` and ``timeout`` of a ``RagPipeline.Query``.

        Raises:
            DeadlineExceeded: There was no answer in time.
            QueueFull: Too many queries wait for a stage.
            Exception: Raised by a stage whose ``on_failure`` is ``"fail"``.
        """
        stream = self.stream(query, **options)
        async for _ in stream.pieces:
            pass
        return stream.answer

    def stream(self, query: str | RagQuery | Sequence[Message], **options: Any) -> RagStream:
        """The answer piece by piece: ``async for piece in stream``, then ``stream.answer``.

        ``stream.citations`` is there from the first piece on. Leaving the loop ends the generator; a stream that has a
        name is closed by ``async with contextlib.aclosing(stream)``.

        Args:
            query, options: See :meth:`query`.

        Raises:
            Exception: As :meth:`query`, from the iteration.
        """
        if not self._open:
            raise RuntimeError("the pipeline is not open; use it in `async with cb.RagPipeline(…) as pipeline`")
        stream = RagStream()
        stream.pieces = self._pieces(RagRun(as_query(query, options)), stream)
        return stream

    async def _pieces(self, run: RagRun, stream: RagStream) -> AsyncGenerator[str, None]:
        query = run.query
        seconds = self._timeout if query.timeout is None else min(self._timeout, query.timeout)
        end, deadline = time.monotonic() + seconds, Deadline("the query", seconds)
        try:
            with deadline:
                citations = stream.citations = await self._found(run)
            begun, pieces = time.perf_counter(), list[str]()
            if self._generate is not None and citations:
                messages = self._context.messages(query, citations)
                try:
                    source = self._generate(messages, deadline, end - time.monotonic())
                    try:
                        async for piece in source:
                            pieces.append(piece)
                            yield piece
                    finally:
                        await source.aclose()
                except Exception as e:  # of the user's generator
                    if self._generate.options.on_failure == "fail":
                        raise
                    left_out(run, "generate", e)
                finally:
                    run.spent("generate", begun)
            if pieces:
                text = "".join(pieces)
                citations = [_cited(each) if f"[{each.number}]" in text else each for each in citations]
            else:
                with deadline:
                    text, citations = await self._extracted(run, citations)
                run.spent("generate", begun)
                yield text
        finally:
            deadline.close()
        stream.citations = citations
        stream.finish(RagAnswer(text, citations, run.skipped, run.timings, run.cached, not pieces))

    async def _found(self, run: RagRun) -> list[Citation]:
        """The context of a query."""
        query, vector = run.query, None
        if self.cache is not None:
            begun = time.perf_counter()
            vector = self.cache.peek(query.text, prefix=self._prefixes[0])
            if vector is None:
                vector = await self._embed(query.text, run, None)
            else:
                run.cached = True
                run.spent("embed", begun)
        begun = time.perf_counter()
        ranked = await self._retrieval(query, vector, self._library.passages, run)
        run.timings["retrieve"] = time.perf_counter() - begun
        if self._rerank is not None and ranked:
            ranked = await self._rerank(query, ranked, run)
        begun = time.perf_counter()
        citations = self._context.assemble(ranked, query.top_k)
        run.spent("assemble", begun)
        return citations

    async def _extracted(self, run: RagRun, citations: list[Citation]) -> tuple[str, list[Citation]]:
        """An answer of the passages' own sentences."""
        found, cosines = sentences_of(citations), None
        if self.cache is not None and found and "embed" not in run.skipped:
            try:
                asked = self.cache.peek(run.query.text, prefix=self._prefixes[0])
                if asked is None:
                    (asked,) = await _rows(self.cache, [run.query.text], self._prefixes[0])
                rows = await _rows(self.cache, [each.text for each in found], self._prefixes[1])
            except Exception as e:  # of the user's function: words alone decide
                if self._embed.options.on_failure == "fail":
                    raise
                left_out(run, "embed", e)
            else:
                sizes = np.linalg.norm(rows, axis=1) * np.linalg.norm(asked)
                cosines = rows @ asked / np.maximum(sizes, 1e-12)
        return extracted(run.query.text, citations, found, cosines)

    async def _vectors(self, texts: list[str]) -> list[Any]:
        assert self.cache is not None
        return list(await self.cache.get_many(texts, prefix=self._prefixes[0]))

    # -- life ----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._open:
            raise RuntimeError("the pipeline is open already")
        self._open = True
        for stage in self._stages():
            await stage.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        for stage in self._stages():
            await stage.stop()
        for called in (self._rerank, self._generate):
            if called is not None:
                called.close()

    def _stages(self) -> list[Stage[Any, Any]]:
        rerank = [] if self._rerank is None else [self._rerank.stage]
        return [self._embed, self._retrieval.stage, *rerank]


def _checked(stages: Mapping[str, RagStage]) -> dict[str, RagStage]:
    for name, options in stages.items():
        if name not in STAGES or not isinstance(options, RagStage):
            raise ValueError(f"stages has {name!r}: {options!r}; give a RagStage for {', '.join(STAGES)}")
    return {name: stages.get(name, RagStage()) for name in STAGES}


async def _rows(cache: EmbeddingCache, texts: list[str], prefix: str) -> Any:
    """The vectors of passages or sentences. If their context is lost, they are computed once more."""
    try:
        return await cache.get_many(texts, prefix=prefix)
    except ContextLost:
        return await cache.get_many(texts, prefix=prefix)


def _cited(citation: Citation) -> Citation:
    return Citation(citation.number, citation.passage, citation.score, cited=True)
