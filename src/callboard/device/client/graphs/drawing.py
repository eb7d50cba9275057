"""Recordings drawn: in the DOT language of Graphviz, and as a picture."""

from collections.abc import Sequence
from html import escape

from callboard.device.client.graphs.script import RecordingNode

__all__ = ["dot", "svg"]

WIDE, HIGH = 7.3, 16
"""Width and height of a character of the picture, in points."""
PAD, GAP, BETWEEN = 8, 26, 30
"""Inside a box, beside boxes, and between rows."""


def dot(nodes: Sequence[RecordingNode], title: str) -> str:
    """The nodes as a graph in the DOT language of Graphviz; blocks are clusters."""
    lines = [f"digraph {_quoted(title)} {{", "  node [shape=box, fontname=monospace];"]
    open_: tuple[str, ...] = ()
    clusters = 0
    for node in nodes:
        same = next((i for i, (a, b) in enumerate(zip(open_, node.within, strict=False)) if a != b), None)
        same = min(len(open_), len(node.within)) if same is None else same
        lines += [f"{'  ' * depth}}}" for depth in range(len(open_), same, -1)]
        for depth in range(same, len(node.within)):
            label = _quoted(node.within[depth])
            lines.append(f"{'  ' * (depth + 1)}subgraph cluster_{clusters} {{ label={label}; fontname=monospace;")
            clusters += 1
        open_ = node.within
        label = _quoted("\n".join(_text(node)))
        lines.append(f"{'  ' * (len(open_) + 1)}n{node.at} [label={label}, tooltip={_quoted(node.where)}];")
    lines += [f"{'  ' * depth}}}" for depth in range(len(open_), 0, -1)]
    lines += [f"  n{earlier} -> n{node.at};" for node in nodes for earlier in node.after]
    return "\n".join([*lines, "}", ""])


def svg(nodes: Sequence[RecordingNode], title: str) -> str:
    """The nodes as an SVG document: nodes in a row may run at the same time, an arrow is a dependency.

    A row contains the nodes whose longest chain of predecessors has the same length. A block's nodes follow all nodes
    before the block; their first line names the block.
    """
    if not nodes:
        return '<svg xmlns="http://www.w3.org/2000/svg" width="0" height="0"></svg>\n'
    texts = [[*(f"[{block}]" for block in node.within[-1:]), *_text(node)] for node in nodes]
    rows: list[int] = []
    for node in nodes:
        row = max((rows[earlier] + 1 for earlier in node.after), default=0)
        if node.at and node.within != nodes[node.at - 1].within:
            row = max(rows) + 1
        elif node.at and node.within:
            row = max(row, next(rows[other.at] for other in nodes if other.within == node.within))
        rows.append(row)
    widths = [max(map(len, text)) * WIDE + 2 * PAD for text in texts]
    heights = [len(text) * HIGH + 2 * PAD for text in texts]
    members = [[node.at for node in nodes if rows[node.at] == row] for row in range(max(rows) + 1)]
    total = max(sum(widths[at] + GAP for at in row) for row in members) + GAP
    corners: dict[int, tuple[float, float]] = {}
    y = float(GAP)
    for row_members in members:
        x = (total - sum(widths[at] + GAP for at in row_members) + GAP) / 2
        for at in row_members:
            corners[at] = x, y
            x += widths[at] + GAP
        y += max((heights[at] for at in row_members), default=0) + BETWEEN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{total:.0f}" height="{y:.0f}" font-family="monospace"'
    lines = [f'{head} font-size="12">', f"<title>{escape(title)}</title>"]
    lines.append('<defs><marker id="end" markerWidth="8" markerHeight="8" refX="7" refY="3" orient="auto">')
    lines.append('<path d="M0,0 L7,3 L0,6 z"/></marker></defs>')
    for node in nodes:
        to_x, to_y = corners[node.at][0] + widths[node.at] / 2, corners[node.at][1]
        for earlier in node.after:
            from_x, from_y = corners[earlier][0] + widths[earlier] / 2, corners[earlier][1] + heights[earlier]
            ends = f'x1="{from_x:.0f}" y1="{from_y:.0f}" x2="{to_x:.0f}" y2="{to_y:.0f}"'
            lines.append(f'<line {ends} stroke="black" marker-end="url(#end)"/>')
    for node, text, width, height in zip(nodes, texts, widths, heights, strict=True):
        x, y = corners[node.at]
        fill = "#fff4d6" if node.within else "white"
        box = f'x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" fill="{fill}" stroke="black"'
        lines.append(f"<g><title>{escape(node.where)}</title><rect {box}/>")
        for at, line in enumerate(text):
            lines.append(f'<text x="{x + PAD:.0f}" y="{y + PAD + HIGH * (at + 0.75):.0f}">{escape(line)}</text>')
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _text(node: RecordingNode) -> list[str]:
    return [f"{node.at}: {node.op}", *(f"-> {written}" for written in node.writes)]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
