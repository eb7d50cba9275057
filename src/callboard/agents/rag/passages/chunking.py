"""``Chunking``: how a document is cut into passages."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, get_args

from callboard.agents.checks import positive
from callboard.agents.rag.passages.documents import Document, Passage, passage_id
from callboard.agents.rag.passages.sections import kind_of, sections
from callboard.agents.rag.passages.sentences import Span, sentences, tokens

__all__ = ["Chunking", "count_tokens"]

Units = Literal["headings", "sentences", "tokens"]


def count_tokens(text: str) -> int:
    """The words and marks of a text."""
    return len(tokens(text))


@dataclass(frozen=True)
class Chunking:
    """How documents are cut into passages. A passage is a part of its text, with offsets: nothing is rewritten.

    Attributes:
        by: ``"headings"``: whole sentences of one section, the sections of Markdown, reStructuredText and Python by the
            suffix of the source. ``"sentences"``: whole sentences, whatever the headings. ``"tokens"``: any tokens.
        size: Tokens of a passage at most. A longer sentence is cut.
        overlap: Tokens at the end of a passage that the next one repeats, at most.
        count: Tokens of a text; by default its words and marks. A model's own tokenizer makes passages as long as the
            model reads.

    Raises:
        ValueError: A setting is out of its range.
    """

    by: Units = "headings"
    size: int = 160
    overlap: int = 24
    count: Callable[[str], int] = count_tokens

    def __post_init__(self) -> None:
        if self.by not in get_args(Units):
            raise ValueError(f"by is {self.by!r}; it must be 'headings', 'sentences' or 'tokens'")
        positive("size", self.size)
        if not 0 <= self.overlap < self.size:
            raise ValueError(f"overlap is {self.overlap}; it must be at least 0, and less than size, {self.size}")

    def passages(self, document: Document) -> list[Passage]:
        """The passages of a document, in their order."""
        text, found = document.text, list[Passage]()
        lines = list(accumulate(len(line) + 1 for line in text.split("\n")))
        occurrences: Counter[tuple[str, str]] = Counter()
        kind = kind_of(document.source) if self.by == "headings" else "plain"
        for section in sections(text, kind):
            for first, last in self._packed(text, section.start, section.end):
                part = text[first:last]
                occurrence = occurrences[section.heading, part]
                occurrences[section.heading, part] += 1
                found.append(
                    Passage(
                        passage_id(document.source, section.heading, part, occurrence),
                        *(document.source, part, first, last),
                        line=bisect_right(lines, first) + 1,
                        heading=section.heading,
                        metadata=document.metadata,
                    )
                )
        return found

    def _packed(self, text: str, start: int, end: int) -> Iterator[Span]:
        """As many units as a passage has room for, from the first that the last one did not hold."""
        units = list(self._units(text[start:end]))
        first = done = 0
        while done < len(units):
            last, total = first, 0
            while last < len(units) and (last == first or total + units[last][2] <= self.size):
                total += units[last][2]
                last += 1
            if last <= done:  # the repeated units leave no room for the next one
                first += 1
                continue
            yield start + units[first][0], start + units[last - 1][1]
            done = first = last
            repeated = 0
            while first > 0 and repeated + units[first - 1][2] <= self.overlap and done < len(units):
                first -= 1
                repeated += units[first][2]

    def _units(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Start, end and tokens of what is not cut."""
        if self.by == "tokens":
            yield from self._tokens(text, 0, len(text))
            return
        for start, end in sentences(text):
            count = self.count(text[start:end])
            if count <= self.size:
                yield start, end, count
            else:
                yield from self._lines(text, start, end)

    def _lines(self, text: str, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Lines, such as those of code; a longer one is cut into its tokens."""
        for line in re.finditer(r"\S(?:[^\n]*\S)?", text[start:end]):
            first, last = start + line.start(), start + line.end()
            count = self.count(line[0])
            if count <= self.size:
                yield first, last, count
            else:
                yield from self._tokens(text, first, last)

    def _tokens(self, text: str, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        for first, last in tokens(text[start:end]):
            part = text[start + first : start + last]
            yield start + first, start + last, 1 if self.count is count_tokens else self.count(part)
