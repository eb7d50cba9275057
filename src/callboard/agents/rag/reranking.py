"""Reranking: the order of passages by a model that reads them together with the question."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from callboard.actors.errors import returned
from callboard.agents.rag.answer import RagQuery, RagRun
from callboard.agents.rag.passages.documents import Passage
from callboard.agents.rag.stages import RagStage, Stage
from callboard.patterns.requests.calling import UserCall

__all__ = ["Rerank", "Reranking"]

Rerank = Callable[[list[tuple[str, str]]], Any]
"""Gets (question, passage) pairs; returns, or is awaited for, a score for each: ``CrossEncoder.predict`` is one."""


class _Pairs(NamedTuple):
    question: str
    texts: list[str]


class Reranking:
    """Orders passages by the scores of one call for the pairs of all queries in the stage.

    Args:
        rerank: The function.
        options: Settings of the stage.
    """

    def __init__(self, rerank: Rerank, options: RagStage) -> None:
        self._call = UserCall(rerank, "auto", 1)
        self.stage: Stage[_Pairs, list[float] | None] = Stage("rerank", self._scores, options)

    async def __call__(
        self, query: RagQuery, ranked: list[tuple[Passage, float]], run: RagRun
    ) -> list[tuple[Passage, float]]:
        """The passages by their scores; as they were, if the stage is left out."""
        scores = await self.stage(_Pairs(query.text, [passage.described for passage, _ in ranked]), run, None)
        if scores is None:
            return ranked
        order = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)  # stable: ties as they were ranked
        return [(ranked[place][0], scores[place]) for place in order]

    async def _scores(self, items: list[_Pairs]) -> list[list[float]]:
        pairs = [(each.question, text) for each in items for text in each.texts]
        result = await self._call(pairs)
        scores = np.asarray(result, np.float64)
        flat: list[float] = scores.ravel().tolist()
        if scores.shape not in ((len(pairs),), (len(pairs), 1)) or not all(map(math.isfinite, flat)):
            raise returned("rerank", result, f"a finite score for each of {len(pairs)} pairs")
        if len(items) == 1:
            return [flat]
        left = iter(flat)
        return [[next(left) for _ in each.texts] for each in items]

    def close(self) -> None:
        """Call it no more."""
        self._call.close()
