"""Data types: names, conversion, and promotion."""

from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from callboard.arrays.fusion import call_of, deferred
from callboard.arrays.handles import Ref, Scalar, cast, check_array, check_device, is_scalar, submit
from callboard.core.dtype import DTYPES, DType, DTypeLike, as_dtype
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.array import Cast
from callboard.kernel.elementwise.promotion import ELEMENTS, WEAK_DEFAULTS, Weak, join, join_weak

__all__ = [
    "DEFAULTS",
    "KINDS",
    "NAMES",
    "Finfo",
    "Iinfo",
    "astype",
    "can_cast",
    "finfo",
    "iinfo",
    "isdtype",
    "result_type",
    "weak_of",
]

NAMES: dict[str, DType] = {
    "bool": DTYPES["bool"],
    **{f"{kind}{bits}": DTYPES[f"{kind[0]}{bits}"] for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    "float32": DTYPES["f32"],
    "float64": DTYPES["f64"],
    "complex64": DTYPES["c64"],
    "complex128": DTYPES["c128"],
}
"""The dtypes of the standard, by their names there."""
BEYOND: dict[str, DType] = {"float16": DTYPES["f16"], "bfloat16": DTYPES["bf16"]}
"""Further dtypes of the namespace."""

_finfo: Any = ml_dtypes.finfo  # without types

DEFAULTS: dict[str, DType] = {
    "real floating": DTYPES["f64"],
    "complex floating": DTYPES["c128"],
    "integral": DTYPES["i64"],
    "indexing": DTYPES["i64"],
}

KINDS: dict[str, Callable[[DType], bool]] = {
    "bool": lambda d: d.kind == "bool",
    "signed integer": lambda d: d.kind == "int",
    "unsigned integer": lambda d: d.kind == "uint",
    "integral": lambda d: d.is_integer,
    "real floating": lambda d: d.is_float,
    "complex floating": lambda d: d.is_complex,
    "numeric": lambda d: d.kind != "bool",
}
"""The kinds that :func:`isdtype` accepts."""


class Finfo(NamedTuple):
    """Limits of a floating type; those of the halves of a complex one. ``eps``, ``max`` … are Python floats."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class Iinfo(NamedTuple):
    """Limits of an integer type."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype(x: Any) -> DType:
    return x.dtype if isinstance(x, GpuRef) else as_dtype(x)


def astype(x: GpuRef[Mode], dtype: DTypeLike, /, *, copy: bool = True, device: str | None = None) -> GpuRef[Mode]:
    """``x`` converted to another dtype; :class:`callboard.kernel.array.Cast` has the rules of the conversion.

    Args:
        x: Any dtype.
        dtype: The dtype of the result.
        copy: Give a copy even if ``x`` has that dtype.
        device: The device of ``x``, or None.

    Raises:
        ShapeError: ``x`` is complex and ``dtype`` is not: take ``xp.real(x)``.
    """
    check_array("astype", "x", x)
    check_device(x.device, device)
    to = as_dtype(dtype)
    if x.dtype is to and not copy:
        return x
    kept = to.kind in KEPT.get(x.dtype.kind, ()) and x.dtype in ELEMENTS and to in ELEMENTS
    later: Any = deferred(call_of(f"{to.name}(x)", ("x",)), (x,)) if kept else None
    converted: GpuRef[Mode] = submit(x, Cast(src=x, dtype=to.name)) if later is None else later
    return converted


NUMBERS = "int", "uint", "float", "complex"
KEPT = {"bool": NUMBERS, "int": NUMBERS, "uint": NUMBERS, "float": NUMBERS[2:], "complex": NUMBERS[3:]}
"""Conversions for which the element-wise functions agree with :class:`Cast`; for narrowing ones the rules differ."""


def can_cast(from_: DTypeLike | Ref, to: DTypeLike, /) -> bool:
    """True if all values of one dtype are values of the other, by the promotion rules: ``result_type`` is ``to``."""
    return join(_dtype(from_), as_dtype(to)) is as_dtype(to)


def finfo(type: DTypeLike | Ref, /) -> Finfo:
    """Limits of a floating or complex type.

    Raises:
        TypeError: It is neither.
    """
    dtype = _dtype(type).real
    if not dtype.is_float:
        raise TypeError(f"xp.finfo: {dtype} is not a floating-point type; use xp.iinfo for integers")
    info = _finfo(dtype.np)
    eps, largest, least, normal = map(float, (info.eps, info.max, info.min, info.smallest_normal))
    return Finfo(dtype.itemsize * 8, eps, largest, least, normal, dtype)


def iinfo(type: DTypeLike | Ref, /) -> Iinfo:
    """Limits of an integer type.

    Raises:
        TypeError: The dtype is not an integer type.
    """
    dtype = _dtype(type)
    if not dtype.is_integer:
        raise TypeError(f"xp.iinfo: {dtype} is not an integer type; use xp.finfo for floats")
    info = np.iinfo(dtype.np)
    return Iinfo(dtype.itemsize * 8, int(info.max), int(info.min), dtype)


def isdtype(dtype: DTypeLike, kind: DTypeLike | str | tuple[DTypeLike | str, ...]) -> bool:
    """True if ``dtype`` is of a kind (:data:`KINDS`), equals a dtype, or matches one of several."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    own = as_dtype(dtype)
    if isinstance(kind, str) and kind in KINDS:
        return KINDS[kind](own)
    return own is as_dtype(kind, "kind")


def result_type(*arrays_and_dtypes: DTypeLike | Ref | Scalar) -> DType:
    """The dtype that these promote to; Python's numbers take that of the arrays where possible.

    Raises:
        TypeError: There are no arguments, or one has no dtype.
    """
    if not arrays_and_dtypes:
        raise TypeError("xp.result_type: pass at least one array or dtype")
    strong = [_dtype(x) for x in arrays_and_dtypes if not is_scalar(x)]
    weak: list[Weak] = [weak_of(x) for x in arrays_and_dtypes if is_scalar(x)]
    if not strong:
        found = [WEAK_DEFAULTS[kind] for kind in weak]
        return max(found, key=list(WEAK_DEFAULTS.values()).index)
    common = strong[0]
    for dtype in strong[1:]:
        common = join(common, dtype)
    for kind in weak:
        common = join_weak(common, kind)
    return common


def weak_of(x: Any) -> Weak:
    """The kind of a number."""
    if isinstance(x, bool | np.bool_):
        return "bool"
    if isinstance(x, int | np.integer):
        return "int"
    return "complex" if isinstance(x, complex | np.complexfloating) else "float"


def together(*arrays: Ref) -> list[Ref]:
    """The arrays, converted to their common dtype."""
    common = result_type(*arrays)
    return [cast(x, common) for x in arrays]
