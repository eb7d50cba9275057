"""The terminal on the start page, an SVG that is light or dark as the reader's system is."""

import re
from collections.abc import Sequence
from xml.sax.saxutils import escape

__all__ = ["drawn", "survival"]

WIDTH, LINE, LEFT, TOP = 860, 24, 20, 58
STYLE = """\
.back { fill: #f6f8fa; stroke: #d0d7de } text { font: 14px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328 }
.command { font-weight: bold } .bad { fill: #c4302b } .good { fill: #1a7f37 }
@media (prefers-color-scheme: dark) {
  .back { fill: #161b22; stroke: #30363d } text { fill: #e6edf3 } .bad { fill: #ff7b72 } .good { fill: #56d364 }
}"""


def drawn(command: str, printed: Sequence[tuple[str, str]]) -> str:
    """A terminal with a command and its output.

    Args:
        command: Shown behind a prompt.
        printed: Lines with the class of each: `""`, `"good"` or `"bad"`.
    """
    height = TOP + LINE * (len(printed) + 1)
    lines = [("command", f"$ {command}"), *((kind, text) for text, kind in printed)]
    texts = "\n".join(
        f'<text class="{kind}" x="{LEFT}" y="{TOP + LINE * row}" xml:space="preserve">{escape(text)}</text>'
        for row, (kind, text) in enumerate(lines)
    )
    dots = "".join(
        f'<circle cx="{24 + 20 * n}" cy="22" r="6" fill="{colour}"/>'
        for n, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">\n'
        f"<style>\n{STYLE}\n</style>\n"
        f'<rect class="back" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>{dots}\n{texts}\n</svg>\n'
    )


def survival(page: str) -> str:
    """The terminal of the start page: what the page says that its program prints; a test runs the program."""
    found = re.search(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError("docs/index.md shows no output")
    lines = found[1].splitlines()
    kinds = ["bad" if "context host ended" in line else "good" for line in lines]
    return drawn("python survive.py", list(zip(lines, kinds, strict=True)))
