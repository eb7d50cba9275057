"""How an answer is printed: as text for a terminal or a file, or as JSON."""

import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import callboard as cb

__all__ = ["as_json", "cited", "wrapped"]

WIDTH = 100
BOLD, DIM, END = "\x1b[1m", "\x1b[2m", "\x1b[0m"
MARKS = ("»", "«")


def wrapped(text: str) -> str:
    """An answer in lines of a terminal."""
    return "\n".join(textwrap.fill(line, WIDTH, break_long_words=False) for line in text.split("\n"))


def cited(citations: Sequence[cb.Citation], *, styled: bool, passages: bool) -> Iterator[str]:
    """The lines of the citations.

    Args:
        citations: The citations.
        styled: For a terminal: the best sentences are bold. Otherwise they are between ``»`` and ``«``.
        passages: Also the text of each passage.
    """
    for each in citations:
        heading = f"  {each.passage.heading}" if each.passage.heading else ""
        line = f"[{each.number}] {each.place}"
        yield f"{BOLD}{line}{END}{heading}" if styled else f"{line}{heading}"
        if passages:
            yield textwrap.indent(_marked(each, styled), "    ")
            yield ""


def _marked(citation: cb.Citation, styled: bool) -> str:
    """The passage with its best sentences marked."""
    begin, end = (f"{END}{BOLD}", f"{END}{DIM}") if styled else MARKS
    text, parts, place = citation.passage.text, list[str](), 0
    for first, last in citation.marks:
        parts += [text[place:first], begin, text[first:last], end]
        place = last
    whole = "".join([*parts, text[place:]])
    if not styled:
        return whole
    # A style ends at the end of a line, so that what pages the output can begin anywhere.
    lines, style = list[str](), DIM
    for line in whole.split("\n"):
        lines.append(f"{style}{line}{END}")
        style = BOLD if line.rfind(BOLD) > line.rfind(DIM) or (style == BOLD and DIM not in line) else DIM
    return "\n".join(lines)


def as_json(question: str, answer: cb.RagAnswer) -> str:
    """The answer with its citations and figures."""
    citations: list[dict[str, Any]] = [
        {
            "number": each.number,
            "source": each.passage.source,
            "line": each.passage.line,
            "heading": each.passage.heading,
            "start": each.passage.start,
            "end": each.passage.end,
            "cited": each.cited,
            "text": each.passage.text,
        }
        for each in answer.citations
    ]
    content = {
        "question": question,
        "answer": answer.text,
        "extracted": answer.extracted,
        "citations": citations,
        "skipped": dict(answer.skipped),
        "seconds": dict(answer.timings),
    }
    return json.dumps(content, indent=2, ensure_ascii=False)
