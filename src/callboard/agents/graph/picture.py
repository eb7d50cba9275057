"""Graphs as Mermaid text."""

import re
from collections.abc import Iterable, Sequence

__all__ = ["Arrow", "mermaid"]

Arrow = tuple[str, str, str | None]
"""From, to, and a label of an edge that is taken by condition; None for one that is always taken."""


def mermaid(nodes: Sequence[str], arrows: Iterable[Arrow], ends: Sequence[str] = ()) -> str:
    """The text of a flow chart; GitHub, many editors and mermaid.live draw it.

    Args:
        nodes: Names of the nodes.
        arrows: The edges.
        ends: Names that are drawn as ends, not as boxes.
    """
    ids = {name: _id(name, n) for n, name in enumerate([*nodes, *ends])}
    lines = ["flowchart TD"]
    lines += [f'    {ids[name]}(["{_text(name)}"])' for name in ends]
    lines += [f'    {ids[name]}["{_text(name)}"]' for name in nodes]
    for start, end, label in arrows:
        line = "-->" if label is None else f'-. "{_text(label)}" .->' if label else "-.->"
        lines.append(f"    {ids[start]} {line} {ids[end]}")
    return "\n".join(lines) + "\n"


def _id(name: str, number: int) -> str:
    return f"n{number}" if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in ("end", "graph") else f"n_{name}"


def _text(name: str) -> str:
    return name.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
