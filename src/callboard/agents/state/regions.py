"""Regions of a state: all of it, a slice of the first axis, or a name."""

from typing import Any

__all__ = ["Region", "overlaps", "region_of"]

Region = tuple[int, int] | str | None
"""Start and stop of a slice, the key of a dict, or None for all."""


def region_of(given: Any, length: int | None) -> Region:
    """A region that a caller gave.

    Args:
        given: None, a slice with step 1, or a text.
        length: Length of the first axis; None if the state is no array.

    Raises:
        TypeError: It is something else.
        ValueError: It is empty, or outside of the state.
    """
    if given is None or isinstance(given, str):
        return given
    if not isinstance(given, slice):
        raise TypeError(f"region is {given!r}; pass a slice of the first axis, a name, or None for all")
    if given.step not in (None, 1):
        raise ValueError(f"region {given} has a step; use one region for each part, or None for all")
    if length is None:
        raise TypeError(f"region is {given}, and the state is no array; use a name, or None for all")
    start, stop, _ = given.indices(length)
    if start >= stop or (given.stop is not None and given.stop > length):
        raise ValueError(f"region {start}:{given.stop} is empty or outside of the first axis, which has {length} rows")
    return start, stop


def overlaps(a: Region, b: Region) -> bool:
    """True if both have an element; a name and a slice do, to be safe."""
    if a is None or b is None:
        return True
    if isinstance(a, str) and isinstance(b, str):
        return a == b
    if isinstance(a, tuple) and isinstance(b, tuple):
        return a[0] < b[1] and b[0] < a[1]
    return True
