"""The sentences of a text, and its tokens, as spans of offsets."""

import re
from collections.abc import Iterator

__all__ = ["Span", "sentences", "tokens"]

Span = tuple[int, int]

_TOKEN = re.compile(r"\w+|[^\w\s]")
_BLOCK = re.compile(
    r"(?P<fence>^[ \t]*(?P<mark>`{3,}|~{3,})[^\n]*\n(?:.*?\n)?[ \t]*(?P=mark)[`~]*[ \t]*$)"  # a block of code
    r"|(?P<blank>\n[ \t]*(?=\n))"  # the end of a paragraph
    r"|(?P<item>\n(?=[ \t]*(?:[-*+|]|\d+[.)])[ \t]))",  # a list's item, or a table's row
    re.MULTILINE | re.DOTALL,
)
_END = re.compile(r"[.!?…]+[\"')\]*_`]*\s+(?=[\"'(\[*_`]*[^\Wa-z_])|[。！？]+")


def tokens(text: str) -> list[Span]:
    """The words and marks of a text: close to what a model's tokenizer counts, and needs none."""
    return [match.span() for match in _TOKEN.finditer(text)]


def sentences(text: str) -> list[Span]:
    """The sentences, without white space around them; a list's item ends one, and a block of code is one."""
    spans = (
        _stripped(text, *span)
        for start, end, code in _blocks(text)
        for span in ([(start, end)] if code else _split(text, start, end))
    )
    return [span for span in spans if span[0] < span[1]]


def _blocks(text: str) -> Iterator[tuple[int, int, bool]]:
    start = 0
    for mark in _BLOCK.finditer(text):
        yield start, mark.start(), False
        if mark["fence"] is not None:
            yield *mark.span(), True
        start = mark.end()
    yield start, len(text), False


def _split(text: str, start: int, end: int) -> Iterator[Span]:
    for mark in _END.finditer(text, start, end):
        yield start, mark.end()
        start = mark.end()
    yield start, end


def _stripped(text: str, start: int, end: int) -> Span:
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())
