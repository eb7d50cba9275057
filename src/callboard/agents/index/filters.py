"""Filters: ``where=`` of a search, evaluated for all rows at once, and the metadata that it compares."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.agents.index.protocol import Metadata, Value, Where

__all__ = ["Columns", "as_metadata", "checked_where", "metadata_of"]

Mask = NDArray[np.bool_]
Compare = Callable[[Any, Any], Any]
_ORDERS: dict[str, Compare] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_OF_FIELDS = ("$eq", "$ne", "$in", "$nin", *_ORDERS, "$contains", "$not")
_OF_FILTERS = ("$and", "$or", "$not")
_LISTS = (list, tuple, set, frozenset, np.ndarray)


class Columns:
    """The metadata of rows, in an inverted index, and in arrays of the keys whose order was asked for.

    A writer may append while searches read: a search names the number of rows that it knows.

    Args:
        rows: The metadata of each row, which :meth:`extend` extends.
    """

    def __init__(self, rows: list[Metadata | None]) -> None:
        self.rows: list[Metadata | None] = []
        self._postings: dict[str, dict[Value, list[int]]] = {}
        self._ordered: dict[tuple[str, bool], _Ordered] = {}
        self.extend(0, rows)

    def extend(self, start: int, rows: list[Metadata | None]) -> None:
        """Append the metadata of the rows from ``start`` on."""
        del self.rows[start:]
        self.rows.extend(rows)
        for number, described in enumerate(rows, start):
            for key, value in (described or {}).items():
                column = self._postings.setdefault(key, {})
                parts: Any = set(value) if isinstance(value, list) else (value,)
                for each in parts:
                    column.setdefault(each, []).append(number)

    def passing(self, where: Where, alive: Mask) -> Mask:
        """Those of the rows that are alive and pass a filter.

        Args:
            where: The filter.
            alive: Mask of the first rows.

        Raises:
            TypeError: It is neither a mapping nor callable, or compares with what no metadata can be.
            ValueError: It has an unknown operator, or one without operands.
        """
        if isinstance(where, Mapping):
            return alive & self._all_of(where, len(alive))
        if not callable(where):
            raise TypeError(f"where is {where!r}; pass a dict of metadata that must be equal, or a function of it")
        mask = alive.copy()
        for number in np.flatnonzero(mask):
            mask[number] = bool(where(self.rows[number] or {}))
        return mask

    def _all_of(self, where: Mapping[Any, Any], count: int) -> Mask:
        mask = np.ones(count, np.bool_)
        for key, wanted in where.items():
            if key == "$not":
                mask &= ~self._all_of(_filters(key, [wanted])[0], count)
            elif key in _OF_FILTERS:
                join = np.logical_and if key == "$and" else np.logical_or
                mask &= join.reduce([self._all_of(each, count) for each in _filters(key, wanted)])
            elif not isinstance(key, str) or key.startswith("$"):
                raise ValueError(f"where has {key!r}; use a key of the metadata, or {', '.join(_OF_FILTERS)}")
            else:
                mask &= self._field(key, wanted, count)
        return mask

    def _field(self, key: str, wanted: Any, count: int) -> Mask:
        if not isinstance(wanted, Mapping):
            return self._compared(key, "$in" if isinstance(wanted, _LISTS) else "$eq", wanted, count)
        if not wanted:
            raise ValueError(f"where[{key!r}] is empty; use {', '.join(_OF_FIELDS)}")
        found: Mask = np.logical_and.reduce([self._compared(key, *each, count) for each in wanted.items()])
        return found

    def _compared(self, key: str, name: str, operand: Any, count: int) -> Mask:
        if name == "$not":
            return ~self._field(key, operand, count)
        if name in ("$in", "$nin"):
            if not isinstance(operand, _LISTS):
                raise TypeError(f"where[{key!r}] has {name}: {operand!r}; pass a list of values")
            found = self._equal(key, [_value(key, each) for each in operand], count)
            return found if name == "$in" else ~found
        if name in ("$eq", "$contains", "$ne"):
            found = self._equal(key, [_value(key, operand)], count)
            return ~found if name == "$ne" else found
        if name in _ORDERS:
            return self._in_order(key, name, _value(key, operand), count)
        raise ValueError(f"where[{key!r}] has {name!r}; the operators are {', '.join(_OF_FIELDS)}")

    def _equal(self, key: str, values: Sequence[Value], count: int) -> Mask:
        mask, column = np.zeros(count, np.bool_), self._postings.get(key, {})
        for each in dict.fromkeys(values):
            numbers = np.array(column.get(each, ()), np.intp)
            mask[numbers[numbers < count]] = True  # a writer may have appended
        return mask

    def _in_order(self, key: str, name: str, operand: Value, count: int) -> Mask:
        if operand is None or isinstance(operand, bool):
            raise TypeError(f"where[{key!r}] has {name}: {operand!r}; compare the order of numbers, or of str")
        text = isinstance(operand, str)
        ordered = self._ordered.setdefault((key, text), _Ordered(key, str if text else (int, float)))
        numbers, values = ordered.up_to(count, self.rows)
        mask = np.zeros(count, np.bool_)
        passed = numbers[np.asarray(_ORDERS[name](values, operand), np.bool_)]
        mask[passed[passed < count]] = True
        return mask


class _Ordered:
    """The numbers or the texts of a key, with their rows; those of later rows are added when a search needs them."""

    def __init__(self, key: str, kind: Any) -> None:
        self._key, self._kind = key, kind
        empty: NDArray[Any] = np.empty(0, object if kind is str else np.int64)
        self._known = 0, np.empty(0, np.intp), empty  # set at once: searches share it

    def up_to(self, count: int, rows: list[Metadata | None]) -> tuple[NDArray[np.intp], NDArray[Any]]:
        known, numbers, values = self._known
        if known < count:
            found: list[tuple[int, Any]] = []
            for number in range(known, count):
                value = (rows[number] or {}).get(self._key)
                parts = value if isinstance(value, list) else (value,)
                found += [(number, p) for p in parts if isinstance(p, self._kind) and not isinstance(p, bool)]
            numbers = np.concatenate([numbers, np.array([number for number, _ in found], np.intp)])
            if found:
                later = np.array([each for _, each in found], object if self._kind is str else None)
                values = np.concatenate([values, later])
            self._known = count, numbers, values
        return numbers, values


def _filters(name: str, given: Any) -> list[Mapping[str, Any]]:
    if not isinstance(given, list | tuple) or not all(isinstance(each, Mapping) for each in given):
        raise TypeError(f"where has {name}: {given!r}; pass " + ("a dict" if name == "$not" else "a list of dicts"))
    if not given:
        raise ValueError(f"where has {name} of no filters; give one at least")
    return list(given)


def _value(key: str, value: Any) -> Value:
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, Value):
        raise TypeError(f"where[{key!r}] is {value!r}; compare with str, number, bool or None, or a list of them")
    return value


def checked_where(where: Where) -> None:
    """Refuse what :meth:`Columns.passing` refuses, before there are rows."""
    Columns([]).passing(where, np.empty(0, np.bool_))


def as_metadata(name: str, given: Any) -> dict[str, Value | list[Value]]:
    """Metadata as an index keeps it: scalars of NumPy are numbers and bools of Python, and sequences are lists.

    Args:
        name: What it is of, for errors.
        given: A mapping.

    Raises:
        TypeError: It is none, a key is no str, or a value is something else.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} is {given!r}; pass a dict, such as {{'lang': 'en'}}")
    found: dict[str, Value | list[Value]] = {}
    for key, value in given.items():
        if isinstance(value, np.ndarray | np.generic):
            value = value.tolist()
        many = isinstance(value, list | tuple)
        parts = [each.item() if isinstance(each, np.generic) else each for each in (value if many else [value])]
        if not isinstance(key, str) or not all(isinstance(each, Value) for each in parts):
            raise TypeError(
                f"{name} has {key!r}: {value!r}; keys are str; values str, numbers, bools, None or lists of them"
            )
        found[key] = parts if many else parts[0]
    return found


def metadata_of(given: Sequence[Metadata | None] | None, count: int) -> list[Metadata | None]:
    """The metadata of so many ids, see :func:`as_metadata`.

    Raises:
        TypeError: It is no list of dicts and None.
        ValueError: It is that of another number of ids.
    """
    if given is None:
        return [None] * count
    if isinstance(given, str | Mapping):
        raise TypeError(f"metadata is {given!r}; give a list with a dict or None for each id")
    if len(given) != count:
        raise ValueError(f"metadata has {len(given)} items for {count} ids; give a dict or None for each")
    return [None if each is None else as_metadata(f"metadata[{number}]", each) for number, each in enumerate(given)]
