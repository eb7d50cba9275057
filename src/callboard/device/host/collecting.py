"""How often Python looks for cycles of garbage in a context host: rarely for ops, as usual beside a user's code."""

import gc

__all__ = ["as_usual", "rarely"]

COLLECT_AFTER = 10_000
"""Containers allocated between two collections. With Python's default of 700, ops in flight would survive collections,
and the whole heap would be searched every few thousand ops."""

_usual: list[tuple[int, int, int]] = []


def rarely() -> None:
    """Collect less often; for a process that only executes ops."""
    _usual.append(gc.get_threshold())
    gc.set_threshold(COLLECT_AFTER, *_usual[-1][1:])


def as_usual() -> None:
    """Undo :func:`rarely`, if it was called: a user's cycles of garbage may hold device arrays."""
    while _usual:
        gc.set_threshold(*_usual.pop())
