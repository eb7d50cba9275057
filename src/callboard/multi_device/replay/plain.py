"""Arguments and results of device ops as plain data, and their comparison.

Numbers, texts, lists and dicts are themselves. An array is the hash of its elements, with dtype and shape; an array of
the device is a text that names the op that made it. So two runs on different devices have equal descriptions.
"""

import dataclasses
import enum
import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from callboard.core.dtype import as_dtype
from callboard.core.ref import GpuRef
from callboard.multi_device.replay.codec import contents_of, dtype_named, dtype_text, name_of

__all__ = ["TOLERANCES", "Comparison", "Difference", "checked_tolerances", "plain", "shown"]

TOLERANCES: dict[str, float] = {
    **dict.fromkeys(("f64", "c128"), 1e-9),
    **dict.fromkeys(("f32", "c64"), 1e-4),
    "f16": 1e-2,
    "bf16": 5e-2,
    **dict.fromkeys(("f8_e4m3", "f8_e5m2", "f4_e2m1"), 0.25),
}
"""Largest difference of two arrays of a dtype, relative to the largest element of the recorded one; of others 0."""

NUMBER = "f32"
"""Dtype whose tolerance numbers have: those that are computed from results that were read."""
ARRAY = "array"
ERROR = "error"
DEPTH = 32

Array = np.ndarray[Any, Any]


def checked_tolerances(given: Mapping[str, float]) -> dict[str, float]:
    """Tolerances by the short names of dtypes.

    Raises:
        ValueError: A tolerance is negative or no number.
        TypeError: No such dtype.
    """
    value: Any  # whatever a caller passed
    for dtype, value in given.items():
        if not (isinstance(value, int | float) and value >= 0):
            raise ValueError(f"tolerances: {dtype} is {value!r}; pass a number from 0")
    return {as_dtype(dtype).name: float(value) for dtype, value in given.items()}


def plain(
    value: Any, ref: Callable[[GpuRef[Any]], str], array: Callable[[Array, str], object], above: tuple[int, ...] = ()
) -> Any:
    """A value as plain data.

    Args:
        value: Any value; of an object that is no data, the name of its class remains.
        ref: Names an array of the device.
        array: Receives each host array, with the hash of its elements.
        above: Identities of the values that hold it; one of them in itself is the name of its class.
    """
    if value is None or type(value) in (bool, float):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return float(value)
    if len(above) > DEPTH or id(value) in above:
        return name_of(type(value))
    inside = (*above, id(value))
    if isinstance(value, enum.Enum):
        return plain(value.value, ref, array, inside)
    if isinstance(value, int):
        return int(value) if -(1 << 63) <= value < 1 << 64 else str(value)
    if isinstance(value, GpuRef):
        return ref(value)
    if isinstance(value, np.generic):
        return plain(value.item(), ref, array, inside) if not isinstance(value.item(), np.generic) else str(value)
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), ref, array, inside) if value.dtype.hasobject else _mark(value, array)
    if isinstance(value, bytes | bytearray | memoryview):
        return _mark(np.frombuffer(bytes(value), np.uint8), array)  # a view may have gaps
    if isinstance(value, complex):
        return [value.real, value.imag]
    if isinstance(value, BaseException):
        return {ERROR: name_of(type(value)), "text": _said(value)}
    if isinstance(value, Mapping):
        return {_said(key): plain(item, ref, array, inside) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(item, ref, array, inside) for item in value), key=repr)
    if isinstance(value, list | tuple):
        return [plain(item, ref, array, inside) for item in value]
    fields: tuple[str, ...] = getattr(value, "__struct_fields__", ())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = tuple(field.name for field in dataclasses.fields(value))
    parts = {name: plain(getattr(value, name), ref, array, inside) for name in fields}
    return {"class": type(value).__qualname__, **parts}


def _text(value: str) -> str:
    """The text; what UTF-8 does not have, such as the undecodable bytes of a file's name, as escapes."""
    return value.encode("utf-8", "backslashreplace").decode()


def _said(value: object) -> str:
    try:
        return _text(str(value))
    except Exception:  # of a user's class; what is recorded must not fail the op
        return name_of(type(value))


def _mark(value: Array, array: Callable[[Array, str], object]) -> dict[str, Any]:
    digest = hashlib.blake2b(contents_of(value), digest_size=16).hexdigest()
    array(value, digest)
    return {ARRAY: dtype_text(value.dtype), "shape": list(value.shape), "hash": digest}


def shown(value: Any) -> str:
    """A plain value for people."""
    if _is_array(value):
        return f"{_name(value[ARRAY])}{value['shape']} with hash {value['hash'][:12]}"
    if isinstance(value, dict) and ERROR in value:
        return f"{value[ERROR].rpartition(':')[2]}: {value.get('text', '')}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {shown(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    return value if isinstance(value, str) and value.startswith("op ") else f"{value!r:.200}"


class Difference(NamedTuple):
    """Where two values differ: ``args[0].scale``, and both as texts."""

    at: str
    expected: str
    got: str


class Comparison:
    """Compares plain values of a recording with those of a replay.

    Args:
        contents: Elements of recorded arrays: dtype and bytes, by hash. Larger arrays have none.
        tolerances: By dtype.
        exact: The same backend computed both: numbers are equal, and so are the hashes of arrays without elements.

    Attributes:
        by_hash: Arrays of which only hash, dtype and shape were compared, as texts.
        unproven: Those whose hashes differ where a tolerance would apply.
    """

    def __init__(self, contents: Mapping[str, tuple[str, bytes]], tolerances: Mapping[str, float], exact: bool) -> None:
        self._contents = contents
        self._tolerances = tolerances
        self._exact = exact
        self.by_hash: list[str] = []
        self.unproven: list[str] = []

    def difference(self, at: str, was: Any, now: Any, live: Mapping[str, Array]) -> Difference | None:
        """The first difference; None if there is none.

        Args:
            at: Name of the value.
            was, now: The recorded value, and that of the replay.
            live: Elements of the arrays of the replay, by hash.
        """
        if _is_array(was) and _is_array(now):
            return self._arrays(at, was, now, live)
        if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
            pairs = [(f"{at}[{n}]", a, b) for n, (a, b) in enumerate(zip(was, now, strict=True))]
        elif isinstance(was, dict) and isinstance(now, dict):
            if ERROR in was and ERROR in now:
                return None if was[ERROR] == now[ERROR] else Difference(at, shown(was), shown(now))
            if was.keys() != now.keys():
                gone = next(iter({**was, **now}.keys() - (was.keys() & now.keys())))
                texts = (shown(side[gone]) if gone in side else "nothing" for side in (was, now))
                return Difference(f"{at}.{gone}" if at else gone, *texts)
            pairs = [(f"{at}.{name}" if at else name, was[name], now[name]) for name in was]
        else:
            return None if self._same(was, now) else Difference(at, shown(was), shown(now))
        return next((found for pair in pairs if (found := self.difference(*pair, live)) is not None), None)

    def _same(self, was: Any, now: Any) -> bool:
        if was == now and isinstance(was, bool) == isinstance(now, bool):
            return True
        if not (isinstance(was, float) and isinstance(now, float | int)) or isinstance(now, bool):
            return False
        both_nan = math.isnan(was) and math.isnan(now)
        return both_nan or (not self._exact and abs(was - now) <= self._tolerances.get(NUMBER, 0.0) * abs(was))

    def _arrays(self, at: str, was: Any, now: Any, live: Mapping[str, Array]) -> Difference | None:
        dtype, shape = was[ARRAY], was["shape"]
        known = self._contents.get(was["hash"])
        text = f"{at} {shown(was)}"
        if was == now:
            if known is None and math.prod(shape):
                self.by_hash.append(text)
            return None
        tolerance = self._tolerances.get(_name(dtype), 0.0)
        other = live.get(now["hash"])
        if (now[ARRAY], now["shape"]) != (dtype, shape):
            return Difference(at, shown(was), shown(now))
        if known is None or other is None:
            if tolerance and not self._exact:
                self.unproven.append(f"{text}, now {now['hash'][:12]}")
                return None
            return Difference(at, shown(was), f"{shown(now)} (its elements were not recorded: above max_array_bytes)")
        # Arrays of several dtypes and shapes may have the same bytes, which are recorded once.
        error, largest = _error(np.frombuffer(known[1], dtype_named(dtype)).reshape(shape), other)
        if error <= tolerance * largest:
            return None
        return Difference(
            at,
            shown(was),
            f"{shown(now)}, max error {error:.3g}, largest element {largest:.3g}, tolerance {tolerance:g} of it",
        )


def _error(was: Array, now: Array) -> tuple[float, float]:
    """Largest difference of two arrays, and the largest element of the first; infinite where only one is finite."""
    try:
        wide = np.complex128 if np.iscomplexobj(was) else np.float64
        a, b = was.astype(wide).reshape(-1), now.astype(wide).reshape(-1)
    except (TypeError, ValueError):  # texts, structures: no tolerance applies
        return math.inf, 1.0
    finite = np.isfinite(a)
    strange = ~finite | ~np.isfinite(b)
    if not np.array_equal(a[strange], b[strange], equal_nan=True):
        return math.inf, float(np.max(np.abs(a[finite]), initial=0.0))
    error = float(np.max(np.abs(a[~strange] - b[~strange]), initial=0.0))
    if error == 0.0 and was.dtype.kind in "iu" and not np.array_equal(was, now):
        error = 1.0  # integers beyond 2**53
    return error, float(np.max(np.abs(a[finite]), initial=0.0))


def _is_array(value: Any) -> bool:
    return isinstance(value, dict) and ARRAY in value and "hash" in value


def _name(dtype: str) -> str:
    """The short name of a dtype, ``f32``; its NumPy notation if no device has it."""
    try:
        return as_dtype(dtype_named(dtype)).name
    except (TypeError, ValueError):
        return dtype
