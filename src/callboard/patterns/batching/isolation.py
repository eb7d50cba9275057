"""Which items of a batch that has failed run again together, so that only those fail that cannot be done. No I/O."""

from collections.abc import Callable, Generator, Sequence
from typing import Literal, TypeVar

__all__ = ["PROBES", "OnError", "Rerun", "reruns"]

OnError = Literal["isolate", "bisect", "retry_single", "fail"]

PROBES = 4
"""Items that fail alone, one after another, before the function is taken to fail for all."""

E = TypeVar("E")

Rerun = Generator[list[E], bool | None, None]
"""Yields items to run together, and is sent whether that succeeded; None if all of them have left. A single item that
fails has its own error; what is left at the end has that of the batch."""


def reruns(on_error: OnError, items: Sequence[E]) -> Rerun[E]:
    """The runs after a batch of several items has failed."""
    rules: dict[str, Callable[[list[E]], Rerun[E]]] = {
        "isolate": _isolate,
        "bisect": _bisect,
        "retry_single": _singles,
        "fail": _nothing,
    }
    return rules[on_error](list(items))


def _isolate(items: list[E]) -> Rerun[E]:
    """Single items first, which cost least, until one succeeds: if none does, the function fails whatever it gets.

    So a function that always fails costs four calls of one item more, and one bad item among n at most 2 log2 n calls.
    """
    count = min(PROBES, len(items))
    probes = [items[_place(n, len(items))] for n in range(count)]
    rest, failed = items, 0
    for probe in probes:
        rest = [item for item in rest if item is not probe]
        succeeded = yield [probe]
        if succeeded:
            break
        failed += succeeded is False
    if failed < count:
        yield from _narrow(rest, bad=not failed)


def _place(n: int, items: int) -> int:
    """The place of the n-th probe: spread, with other remainders by 2 and 4, since bad items may come at intervals."""
    return min(n * items // PROBES // PROBES * PROBES + n, items - 1)


def _narrow(items: list[E], *, bad: bool) -> Generator[list[E], bool | None, bool]:
    """Run items, and halves of those that fail; True if all succeeded at once. ``bad``: together they would fail."""
    if not items:
        return True
    if len(items) == 1 or not bad:
        succeeded = yield items
        if succeeded is not False or len(items) == 1:
            return succeeded is not False
    middle = len(items) // 2
    first = yield from _narrow(items[:middle], bad=False)
    yield from _narrow(items[middle:], bad=first)
    return False


def _bisect(items: list[E]) -> Rerun[E]:
    middle = (len(items) + 1) // 2
    for half in (items[:middle], items[middle:]):
        if (yield half) is False and len(half) > 1:
            yield from _bisect(half)


def _singles(items: list[E]) -> Rerun[E]:
    for item in items:
        yield [item]


def _nothing(items: list[E]) -> Rerun[E]:
    yield from ()
