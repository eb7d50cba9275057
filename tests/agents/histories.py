"""A checker of histories: is there an order of the operations, within their times, that a plain register allows?"""

from dataclasses import dataclass

__all__ = ["Operation", "linearisable"]


@dataclass(frozen=True)
class Operation:
    """A read of ``value``, a write of it, or a compare-and-swap to it that did (``swapped``) or did not succeed."""

    began: int
    ended: int
    kind: str
    value: int
    expected: int = 0
    swapped: bool = True


def linearisable(history: list[Operation], start: int = 0) -> bool:
    """Wing and Gong's search, with states that were seen remembered."""
    seen: set[tuple[frozenset[int], int]] = set()

    def search(left: frozenset[int], value: int) -> bool:
        if not left:
            return True
        if (left, value) in seen:
            return False
        seen.add((left, value))
        first_end = min(history[n].ended for n in left)
        for n in left:
            operation = history[n]
            if operation.began > first_end:
                continue  # another one had ended before it began
            after = value
            if operation.kind == "read":
                if operation.value != value:
                    continue
            elif operation.kind == "write":
                after = operation.value
            elif operation.swapped != (value == operation.expected):
                continue
            elif operation.swapped:
                after = operation.value
            if search(left - {n}, after):
                return True
        return False

    return search(frozenset(range(len(history))), start)
