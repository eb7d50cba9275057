"""Norms and other numbers of matrices: determinants, ranks."""

import math
from typing import Any, Literal, NamedTuple

from callboard.arrays import statistics
from callboard.arrays.elementwise import apply
from callboard.arrays.handles import Ref, cast, check_array, device_of, submit
from callboard.arrays.linalg.decompositions import svdvals
from callboard.arrays.linalg.householder import triangle_of
from callboard.arrays.linalg.matrices import cutoff, each_matrix, floating, matrices
from callboard.arrays.linalg.results import SlogdetResult
from callboard.arrays.linalg.scaling import levelled, powers
from callboard.arrays.manipulation import reshape
from callboard.arrays.reducing import reduced
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel import solver

__all__ = ["det", "matrix_norm", "matrix_rank", "slogdet", "vector_norm"]


def vector_norm(
    x: GpuRef[Mode],
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    ord: float = 2,
) -> GpuRef[Mode]:
    """The norm along some axes: ``sum(abs(x) ** ord) ** (1 / ord)``.

    With inf and -inf the largest and the smallest magnitude, with 0 how many elements are not 0.
    """
    check_array("linalg.vector_norm", "x", x)
    a = cast(x, floating(x.dtype))
    size = apply("abs(x)", x=a)
    if ord == math.inf:
        return statistics.max(size, axis=axis, keepdims=keepdims)
    if ord == -math.inf:
        return statistics.min(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return cast(statistics.count_nonzero(size, axis=axis, keepdims=keepdims), size.dtype)
    if ord == 1:
        return statistics.sum(size, axis=axis, keepdims=keepdims)
    if not size.size:
        return statistics.sum(size, axis=axis, keepdims=keepdims)
    # Of numbers near 1, no power leaves the range.
    unit = statistics.units((statistics.max if ord > 0 else statistics.min)(size, axis=axis, keepdims=True))
    text = "sqrt(sum(square(x / u)))" if ord == 2 else "pow(sum(pow(x / u, p)), q)"
    powers = {} if ord == 2 else {"p": float(ord), "q": 1.0 / ord}
    found = reduced("linalg.vector_norm", text, axis, keepdims, x=size, u=unit, **powers)
    return apply("n * u", n=found, u=reshape(unit, found.shape))  # type: ignore[no-any-return]


def matrix_norm(
    x: GpuRef[Mode], /, *, keepdims: bool = False, ord: float | Literal["fro", "nuc"] | None = "fro"
) -> GpuRef[Mode]:
    """The norm of matrices.

    ``"fro"`` is Frobenius', ``"nuc"`` the sum of the singular values, 2 and -2 the largest and the smallest of them, 1
    and -1 the largest and smallest sum of magnitudes of a column, inf and -inf of a row. The largest of none is 0, and
    there is no smallest one.
    """
    a = matrices("matrix_norm", x)
    if 0 in a.shape[-2:] and ord in ("nuc", 1, 2, math.inf):
        return device_of(a).zeros((*a.shape[:-2], 1, 1) if keepdims else a.shape[:-2], dtype=a.dtype.real)  # type: ignore[no-any-return]
    if ord in ("fro", None):
        return vector_norm(a, axis=(-2, -1), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        values = svdvals(a)
        reduce: Any = {"nuc": statistics.sum, 2: statistics.max, -2: statistics.min}[ord]
        found: Any = reduce(values, axis=-1)
    elif ord in (1, -1, math.inf, -math.inf):
        along = -2 if ord in (1, -1) else -1
        sums = statistics.sum(apply("abs(x)", x=a), axis=along)
        found = (statistics.max if float(ord) > 0 else statistics.min)(sums, axis=-1)
    else:
        raise ShapeError(f"xp.linalg.matrix_norm: ord is {ord!r}; 'fro', 'nuc', 1, -1, 2, -2, inf or -inf")
    return found.reshape((*x.shape[:-2], 1, 1)) if keepdims else found  # type: ignore[no-any-return]


def matrix_rank(x: GpuRef[Mode], /, *, rtol: float | GpuRef[Mode] | None = None) -> GpuRef[Mode]:
    """The number of singular values larger than ``rtol`` times the largest (:func:`pinv`), int64."""
    a = matrices("matrix_rank", x)
    s = svdvals(a)
    if not s.size:
        return device_of(a).zeros(a.shape[:-2], dtype="i64")  # type: ignore[no-any-return]
    limit = cutoff(a, rtol, s)
    return statistics.count_nonzero(apply("s > limit", s=s, limit=limit), axis=-1)


def det(x: GpuRef[Mode], /) -> GpuRef[Mode]:
    """The determinants of matrices, by LU; those of a stack by QR."""
    a = matrices("det", x, square=True)
    if a.ndim > 2 and a.size:
        return _det_of_stack(a)
    (found,) = each_matrix(a, lambda one: submit(one, solver.Determinant(a=one, check_finite=False)), lambda _: ((),))
    if not a.size or a.device.startswith("cpu"):
        return found
    # cuSOLVER's LU can take a 0 for the pivot where there is a NaN: the determinant would be 0.
    return apply("d + 0 * m", d=found, m=statistics.max(apply("abs(a)", a=a)))  # type: ignore[no-any-return]


def slogdet(x: GpuRef[Mode], /) -> SlogdetResult[Mode]:
    """Sign of the determinants of matrices and logarithm of their magnitude, by QR: 0 and -inf where it is 0."""
    a = matrices("slogdet", x, square=True)
    if not a.shape[-1]:
        one = device_of(a).ones(a.shape[:-2], dtype=a.dtype)
        return SlogdetResult(one, device_of(a).zeros(a.shape[:-2], dtype=a.dtype.real))
    if not a.size:
        return SlogdetResult(*(device_of(a).empty(a.shape[:-2], dtype=one) for one in (a.dtype, a.dtype.real)))
    return SlogdetResult(*_by_reflections(a)[:2])


class _Factors(NamedTuple):
    """Of the determinants of a stack: signs, logarithms of magnitudes, and the products, which may leave the range."""

    sign: Ref
    size: Ref
    product: Ref


def _by_reflections(a: Ref) -> _Factors:
    """By QR of matrices whose rows and columns have been scaled."""
    level = levelled(a)
    columns = powers(level.matrices, -2)
    corner, turns = triangle_of(apply("a * c", a=level.matrices, c=columns))
    scales = {"f": level.first[..., 0], "s": level.second[..., 0], "c": columns[..., 0, :]}
    sign = statistics.prod(apply("sign(x) * t", x=corner, t=turns), axis=-1)
    size = statistics.sum(apply("log(abs(x)) - log(f) - log(s) - log(c)", x=corner, **scales), axis=-1)
    product = apply("d * s", d=statistics.prod(corner, axis=-1), s=statistics.prod(turns, axis=-1))
    exponent = statistics.sum(apply("log2(f) + log2(s) + log2(c)", **scales), axis=-1)
    half = apply("trunc(e / 2)", e=exponent)
    return _Factors(sign, size, apply("p * exp2(-h) * exp2(h - e)", p=product, h=half, e=exponent))


def _det_of_stack(a: Ref) -> Ref:
    """By the product where no part of it leaves the range, else by its logarithm."""
    sign, size, product = _by_reflections(a)
    text = "where(abs(abs(p) - exp(m)) * 1024 <= exp(m), p, s * exp(m))"
    return apply(text, p=product, m=size, s=sign)  # type: ignore[no-any-return]
