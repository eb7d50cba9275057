"""``RagContext``: which passages a generator reads, within a budget of tokens, and what it is told."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, get_args

from callboard.agents.checks import positive
from callboard.agents.rag.answer import Citation, RagQuery
from callboard.agents.rag.passages.chunking import count_tokens
from callboard.agents.rag.passages.documents import Passage
from callboard.agents.rag.passages.sentences import sentences

__all__ = ["RagContext"]

Order = Literal["score", "source", "edges"]
KEPT = 1 << 12
"""Passages whose tokens and words are remembered."""
INSTRUCTION = (
    "Answer the question from the numbered passages only. Put the number of each passage that you use in brackets "
    "behind the statement, such as [1]. If they do not answer it, say so."
)


@dataclass(frozen=True)
class RagContext:
    """How the context of an answer is assembled.

    Attributes:
        budget: Tokens of all passages at most, with their headings. A passage that does not fit is left out in favour
            of a shorter one; the first is cut at a sentence instead.
        order: ``"score"``: the best first. ``"source"``: passages of a document together, as they are in it.
            ``"edges"``: the best at the beginning and at the end, since models overlook what is in the middle.
        instruction: Of the system's message.
        count: Tokens of a text; by default its words and marks.
    """

    budget: int = 2048
    order: Order = "score"
    instruction: str = INSTRUCTION
    count: Callable[[str], int] = count_tokens

    def __post_init__(self) -> None:
        positive("budget", self.budget)
        if self.order not in get_args(Order):
            raise ValueError(f"order is {self.order!r}; it must be 'score', 'source' or 'edges'")

    def assemble(self, ranked: Sequence[tuple[Passage, float]], most: int) -> list[Citation]:
        """The passages that are read, of those that were found, best first: without duplicates, numbered in order."""
        chosen: list[tuple[Passage, float]] = []
        of_source: dict[str, list[Passage]] = {}
        said, left = "", self.budget
        for found, score in ranked:
            if len(chosen) == most:
                break
            words, cost = _measured(self.count, found.heading, found.text)
            if words in said:
                continue
            passage: Passage | None = found
            if others := of_source.get(found.source):
                passage = _without_overlap(found, others)
                if passage is None:
                    continue
                _, cost = _measured(self.count, passage.heading, passage.text)
            if cost > left and not chosen:
                passage = self._cut(found)
                cost = left
            if passage is not None and cost <= left:
                chosen.append((passage, score))
                of_source.setdefault(passage.source, []).append(passage)
                said = f"{said}\0{words}"
                left -= cost
        return [Citation(number, *each) for number, each in enumerate(self._ordered(chosen), 1)]

    def messages(self, query: RagQuery, citations: Sequence[Citation]) -> list[dict[str, Any]]:
        """What the generator gets: the instruction with the passages, the earlier messages, the question."""
        parts = [self.instruction]
        for each in citations:
            heading = f" ({each.passage.heading})" if each.passage.heading else ""
            parts.append(f"[{each.number}] {each.place}{heading}\n{each.passage.text}")
        system = {"role": "system", "content": "\n\n".join(parts)}
        return [system, *map(dict, query.history), {"role": "user", "content": query.text}]

    def _cut(self, passage: Passage) -> Passage | None:
        """The first sentences of a passage that is larger than the whole budget; None if not even one fits."""
        end = 0
        for _, last in sentences(passage.text):
            if self.count(f"{passage.heading}\n{passage.text[:last]}") > self.budget:
                break
            end = last
        return replace(passage, text=passage.text[:end], end=passage.start + end) if end else None

    def _ordered(self, chosen: list[tuple[Passage, float]]) -> list[tuple[Passage, float]]:
        if self.order == "edges":
            return chosen[::2] + chosen[1::2][::-1]
        if self.order == "source":
            best = {passage.source: place for place, (passage, _) in reversed(list(enumerate(chosen)))}
            return sorted(chosen, key=lambda each: (best[each[0].source], each[0].start))
        return chosen


@lru_cache(KEPT)
def _measured(count: Callable[[str], int], heading: str, text: str) -> tuple[str, int]:
    """A text with single spaces, in lower case: equal ones say the same; and its tokens, with the heading."""
    return " ".join(text.casefold().split()), count(f"{heading}\n{text}" if heading else text)


def _without_overlap(passage: Passage, others: Sequence[Passage]) -> Passage | None:
    """The passage without what others of its document have of it; None if they have most of it."""
    for other in others:
        if other.end <= passage.start or passage.end <= other.start:
            continue
        start = other.end if other.start <= passage.start else passage.start
        end = passage.end if other.start <= passage.start else other.start
        if 2 * (end - start) < passage.end - passage.start:
            return None
        text = passage.text[start - passage.start : end - passage.start]
        line = passage.line + passage.text.count("\n", 0, start - passage.start)
        passage = replace(passage, text=text, start=start, end=end, line=line)
    return passage
