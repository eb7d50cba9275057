"""``taken``: a request's item in memory that its caller does not write: buffers are copied when they are given.

A server holds an item until its batch has run. A caller that uses its buffer again meanwhile, as loops over a camera or
a socket do, would get the answer for other data.
"""

import array
import collections
import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

from callboard.core.ref import GpuRef
from callboard.device.protocol.arena import is_leased

__all__ = ["taken"]

Rule = Callable[[Any], Any]

FIXED = frozenset({int, float, complex, bool, str, bytes, type(None), GpuRef})
"""Types of values that no caller writes, or whose memory belongs to a device."""


def taken(item: Any) -> Any:
    """The item, with copies in place of what its caller may write.

    Copied are NumPy arrays, tensors of torch, ``bytearray``, ``memoryview`` and ``array.array``, and lists, dicts, sets
    and deques; inside of these, and inside of tuples, Structs, dataclasses and models of pydantic, at any depth. A
    record that has something of it, or that is not frozen, is itself copied. Taken as they are: values that cannot
    change, arrays that are read-only and own their memory, or have that of ``bytes``; arrays of ``dev.host_empty`` and
    of pinned pools, which are lent; arrays on devices that are no tensors; and all objects of other classes,
    or of classes that refuse to be copied.

    Raises:
        TypeError: It contains itself, or is nested too deeply.
    """
    if type(item) in FIXED:
        return item
    try:
        return _taken(item)
    except RecursionError:
        raise TypeError(
            f"the item ({type(item).__qualname__}) contains itself, or is nested too deeply to be copied"
        ) from None


def _taken(value: Any) -> Any:
    kind: Any = type(value)
    rule = _rule(kind)
    return value if rule is None else rule(value)


@functools.lru_cache(maxsize=4096)
def _rule(kind: type) -> Rule | None:
    """How values of a class are copied; None: they are taken as they are."""
    if kind in FIXED:
        return None
    if issubclass(kind, np.generic):
        return _copied if issubclass(kind, np.void) else None  # a record, which is a view of its array
    if kind in _RULES:
        return _RULES[kind]
    for base, rule in _DERIVED.items():
        if issubclass(kind, base):
            return rule
    if issubclass(kind, tuple):
        named = callable(getattr(kind, "_make", None))
        return functools.partial(_row, functools.partial(tuple.__new__, kind)) if named else None
    if any(base.__name__ == "Tensor" and base.__module__ == "torch" for base in kind.__mro__):
        return _tensor
    if issubclass(kind, msgspec.Struct):
        config = kind.__struct_config__
        return functools.partial(_record, kind.__struct_fields__, config.frozen, msgspec.structs.force_setattr)
    if dataclasses.is_dataclass(kind):
        names = tuple(field.name for field in dataclasses.fields(kind))
        frozen = getattr(kind, "__dataclass_params__").frozen  # noqa: B009 -- not known to type checkers
        return functools.partial(_record, names, frozen, object.__setattr__)
    fields = getattr(kind, "model_fields", None)  # of pydantic
    if isinstance(fields, Mapping) and hasattr(kind, "model_validate_json"):
        return functools.partial(_record, tuple(fields), False, object.__setattr__)
    return None


# -- memory --------------------------------------------------------------------------------------------------------


def _array(value: Any) -> Any:
    if value.dtype.kind == "O":
        own = value.copy("K")
        if not FIXED.issuperset(map(type, own.flat)):
            for at in np.ndindex(own.shape):
                own[at] = _taken(own[at])
        return own
    if value.flags.writeable if value.base is None else not (_is_fixed(value) or is_leased(value)):
        return value.copy("K")
    return value


def _is_fixed(view: Any) -> bool:
    """True for an array that nothing writes: it, and the arrays that it is a view of, are read-only."""
    while isinstance(view, np.ndarray):
        if view.flags.writeable:
            return False
        view = view.base
    return view is None or type(view) is bytes


def _tensor(value: Any) -> Any:
    return value if value.is_meta else value.clone()


def _copied(value: Any) -> Any:
    return value.copy()


def _view(value: memoryview) -> memoryview:
    if value.readonly and type(value.obj) is bytes:
        return value
    if value.format == "B" and value.ndim == 1:
        own = memoryview(bytearray(value))
    else:
        own = np.array(value).data
    return own.toreadonly() if value.readonly else own


# -- containers ----------------------------------------------------------------------------------------------------


def _list(value: list[Any]) -> list[Any]:
    if FIXED.issuperset(map(type, value)):  # nearly all: tokens, numbers, texts
        return value.copy()
    return [_taken(each) for each in value]


def _row(make: Callable[[list[Any]], Any], value: tuple[Any, ...]) -> Any:
    """A tuple, or a named one; itself if nothing in it was copied."""
    if FIXED.issuperset(map(type, value)):
        return value
    own = [_taken(each) for each in value]
    return value if all(map(_same, own, value)) else make(own)


def _same(one: object, other: object) -> bool:
    return one is other


def _dict(value: dict[Any, Any]) -> dict[Any, Any]:
    return {key: _taken(each) for key, each in value.items()}


def _deque(value: Any) -> Any:
    return collections.deque(map(_taken, value), value.maxlen)


def _items(value: Any) -> Any:
    """A container of a class of its own, such as ``defaultdict``: its copy, with copies of its items."""
    made = _copy_of(value)
    if made is value:
        return value
    pairs = enumerate(value) if isinstance(value, list | collections.deque) else value.items()
    for at, given in pairs:
        own = _taken(given)
        if own is not given:
            made[at] = own
    return made


def _record(names: tuple[str, ...], frozen: bool, put: Callable[..., object], value: Any) -> Any:
    """A value with fields; itself if it is frozen and nothing in it was copied."""
    changes: dict[str, Any] = {}
    for name in names:
        given = getattr(value, name, None)
        own = _taken(given)
        if own is not given:
            changes[name] = own
    if frozen and not changes:
        return value
    made = _copy_of(value)
    if made is not value:
        for name, own in changes.items():
            put(made, name, own)
    return made


def _copy_of(value: Any) -> Any:
    """A shallow copy; the value itself if its class refuses, or is a handle, which is its own copy."""
    try:
        return copy.copy(value)
    except Exception:  # of the caller's class
        return value


_RULES: dict[type, Rule] = {
    np.ndarray: _array,
    bytearray: copy.copy,
    memoryview: _view,
    array.array: copy.copy,
    list: _list,
    tuple: functools.partial(_row, tuple),
    dict: _dict,
    set: copy.copy,
    collections.deque: _deque,
}
_DERIVED: dict[type, Rule] = {
    np.ndarray: _array,
    bytearray: copy.copy,
    array.array: copy.copy,
    list: _items,
    dict: _items,
    collections.UserDict: _items,
    set: copy.copy,
    collections.deque: _items,
}
