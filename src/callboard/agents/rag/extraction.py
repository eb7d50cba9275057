"""Answers without a generator: the sentences of the passages that are nearest to the question."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from callboard.agents.index.text import words
from callboard.agents.rag.answer import Citation
from callboard.agents.rag.passages.sentences import Span, sentences
from callboard.agents.rag.passages.terms import terms

__all__ = ["NOTHING", "Sentence", "candidates", "extracted"]

NOTHING = "The documents have no passage about this."
MOST = 4
"""Sentences of an answer at most."""
LEAST_WORDS = 4
SHARED = 0.5
"""How much shared words count, beside the cosine of vectors."""
CLOSE = 0.6
"""Part of the best sentence's score that the others must have."""
_PROSE = re.compile(r"[^\W\d_]")


@dataclass(frozen=True)
class Sentence:
    """A sentence of a cited passage."""

    citation: int
    span: Span
    text: str


def candidates(citations: Sequence[Citation]) -> list[Sentence]:
    """The sentences that an answer may be made of: prose, no code, tables or headings."""
    found: list[Sentence] = []
    for place, each in enumerate(citations):
        text = each.passage.text
        for start, end in sentences(text):
            part = text[start:end]
            prose = (
                len(_PROSE.findall(part)) >= 0.6 * len(part)
                and part[:1] not in "|#>"
                and part[-1:] != ":"
                and part[:3] not in ("```", "~~~")
            )
            if prose and len(words(part)) >= LEAST_WORDS:
                found.append(Sentence(place, (start, end), " ".join(part.split())))
    return found


def extracted(
    question: str, citations: Sequence[Citation], found: Sequence[Sentence], cosines: NDArray[Any] | None
) -> tuple[str, list[Citation]]:
    """The answer, each sentence with the number of its passage, and the citations with their marks.

    Args:
        question: The question.
        citations: The context.
        found: From :func:`candidates`.
        cosines: Of each sentence's vector and the question's; None: words decide alone.
    """
    if not citations:
        return NOTHING, []
    scores = SHARED * _shared(question, found)
    if cosines is not None and len(found):
        scores = scores + cosines
    scores = scores + 0.02 * np.array([len(citations) - each.citation for each in found])  # ties: the better passage
    best = np.argsort(-scores, kind="stable")
    chosen: list[int] = []
    for number in best:
        if len(chosen) == MOST or scores[number] < CLOSE * scores[best[0]]:
            break
        if all(found[number].text != found[other].text for other in chosen):
            chosen.append(int(number))
    if not chosen:  # code and tables only
        first = citations[0]
        return f"{first.passage.text} [{first.number}]", [replace(first, cited=True), *citations[1:]]
    chosen = _with_next(sorted(chosen), found)
    text, ends = list[str](), {*chosen}
    for number in chosen:
        each = found[number]
        goes_on = number + 1 in ends and found[number + 1].citation == each.citation
        text.append(each.text if goes_on else f"{each.text} [{citations[each.citation].number}]")
    marked: list[Citation] = []
    for place, citation in enumerate(citations):
        marks = [found[number].span for number in chosen if found[number].citation == place]
        marked.append(replace(citation, cited=bool(marks), marks=marks))
    return " ".join(text), marked


def _with_next(chosen: list[int], found: Sequence[Sentence]) -> list[int]:
    """Also the sentence behind each, which mostly explains it, as far as there is room."""
    numbers = set(chosen)
    for number in chosen:
        behind = number + 1
        if len(numbers) < MOST and behind < len(found) and found[behind].citation == found[number].citation:
            numbers.add(behind)
    return sorted(numbers)


def _shared(question: str, found: Sequence[Sentence]) -> NDArray[np.float64]:
    """Part of the question's words that each sentence has, rare ones counting more: 0 to 1."""
    asked = set(terms(question))
    had = [set(terms(each.text)) for each in found]
    often = Counter(word for each in had for word in each & asked)
    weights = {word: math.log(1 + (len(had) + 1) / (often[word] + 0.5)) for word in asked}
    total = sum(weights.values()) or 1.0
    return np.array([sum(weights[word] for word in each & asked) / total for each in had])
