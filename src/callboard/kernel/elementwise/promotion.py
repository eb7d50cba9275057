"""In which dtype numbers of different dtypes meet.

Within a kind the rules are those of the Python array API standard 2025.12, "Type promotion rules". Where the standard
leaves the result open (an integer with a float, ``u64`` with a signed integer) it is NumPy's: the smallest dtype
that holds all values of both, ``f64`` if none does. ``bf16`` follows the same rule.
Python's numbers are *weak*: they take the dtype of the array beside them if its kind can hold them.
"""

import functools
from typing import Literal

from callboard.core.dtype import DTYPES, DType, dtypes_of

__all__ = ["ELEMENTS", "WEAK_DEFAULTS", "Weak", "complex_of", "floating", "join", "join_weak", "range_of"]

ELEMENTS = dtypes_of("bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 c64 c128")
"""The dtypes that operands may have."""

Weak = Literal["bool", "int", "float", "complex"]
"""The kind of a Python number."""
WEAK_KINDS: tuple[Weak, ...] = ("bool", "int", "float", "complex")
WEAK_DEFAULTS = {"bool": DTYPES["bool"], "int": DTYPES["i64"], "float": DTYPES["f64"], "complex": DTYPES["c128"]}
"""Dtypes of Python numbers when no array determines another."""

_SIGNIFICANT = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
"""Bits of a significand, the hidden one included."""
_WIDER = {("bf16", "f16"): "f32", ("bf16", "f32"): "f32", ("bf16", "f64"): "f64"}


def digits(dtype: DType) -> int:
    """Binary digits of the largest value of an integer type."""
    return dtype.itemsize * 8 - (dtype.kind == "int")


def floating(dtype: DType) -> DType:
    """The floating dtype in which NumPy evaluates ``sqrt`` of this one: the smallest of its width, at least 16 bits."""
    if dtype.kind in ("float", "complex"):
        return dtype
    return DTYPES[{1: "f16", 2: "f32"}.get(dtype.itemsize, "f64")]


def complex_of(dtype: DType) -> DType:
    """The complex type whose halves hold values of this type."""
    if dtype.is_complex:
        return dtype
    return DTYPES["c64" if dtype.name in ("f16", "bf16", "f32", "bool", "i8", "u8", "i16", "u16") else "c128"]


@functools.cache
def join(a: DType, b: DType) -> DType:
    """The dtype that elements of two arrays promote to."""
    if a is b or b.kind == "bool":
        return a
    if a.kind == "bool":
        return b
    if a.is_complex or b.is_complex:
        x, y = complex_of(a), complex_of(b)
        return x if x.itemsize >= y.itemsize else y
    if a.is_integer and b.is_integer:
        return _integers(a, b)
    if a.is_float and b.is_float:
        low, high = sorted((a, b), key=lambda d: (d.itemsize, d.name == "f16"))
        return DTYPES[_WIDER.get((low.name, high.name), high.name)]
    whole, real = (a, b) if a.is_integer else (b, a)
    if digits(whole) <= _SIGNIFICANT[real.name]:
        return real
    return DTYPES["f32"] if digits(whole) <= _SIGNIFICANT["f32"] and real.itemsize <= 4 else DTYPES["f64"]


def _integers(a: DType, b: DType) -> DType:
    if a.kind == b.kind:
        return a if a.itemsize >= b.itemsize else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.itemsize > unsigned.itemsize:
        return signed
    return DTYPES[{1: "i16", 2: "i32", 4: "i64"}.get(unsigned.itemsize, "f64")]


def join_weak(dtype: DType, weak: Weak) -> DType:
    """The dtype that elements of an array and a Python number promote to."""
    if weak == "bool":
        return dtype
    if weak == "int":
        return DTYPES["i64"] if dtype.kind == "bool" else dtype
    if weak == "float":
        return dtype if dtype.kind in ("float", "complex") else DTYPES["f64"]
    return complex_of(dtype) if dtype.is_float else dtype if dtype.is_complex else DTYPES["c128"]


def range_of(dtype: DType) -> range:
    """The values of an integer type."""
    if dtype.kind == "uint":
        return range(1 << dtype.itemsize * 8)
    half = 1 << dtype.itemsize * 8 - 1
    return range(-half, half)
