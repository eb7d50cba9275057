import numpy as np

from callboard.cli.demo.scatter import svg, terminal

PLANE = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
LABELS = np.array([1, 2, 3, 4, 5, 5], np.uint8)


def test_corners_are_where_they_belong_and_the_most_frequent_digit_wins() -> None:
    lines = terminal(PLANE, LABELS, 5, 3, colour=False).splitlines()
    assert lines == ["┌─────┐", "│3   5│", "│     │", "│1   2│", "└─────┘"]


def test_colour_changes_nothing_but_colour() -> None:
    plain, coloured = (terminal(PLANE, LABELS, 5, 3, colour) for colour in (False, True))
    assert "\x1b[38;5;" in coloured
    without = coloured
    for mark in {part.split("m")[0] for part in coloured.split("\x1b[")[1:]}:
        without = without.replace(f"\x1b[{mark}m", "")
    assert without == plain


def test_a_plane_without_extent_is_drawn() -> None:
    assert "7" in terminal(np.zeros((3, 2)), np.full(3, 7, np.uint8), 5, 3, colour=False)
    assert "nan" not in svg(np.zeros((3, 2)), np.full(3, 7, np.uint8), np.array([0.5, 0.2]), "none")


def test_a_title_cannot_break_the_picture() -> None:
    assert "<title>a &lt; b &amp; c</title>" in svg(PLANE, LABELS, np.array([0.5, 0.2]), "a < b & c")
