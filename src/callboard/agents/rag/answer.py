"""``RagQuery`` and ``RagAnswer``: what a pipeline is asked, and what it answers."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from callboard.agents.checks import positive
from callboard.agents.index.filters import checked_where
from callboard.agents.index.protocol import Where
from callboard.agents.index.threshold import checked_score
from callboard.agents.rag.passages.documents import Passage
from callboard.agents.rag.passages.sentences import Span

__all__ = ["Citation", "Message", "RagAnswer", "RagQuery", "RagRun", "as_query"]

Message = Mapping[str, Any]
"""Of a conversation, as OpenAI's API has it: ``{"role": "user", "content": "…"}``."""


class RagQuery(msgspec.Struct, frozen=True):
    """A question to a :class:`RagPipeline`.

    Attributes:
        text: The question.
        top_k: Passages in the context at most.
        where: Metadata that the passages must have; see :meth:`CpuVectorIndex.search`.
        min_score: Least score of a passage by vectors (a cosine), also of those that were found by their words; without
            vectors, that of BM25. It is not compared with reciprocal ranks, nor with a reranker's scores.
        history: Earlier messages, for the generator; retrieval uses ``text`` only.
        timeout: Seconds for the whole answer, if less than the pipeline's.
    """

    text: str
    top_k: int = 5
    where: Where | None = None
    min_score: float | None = None
    history: Sequence[Message] = ()
    timeout: float | None = None

    def __post_init__(self) -> None:
        text: object = self.text
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"the text of a query is {self.text!r}; give a question")
        positive("top_k", self.top_k)
        checked_score(self.min_score)
        if self.where is not None:
            checked_where(self.where)
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"timeout is {self.timeout}; it must be positive, or None for the pipeline's")


class Citation(msgspec.Struct, frozen=True):
    """A passage of the context that an answer was made from.

    Attributes:
        number: From 1; the text refers to it as ``[number]``.
        passage: The passage: source, offsets, line, heading and text.
        score: Of the last ranking: the reranker's, else that of reciprocal ranks.
        cited: The text refers to it.
        marks: Spans of the sentences in ``passage.text`` that answer best; of extracted answers only.
    """

    number: int
    passage: Passage
    score: float
    cited: bool = False
    marks: Sequence[Span] = ()

    @property
    def place(self) -> str:
        """Source and line, as compilers write them: ``docs/guide.md:12``."""
        return f"{self.passage.source}:{self.passage.line}"


class RagAnswer(msgspec.Struct, frozen=True):
    """An answer and where it comes from.

    Attributes:
        text: The answer.
        citations: The passages of its context, in the order of their numbers.
        skipped: Stages that failed, or took too long, and were left out: the reason of each.
        timings: Seconds in each stage.
        embedding_was_cached: The vector of the question was kept from before.
        extracted: The text is sentences of the passages; no generator wrote it.
    """

    text: str
    citations: Sequence[Citation] = ()
    skipped: Mapping[str, str] = msgspec.field(default_factory=dict)
    timings: Mapping[str, float] = msgspec.field(default_factory=dict)
    embedding_was_cached: bool = False
    extracted: bool = False

    @property
    def sources(self) -> list[str]:
        """The documents that are cited, each once."""
        cited = [each for each in self.citations if each.cited] or self.citations
        return list(dict.fromkeys(each.passage.source for each in cited))


def as_query(asked: str | RagQuery | Sequence[Message], options: Mapping[str, Any]) -> RagQuery:
    """A query of a text, or of a conversation whose last message is the question.

    Raises:
        TypeError: It is neither, or options are given beside a query.
        ValueError: The last message is not a text of the user.
    """
    if isinstance(asked, RagQuery):
        if options:
            raise TypeError(f"{', '.join(options)}: give options within the Query, or a text in its place")
        return asked
    if isinstance(asked, str):
        return RagQuery(asked, **options)
    messages: Any = asked
    if not isinstance(messages, list | tuple) or not all(isinstance(each, Mapping) for each in messages):
        raise TypeError(f"a query is {messages!r}; pass a text, a RagPipeline.Query, or a list of messages")
    last = messages[-1] if messages else {}
    if last.get("role") != "user" or not isinstance(last.get("content"), str):
        raise ValueError(f"the last message is {last!r}; it must be a text with the role 'user'")
    return RagQuery(last["content"], history=tuple(messages[:-1]), **options)


class RagRun:
    """A query on its way through the stages."""

    __slots__ = ("cached", "query", "skipped", "timings")

    def __init__(self, query: RagQuery) -> None:
        self.query = query
        self.timings: dict[str, float] = {}
        self.skipped: dict[str, str] = {}
        self.cached = False

    def spent(self, stage: str, begun: float) -> None:
        """Note the seconds of a stage."""
        self.timings[stage] = self.timings.get(stage, 0.0) + time.perf_counter() - begun
