"""The sections of a text: from one heading to the next, in Markdown, reStructuredText and Python."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import Literal

__all__ = ["Kind", "Section", "kind_of", "sections"]

Kind = Literal["markdown", "rst", "python", "plain"]
SUFFIXES: dict[str, Kind] = {".md": "markdown", ".markdown": "markdown", ".rst": "rst", ".py": "python"}
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")
_HASHES = re.compile(r"(#{1,6})\s+(.+?)\s*#*\s*$")
_RULE = re.compile(r"([=\-~^\"'`#*+.:_])\1{2,}\s*$")
_DEFINED = re.compile(r"(\s*)(?:async\s+)?(?:def|class)\s+(\w+)")


@dataclass(frozen=True)
class Section:
    """``text[start:end]`` below its heading.

    Attributes:
        start, end: Offsets; the line of the heading itself is not in them.
        heading: The headings above, outermost first, joined by `` > ``.
    """

    start: int
    end: int
    heading: str


def kind_of(source: str) -> Kind:
    """The kind of text that a file of this name has."""
    return SUFFIXES.get(PurePath(source).suffix.lower(), "plain")


def sections(text: str, kind: Kind) -> list[Section]:
    """The sections of a text that have content, in their order."""
    marks = {"markdown": _markdown, "rst": _rst, "python": _python, "plain": _none}[kind](text)
    found: list[Section] = []
    above: list[tuple[int, str]] = []
    start = 0
    for begin, end, level, title in [*marks, (len(text), len(text), 0, "")]:
        if text[start:begin].strip():
            found.append(Section(start, begin, " > ".join(name for _, name in above)))
        above = [*(each for each in above if each[0] < level), (level, title)]
        start = end
    return found


def _markdown(text: str) -> Iterator[tuple[int, int, int, str]]:
    fence = ""
    for line in _LINE.finditer(text):
        if mark := _FENCE.match(line[0]):
            if not fence:
                fence = mark[1]
            elif mark[1][0] == fence[0] and len(mark[1]) >= len(fence):
                fence = ""
        elif not fence and (heading := _HASHES.match(line[0])):
            yield line.start(), line.end(), len(heading[1]), _plain(heading[2])


def _rst(text: str) -> Iterator[tuple[int, int, int, str]]:
    lines = list(_LINE.finditer(text))
    levels: dict[str, int] = {}  # in the order in which the document uses them
    for title, rule in pairwise(lines):
        words, mark = title[0].strip(), _RULE.match(rule[0])
        is_title = words and not title[0][0].isspace() and not _RULE.match(title[0])
        if mark and is_title and len(rule[0].strip()) >= len(words):
            yield title.start(), rule.end(), levels.setdefault(mark[1], len(levels) + 1), _plain(words)


def _python(text: str) -> Iterator[tuple[int, int, int, str]]:
    for line in _LINE.finditer(text):
        if defined := _DEFINED.match(line[0]):
            yield line.start(), line.start(), len(defined[1]) + 1, defined[2]  # the line belongs to the section


def _none(text: str) -> Iterator[tuple[int, int, int, str]]:
    return iter(())


def _plain(title: str) -> str:
    """A title without the marks of links and code."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").replace("*", "").strip()
