"""Sums, means and their kind, and running ones."""

import math
from typing import Any, Literal

from callboard.arrays.dtypes import DEFAULTS
from callboard.arrays.elementwise import apply
from callboard.arrays.handles import Ref, axes_of, axis_of, cast, check_array, device_of, submit
from callboard.arrays.manipulation import concat, reshape
from callboard.arrays.reducing import reduced, scanned
from callboard.core.dtype import DTYPES, DType, DTypeLike, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.elementwise.promotion import floating
from callboard.kernel.memory import Copy

__all__ = [
    "all",
    "any",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "max",
    "mean",
    "min",
    "prod",
    "std",
    "sum",
    "units",
    "var",
]

Axis = int | tuple[int, ...] | None


def _total(x: Ref, dtype: DTypeLike | None) -> DType:
    """The dtype of a sum: whole numbers are added up in 64 bits."""
    if dtype is not None:
        return as_dtype(dtype)
    if x.dtype.kind == "uint":
        return DTYPES["u64"]
    return DEFAULTS["integral"] if x.dtype.kind in ("int", "bool") else x.dtype


def sum(
    x: GpuRef[Mode], /, *, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False
) -> GpuRef[Mode]:
    """The sum along some axes, of all elements when ``axis`` is None; 0 of nothing.

    Args:
        x: Any dtype.
        axis: One or several.
        dtype: The dtype of the result. None keeps a float dtype, and gives int64 for signed integers and bools and
            uint64 for unsigned integers.
        keepdims: Keep the axes with the extent 1.
    """
    check_array("sum", "x", x)
    found: GpuRef[Mode] = _added("sum", x, axis, dtype, keepdims)
    return found


def prod(
    x: GpuRef[Mode], /, *, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False
) -> GpuRef[Mode]:
    """The product along some axes, as :func:`sum`; 1 of nothing."""
    check_array("prod", "x", x)
    found: GpuRef[Mode] = _added("prod", x, axis, dtype, keepdims)
    return found


def _added(function: str, x: Ref, axis: Axis, dtype: DTypeLike | None, keepdims: bool) -> Any:
    to = _total(x, dtype)
    if x.dtype.is_complex and not to.is_complex:
        raise TypeError(f"xp.{function}: x is {x.layout!r} and dtype is {to}; take xp.real(x) or xp.imag(x) first")
    return reduced(function, f"{function}(x)", axis, keepdims, to, x=x)


def max(x: GpuRef[Mode], /, *, axis: Axis = None, keepdims: bool = False) -> GpuRef[Mode]:
    """The largest element along some axes; NaN if one is.

    Raises:
        ShapeError: The reduction is over no elements.
    """
    return _extreme("max", x, axis, keepdims)


def min(x: GpuRef[Mode], /, *, axis: Axis = None, keepdims: bool = False) -> GpuRef[Mode]:
    """The smallest element along some axes; NaN if one is.

    Raises:
        ShapeError: The reduction is over no elements.
    """
    return _extreme("min", x, axis, keepdims)


def _extreme(function: Literal["min", "max"], x: Ref, axis: Axis, keepdims: bool) -> Ref:
    check_array(function, "x", x)
    if x.dtype.is_complex:
        raise TypeError(f"xp.{function}: x is {x.layout!r}; complex numbers have no order (take xp.abs, xp.real)")
    return reduced(function, f"{function}(x)", axis, keepdims, x=x)  # type: ignore[no-any-return]


def any(x: GpuRef[Mode], /, *, axis: Axis = None, keepdims: bool = False) -> GpuRef[Mode]:
    """True if any element along the axes is neither 0 nor False; False for an empty array."""
    check_array("any", "x", x)
    return reduced("any", "any(x)", axis, keepdims, x=x)  # type: ignore[no-any-return]


def all(x: GpuRef[Mode], /, *, axis: Axis = None, keepdims: bool = False) -> GpuRef[Mode]:
    """True if all elements along the axes are neither 0 nor False; True for an empty array."""
    check_array("all", "x", x)
    return reduced("all", "all(x)", axis, keepdims, x=x)  # type: ignore[no-any-return]


def count_nonzero(x: GpuRef[Mode], /, *, axis: Axis = None, keepdims: bool = False) -> GpuRef[Mode]:
    """The number of elements along the axes that are neither 0 nor False, int64."""
    check_array("count_nonzero", "x", x)
    return reduced("count_nonzero", "sum(x != 0)", axis, keepdims, DEFAULTS["indexing"], x=x)  # type: ignore[no-any-return]


def mean(x: GpuRef[Mode], /, *, axis: Axis = None, keepdims: bool = False) -> GpuRef[Mode]:
    """The mean along some axes: NaN of nothing; float64 of integers. Halves are added up in float32."""
    check_array("mean", "x", x)
    wide, to = _wide(x)
    return cast(reduced("mean", "mean(x)", axis, keepdims, wide, x=x), to)


def _wide(x: Ref) -> tuple[DType, DType]:
    """The dtypes in which numbers are added up for a mean, and in which the mean is returned."""
    if x.dtype.kind not in ("float", "complex"):
        return DEFAULTS["real floating"], DEFAULTS["real floating"]
    return (DTYPES["f32"] if x.dtype.itemsize < 4 else floating(x.dtype)), x.dtype


def var(x: GpuRef[Mode], /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> GpuRef[Mode]:
    """The variance along some axes: the sum of squares around the mean by their number less ``correction``.

    Computed in two passes, as in NumPy. The variance of complex numbers is real. The result is NaN when the count is
    below ``correction``.
    """
    found: GpuRef[Mode] = _variance("var", x, axis, correction, keepdims, "{} / n")
    return found


def std(x: GpuRef[Mode], /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> GpuRef[Mode]:
    """The standard deviation along some axes: the square root of :func:`var`, also where that leaves the range."""
    found: GpuRef[Mode] = _variance("std", x, axis, correction, keepdims, "sqrt({} / n)")
    return found


def _variance(function: str, x: Ref, axis: Axis, correction: float, keepdims: bool, around: str) -> Any:
    check_array(function, "x", x)
    wide, to = _wide(x)
    middle = reduced(function, "mean(x)", axis, True, wide, x=x)
    left = float(math.prod(x.shape[a] for a in axes_of(function, x, axis)) - correction)
    parts = ("real(x - m)", "imag(x - m)") if wide.is_complex else ("(x - m)",)
    numbers: dict[str, Any] = {"x": x, "m": middle, "n": left if left > 0 else 0.0}
    if function == "var" or not x.size:
        text = around.format(f"sum({' + '.join(f'square({part})' for part in parts)})")
        return cast(reduced(function, text, axis, keepdims, **numbers), to.real)
    unit = units(reduced(function, "max(abs(x - m))", axis, True, x=x, m=middle))
    text = around.format(f"sum({' + '.join(f'square({part} / u)' for part in parts)})")
    numbers = {"x": x, "m": middle, "u": unit, "n": numbers["n"]}  # in the order of the text
    found = reduced(function, text, axis, keepdims, **numbers)
    return cast(apply("s * u", s=found, u=reshape(unit, found.shape)), to.real)


def units(tops: Ref) -> Ref:
    """For each number not below 0 the power of two below it; 1 for those that are 0 or not finite."""
    found: Ref = apply("where((t > 0) & isfinite(t), exp2(floor(log2(t))), 1.0)", t=tops)
    return found


# -- running -----------------------------------------------------------------------------------------------------------


def cumulative_sum(
    x: GpuRef[Mode],
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> GpuRef[Mode]:
    """Running sums along an axis, which may be left out where ``x`` has one.

    Args:
        x: Any dtype.
        axis: The axis.
        dtype: The dtype of the result, as for :func:`sum`.
        include_initial: Begin with 0, before the first element.
    """
    return _cumulative("cumulative_sum", x, axis, dtype, include_initial)


def cumulative_prod(
    x: GpuRef[Mode],
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> GpuRef[Mode]:
    """Running products along an axis, as :func:`cumulative_sum`; of complex numbers in ``log2(n)`` passes."""
    return _cumulative("cumulative_prod", x, axis, dtype, include_initial)


def _cumulative(function: str, x: Ref, axis: int | None, dtype: DTypeLike | None, initial: bool) -> Ref:
    check_array(function, "x", x)
    if axis is None:
        if x.ndim != 1:
            raise ShapeError(f"xp.{function}: x is {x.layout!r}; pass axis=")
        axis = 0
    along, to = axis_of(function, x, axis), _total(x, dtype)
    adds = function == "cumulative_sum"
    if not to.is_complex:
        found = scanned(function, x, along, "sum" if adds else "product", to)
    elif adds:
        wide = cast(x, to)
        real, imag = (
            scanned(function, apply(f"{part}(x)", x=wide), along, "sum", to.real) for part in ("real", "imag")
        )
        found = apply("complex(re, im)", re=real, im=imag)
    else:
        found = _running_products(cast(x, to), along)
    if not initial:
        return found
    first = (*x.shape[:along], 1, *x.shape[along + 1 :])
    return concat([device_of(x).full(first, 0 if adds else 1, dtype=to), found], axis=along)


def _running_products(x: Ref, axis: int) -> Any:
    """Return running products of complex numbers, for which the scans have no operator.

    Each pass doubles the number of factors in each product.
    """
    front = (slice(None),) * axis
    found: Any = submit(x, Copy(src=x))
    reach = 1
    while reach < x.shape[axis]:
        head, ahead, behind = (found[(*front, part)] for part in (slice(reach), slice(reach, None), slice(-reach)))
        found = concat([head, apply("a * b", a=behind, b=ahead)], axis=axis)
        reach *= 2
    return found


def diff(
    x: GpuRef[Mode],
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: GpuRef[Mode] | None = None,
    append: GpuRef[Mode] | None = None,
) -> GpuRef[Mode]:
    """Differences of neighbours along an axis, ``n`` times; of bools whether they differ.

    Args:
        x: Any dtype.
        axis: The axis.
        n: The number of times.
        prepend, append: Arrays that are joined to ``x`` before and after its elements, before the differences are
            taken.
    """
    check_array("diff", "x", x)
    along = axis_of("diff", x, axis)
    if n < 0:
        raise ShapeError(f"xp.diff: n is {n}; it must be >= 0")
    if n == 0:
        return x
    parts = [part for part in (prepend, x, append) if part is not None]
    found: Any = concat(parts, axis=along) if len(parts) > 1 else x
    front = (slice(None),) * along
    for _ in range(n):
        text = "b != a" if found.dtype.kind == "bool" else "b - a"
        found = apply(text, b=found[(*front, slice(1, None))], a=found[(*front, slice(None, -1))])
    return found  # type: ignore[no-any-return]
