"""Splitting of a batch function's result into rows; copies of one error for many requests."""

import copy
from collections.abc import Mapping, Set
from typing import Any, Protocol, TypeVar

from callboard.patterns.contract.taking import taken
from callboard.patterns.requests.errors import BadBatchResult

__all__ = ["Rows", "are_values", "copies", "rows_of"]

R_co = TypeVar("R_co", covariant=True)


class Rows(Protocol[R_co]):
    """The result of a batch function: a list, a tuple, an array, a ``GpuRef``."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> R_co: ...


def rows_of(result: Any, expected: int) -> list[Any]:
    """One result for each item: of a list or tuple, of the first axis of an array or a ``GpuRef``.

    Raises:
        BadBatchResult: It is not a sequence, or of another length.
    """
    if isinstance(result, list):
        rows = result
    elif isinstance(result, str | bytes | bytearray | Mapping | Set) or not hasattr(type(result), "__getitem__"):
        kind = type(result).__name__
        raise BadBatchResult(f"the batch function returned a {kind}, not {expected} results in order", expected)
    else:
        by_place = getattr(result, "iloc", result)  # pandas' [] looks for a label, which is another row or a column
        try:
            rows = [by_place[index] for index in range(len(result))]
        except TypeError:  # such as an array without axes
            raise BadBatchResult(f"the batch function returned {result!r}, not {expected} results", expected) from None
    if len(rows) != expected:
        raise BadBatchResult(
            f"the batch function returned {len(rows)} results for {expected} items", expected, len(rows)
        )
    return rows if len(set(map(id, rows))) == len(rows) else _apart(rows)


def _apart(rows: list[Any]) -> list[Any]:
    """The same results, of which each array is one request's: its caller may write it."""
    given: set[int] = set()
    found: list[Any] = []
    for row in rows:
        found.append(taken(row) if id(row) in given else row)
        given.add(id(row))
    return found


def are_values(rows: list[Any]) -> bool:
    """True if no result is an error, or an iterator of parts to come."""
    kinds = set(map(type, rows))
    return not any(issubclass(kind, BaseException) or hasattr(kind, "__aiter__") for kind in kinds)


def copies(error: Exception, count: int) -> list[Exception]:
    """The error itself and copies of it: one that is raised in several tasks would mix up their tracebacks."""
    found = [error][:count]
    while len(found) < count:
        try:
            again = copy.copy(error)
        except Exception:  # a class whose constructor takes something else than its args
            again = error
        if type(again) is not type(error):
            again = error
        if again is not error:
            again.__traceback__ = error.__traceback__
            again.__cause__ = error.__cause__
            again.__suppress_context__ = error.__suppress_context__
            if hasattr(error, "__notes__"):
                again.__notes__ = list(error.__notes__)
        found.append(again)
    return found
