"""Retrieval: the nearest vectors and the best words, as one ranking."""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np

from callboard.agents.index.cpu import CpuVectorIndex
from callboard.agents.index.device import DeviceVectorIndex
from callboard.agents.index.fusion import fuse
from callboard.agents.index.protocol import Neighbours, VectorIndex, Where
from callboard.agents.index.text import TextIndex
from callboard.agents.index.threshold import at_least, checked_score
from callboard.agents.rag.answer import RagQuery, RagRun
from callboard.agents.rag.passages.documents import Passage
from callboard.agents.rag.stages import RagStage, Stage

__all__ = ["Retrieval"]

MANY_TEXTS = 1 << 14
"""Passages whose words are searched on a thread: on the loop they would delay others."""
Ranking = list[tuple[Passage, float]]
_NONE = Neighbours(np.empty(0, object), np.empty(0, np.float32))


class _Search(NamedTuple):
    vector: Any
    k: int
    where: Where | None


class Retrieval:
    """Finds passages in a vector index, in an index of words, or in both.

    Args:
        vectors: The index of vectors; None: it is made when the length of a vector is known.
        words: The index of words; None: there is none.
        options: Settings of the stage.
        candidates: Passages that each index gives.
    """

    def __init__(
        self, vectors: VectorIndex | None, words: TextIndex | None, options: RagStage, candidates: int
    ) -> None:
        self.vectors, self.words = vectors, words
        self._candidates = candidates
        self._writing = False
        """A thread changes the indexes, whose locks the event loop must not wait for."""
        self.stage: Stage[_Search, Neighbours] = Stage("retrieve", self._searched, options, key=_key)

    async def __call__(self, query: RagQuery, vector: Any, passages: Mapping[str, Passage], run: RagRun) -> Ranking:
        """The passages that fit a query, best first.

        Args:
            query: The question.
            vector: Its vector; None: only words are searched.
            passages: By id.
            run: Gets the time, and why vectors were not searched.
        """
        k, least = max(self._candidates, 2 * query.top_k), query.min_score
        rankings: list[list[Any]] = []
        if self.vectors is not None and len(self.vectors):
            if vector is not None:
                least = checked_score(least, self.vectors.metric)
                found = at_least(await self.stage(_Search(vector, k, query.where), run, _NONE), least)
                rankings.append(found.ids.tolist())
            elif least is not None:
                least, run.skipped["min_score"] = None, "the question has no vector to compare"
        if self.words is not None:
            ids = await self._by_words(query, k, least if self.vectors is None else None)
            if least is not None and self.vectors is not None and ids:
                ids = await asyncio.to_thread(self._near, ids, vector, least)
            rankings.append(ids)
        if len(rankings) == 1:  # as fuse() scores it
            best = [(each, 1 / (61 + place)) for place, each in enumerate(rankings[0])]
        else:
            found = fuse(*rankings, k=k)
            best = list(zip(found.ids.tolist(), found.scores.tolist(), strict=True))
        return [(passages[each], score) for each, score in best if each in passages]

    async def _searched(self, items: list[_Search]) -> list[Neighbours]:
        """The nearest vectors of each item; all have the same ``k`` and filter."""
        assert self.vectors is not None
        _, k, where = items[0]
        if len(items) == 1:
            return [await self.vectors.search(items[0].vector, k, where=where)]
        found = await self.vectors.search(np.stack([each.vector for each in items]), k, where=where)
        return [Neighbours(*each) for each in zip(found.ids, found.scores, strict=True)]

    def _near(self, ids: list[Any], vector: Any, least: float) -> list[Any]:
        """Those whose vectors have a score of ``least`` at least."""
        scores = getattr(self.vectors, "scores", None)
        if scores is None:
            raise TypeError(f"min_score needs scores(query, ids) of {self.vectors!r}, or a pipeline with words=False")
        return [each for each, score in zip(ids, scores(vector, ids), strict=True) if score >= least]

    async def _by_words(self, query: RagQuery, k: int, least: float | None) -> list[Any]:
        assert self.words is not None
        if len(self.words) < MANY_TEXTS and not self._writing:
            found = self.words.search(query.text, k, where=query.where, min_score=least)
        else:
            found = await asyncio.to_thread(self.words.search, query.text, k, where=query.where, min_score=least)
        ids: list[Any] = found.ids.tolist()
        return ids

    async def upsert(self, passages: list[Passage], vectors: Any) -> None:
        """Add passages, or replace those of the same ids; our own indexes are written on a thread."""
        ids, metadata = [each.id for each in passages], [each.metadata for each in passages]
        if vectors is not None and ids:
            if self.vectors is None:
                self.vectors = CpuVectorIndex(vectors.shape[1])
            await self._written(self.vectors, lambda index: index.upsert(ids, vectors, metadata))
        if self.words is not None:
            await self._written(self.words, lambda index: index.upsert(ids, [*map(_said, passages)], metadata))

    async def delete(self, ids: list[str]) -> None:
        """Remove passages, as :meth:`upsert` adds them."""
        for index in (self.vectors, self.words):
            if index is not None:
                await self._written(index, lambda index: index.delete(ids))

    async def _written(self, index: Any, write: Callable[[Any], object]) -> None:
        if not isinstance(index, CpuVectorIndex | DeviceVectorIndex | TextIndex):
            write(index)  # which may belong to this thread
            return
        self._writing = True
        try:
            await asyncio.to_thread(write, index)
        finally:
            self._writing = False


def _said(passage: Passage) -> str:
    """The words of a passage; those of its own heading count twice."""
    return f"{passage.heading.rpartition(' > ')[2]}\n{passage.described}"


def _key(item: _Search) -> Hashable:
    where = item.where
    return item.k, repr(where) if isinstance(where, Mapping) else where and id(where)
