"""The digits in the plane of their first two components: in the terminal, and as a picture file (SVG)."""

from typing import Any
from xml.sax.saxutils import escape

import numpy as np

__all__ = ["svg", "terminal"]

# Ten colours that are distinguishable, also with most colour vision deficiencies (Paul Tol's "muted", and black).
COLOURS = (
    *("#cc6677", "#332288", "#ddcc77", "#117733", "#88ccee"),
    *("#882255", "#44aa99", "#999933", "#aa4499", "#000000"),
)
# The same in the 256 colours of a terminal, readable on a dark and on a light ground.
ANSI = (168, 62, 178, 29, 74, 125, 37, 100, 133, 244)

Plane = np.ndarray[Any, np.dtype[np.float64]]
Labels = np.ndarray[Any, np.dtype[np.uint8]]


def _cells(values: "np.ndarray[Any, Any]", cells: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
    low, high = float(values.min()), float(values.max())
    return ((values - low) / ((high - low) or 1.0) * (cells - 1)).round().astype(np.int64)


def terminal(plane: Plane, labels: Labels, columns: int, rows: int, colour: bool) -> str:
    """A picture in text: in each cell the digit that most of its samples are.

    Args:
        plane: ``[n, 2]``; the first component runs to the right, the second up.
        labels: ``[n]``, 0 to 9.
        columns, rows: Size of the picture without its frame.
        colour: Colour the digits, by ANSI escapes.
    """
    counts = np.zeros((rows, columns, 10), np.int64)
    np.add.at(counts, (rows - 1 - _cells(plane[:, 1], rows), _cells(plane[:, 0], columns), labels), 1)
    most = counts.argmax(axis=2)
    lines = ["┌" + "─" * columns + "┐"]
    for y in range(rows):
        marks = []
        for x in range(columns):
            digit = int(most[y, x])
            if not counts[y, x, digit]:
                marks.append(" ")
            else:
                marks.append(f"\x1b[38;5;{ANSI[digit]}m{digit}\x1b[0m" if colour else str(digit))
        lines.append("│" + "".join(marks) + "│")
    lines.append("└" + "─" * columns + "┘")
    return "\n".join(lines)


def svg(plane: Plane, labels: Labels, explained: Plane, title: str) -> str:
    """The same as an SVG document: every sample is drawn as its digit."""
    width, height, margin = 900, 720, 50
    low, high = plane.min(axis=0), plane.max(axis=0)
    scale = np.array([width - 2 * margin, height - 2 * margin]) / np.where(high > low, high - low, 1.0)
    at = (plane - low) * scale + margin
    middle, left = width / 2, height / 2
    right = f"first component, {explained[0]:.1%} of the variance"
    up = f"second component, {explained[1]:.1%} of the variance"
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" text-anchor="middle">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{middle}" y="28" font-size="18">{escape(title)}</text>',
        f'<text x="{middle}" y="{height - 14}" font-size="14">{right}</text>',
        f'<text x="18" y="{left}" font-size="14" transform="rotate(-90 18 {left})">{up}</text>',
    ]
    for digit in range(10):
        marks = "".join(f'<text x="{x:.1f}" y="{height - y:.1f}">{digit}</text>' for x, y in at[labels == digit])
        parts.append(f'<g font-size="11" fill="{COLOURS[digit]}">{marks}</g>')
    return "\n".join([*parts, "</svg>", ""])
