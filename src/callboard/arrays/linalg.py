"""``xp.linalg``: linear algebra of matrices and of stacks of them, by :mod:`callboard.kernel.solver`.

Arrays that are not floating are computed in float64, halves in float32. Where the solver has no op for a stack, its
matrices are taken one after the other.

A NaN or an infinity in a matrix gives NaN by ``det``, ``inv``, ``qr``, ``slogdet`` and ``solve``. By the others, whose
routines iterate, the result fails with ``NumericalError``.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple

from callboard.arrays import elementwise, statistics
from callboard.arrays.dtypes import finfo, result_type
from callboard.arrays.elementwise import apply
from callboard.arrays.handles import Ref, cast, check_array, device_of, submit
from callboard.arrays.introspection.unknown import unknown
from callboard.arrays.manipulation import (
    broadcast_to,
    expand_dims,
    matrix_transpose,
    moveaxis,
    reshape,
    roll,
    stack,
    unstack,
)
from callboard.arrays.products.contracting import matmul, outer, tensordot, vecdot
from callboard.arrays.products.diagonals import diagonal, trace
from callboard.arrays.products.householder import stacked_qr, triangle_of
from callboard.arrays.reducing import reduced
from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel import solver
from callboard.kernel.array.checks import broadcast_shape

__all__ = [
    "EigResult",
    "EighResult",
    "LstsqResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


class EigResult(NamedTuple, Generic[Mode]):
    """Eigenvalues in no particular order, and the eigenvectors as columns; complex."""

    eigenvalues: GpuRef[Mode]
    eigenvectors: GpuRef[Mode]


class EighResult(NamedTuple, Generic[Mode]):
    """Eigenvalues, ascending, and the eigenvectors as columns."""

    eigenvalues: GpuRef[Mode]
    eigenvectors: GpuRef[Mode]


class LstsqResult(NamedTuple, Generic[Mode]):
    """A solution, the sums of squared residuals, the rank of the matrix, its singular values, descending."""

    x: GpuRef[Mode]
    residuals: GpuRef[Mode]
    rank: GpuRef[Mode]
    singular_values: GpuRef[Mode]


class QRResult(NamedTuple, Generic[Mode]):
    """Orthonormal columns, and the upper triangle that gives the matrix from them."""

    Q: GpuRef[Mode]
    R: GpuRef[Mode]


class SlogdetResult(NamedTuple, Generic[Mode]):
    """Sign of a determinant, and the logarithm of its magnitude."""

    sign: GpuRef[Mode]
    logabsdet: GpuRef[Mode]


class SVDResult(NamedTuple, Generic[Mode]):
    """Left singular vectors as columns, singular values, right singular vectors as rows."""

    U: GpuRef[Mode]
    S: GpuRef[Mode]
    Vh: GpuRef[Mode]


# -- in which dtype, and how many --------------------------------------------------------------------------------------


def _floating(dtype: DType) -> DType:
    if dtype.kind not in ("float", "complex"):
        return DTYPES["f64"]
    return DTYPES["f32"] if dtype.itemsize < 4 else dtype


def _matrices(function: str, x: Any, *, square: bool = False) -> Ref:
    """``x``, floating, whose last two axes are those of matrices."""
    check_array(f"linalg.{function}", "x", x)
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise ShapeError(f"xp.linalg.{function}: x is {x.layout!r}; it must be [..., {'n, n' if square else 'm, n'}]")
    return cast(x, _floating(x.dtype))


def _each(x: Ref, one: Callable[[Ref], Any], shapes: Callable[[Ref], tuple[tuple[int, ...], ...]]) -> list[Ref]:
    """Apply ``one`` to each matrix; its results (a ref, or a tuple of refs) are stacked like the matrices.

    ``shapes`` gives the shapes of its results, which is what there is of a stack of none.
    """
    batch = x.shape[:-2]
    if not batch:
        found = one(x)
        return [found] if isinstance(found, GpuRef) else list(found)
    if 0 in batch:
        return [device_of(x).empty((*batch, *shape), dtype=x.dtype) for shape in shapes(x)]
    results = []
    for matrix in unstack(reshape(x, (math.prod(batch), *x.shape[-2:]))):
        found = one(matrix)
        results.append((found,) if isinstance(found, GpuRef) else tuple(found))
    return [reshape(stack(column), (*batch, *column[0].shape)) for column in zip(*results, strict=True)]


def _real(values: Ref, dtype: DType) -> Ref:
    """Values of matrices of this dtype that are real; those of no matrix have got the dtype of the matrices."""
    return cast(elementwise.real(values) if values.dtype.is_complex else values, dtype.real)


# -- factorisations ----------------------------------------------------------------------------------------------------


def cholesky(x: GpuRef[Mode], /, *, upper: bool = False) -> GpuRef[Mode]:
    """The lower (upper) triangular factor of positive definite matrices.

    Raises:
        NumericalError: At the await: one of them is not positive definite.
    """
    a = _matrices("cholesky", x, square=True)
    if a.ndim == 2:
        found: GpuRef[Mode] = submit(a, solver.Cholesky(a=a, lower=not upper))
        return found
    if not a.size:
        return a
    flat = reshape(a, (-1, *a.shape[-2:]))
    return reshape(submit(a, solver.PotrfBatched(a=flat, lower=not upper)), a.shape)


def qr(x: GpuRef[Mode], /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult[Mode]:
    """``x = Q @ R``."""
    a = _matrices("qr", x)
    m, n = a.shape[-2:]
    k = m if mode == "complete" else min(m, n)
    if math.prod(a.shape[:-2]) > min(m, n) > 0:
        return QRResult(*stacked_qr(a, k))
    return QRResult(
        *_each(a, lambda one: submit(one, solver.Qr(a=one, mode=mode, check_finite=False)), lambda _: ((m, k), (k, n)))
    )


def svd(x: GpuRef[Mode], /, *, full_matrices: bool = True) -> SVDResult[Mode]:
    """``x = U * S @ Vh``; the singular values descend."""
    a = _matrices("svd", x)
    m, n = a.shape[-2:]
    k = min(m, n)
    left, right = (m, n) if full_matrices else (k, k)
    if a.ndim > 2 and a.size and (m == n or not full_matrices):
        found = submit(a, solver.GesvdjBatched(a=reshape(a, (-1, m, n))))
        batch = a.shape[:-2]
        parts = [reshape(one, (*batch, *one.shape[1:])) for one in found]
        return SVDResult(parts[0], cast(parts[1], a.dtype.real), parts[2])
    u, s, vh = _each(
        a,
        lambda one: submit(one, solver.Svd(a=one, full_matrices=full_matrices)),
        lambda _: ((m, left), (k,), (right, n)),
    )
    return SVDResult(u, _real(s, a.dtype), vh)


def svdvals(x: GpuRef[Mode], /) -> GpuRef[Mode]:
    """The singular values, descending."""
    a = _matrices("svdvals", x)
    k = min(a.shape[-2:])
    if a.ndim > 2 and a.size:
        found = submit(a, solver.GesvdjValuesBatched(a=reshape(a, (-1, *a.shape[-2:]))))
        return cast(reshape(found, (*a.shape[:-2], k)), a.dtype.real)
    (s,) = _each(a, lambda one: submit(one, solver.SvdValues(a=one)), lambda _: ((k,),))
    return _real(s, a.dtype)


def eigh(x: GpuRef[Mode], /) -> EighResult[Mode]:
    """Eigenvalues and eigenvectors of symmetric or Hermitian matrices, by their lower triangles."""
    a = _matrices("eigh", x, square=True)
    if a.ndim == 2 or not a.size:
        n = a.shape[-1]
        w, v = _each(a, lambda one: submit(one, solver.Syevd(a=one)), lambda _: ((n,), (n, n)))
        return EighResult(_real(w, a.dtype), v)
    w, v = submit(a, solver.SyevBatched(a=reshape(a, (-1, *a.shape[-2:]))))
    return EighResult(reshape(w, a.shape[:-1]), reshape(v, a.shape))


def eigvalsh(x: GpuRef[Mode], /) -> GpuRef[Mode]:
    """The eigenvalues of symmetric or Hermitian matrices, ascending."""
    a = _matrices("eigvalsh", x, square=True)
    if a.ndim > 2 and a.size:
        return eigh(a).eigenvalues
    n = a.shape[-1]
    (w,) = _each(a, lambda one: submit(one, solver.SyevdValues(a=one)), lambda _: ((n,),))
    return _real(w, a.dtype)


def eig(x: GpuRef[Mode], /) -> EigResult[Mode]:
    """Eigenvalues and right eigenvectors of square matrices, always complex (of the array API standard 2025.12)."""
    a = _matrices("eig", x, square=True)
    n = a.shape[-1]
    w, v = _each(a, lambda one: submit(one, solver.Geev(a=one)), lambda _: ((n,), (n, n)))
    dtype = _complex(a.dtype)
    return EigResult(cast(w, dtype), cast(v, dtype))


def eigvals(x: GpuRef[Mode], /) -> GpuRef[Mode]:
    """The eigenvalues of square matrices, always complex (of the array API standard 2025.12)."""
    a = _matrices("eigvals", x, square=True)
    n = a.shape[-1]
    (w,) = _each(a, lambda one: submit(one, solver.GeevValues(a=one)), lambda _: ((n,),))
    return cast(w, _complex(a.dtype))


def _complex(dtype: DType) -> DType:
    return dtype if dtype.is_complex else DTYPES["c64" if dtype.itemsize < 8 else "c128"]


# -- equations ---------------------------------------------------------------------------------------------------------


def solve(x1: GpuRef[Mode], x2: GpuRef[Mode], /) -> GpuRef[Mode]:
    """The ``x`` with ``x1 @ x = x2``, by LU with pivots.

    Args:
        x1: ``[..., n, n]``.
        x2: ``[n]``, or ``[..., n, columns]``, whose first axes broadcast with those of ``x1``.

    Raises:
        NumericalError: At the await: a matrix is singular.
    """
    a = _matrices("solve", x1, square=True)
    check_array("linalg.solve", "x2", x2)
    dtype = _floating(result_type(a, x2))
    a, b = cast(a, dtype), cast(x2, dtype)
    if not b.ndim or b.shape[0 if b.ndim == 1 else -2] != a.shape[-1]:
        raise ShapeError(f"xp.linalg.solve: x1 is {x1.layout!r} and x2 is {x2.layout!r}: the rows differ")
    if a.ndim == 2 and b.ndim <= 2:
        found: GpuRef[Mode] = submit(a, solver.Solve(a=a, b=b, check_finite=False))
        return found
    columns = expand_dims(b, axis=1) if b.ndim == 1 else b
    batch = broadcast_shape("xp.linalg.solve", [a.shape[:-2], columns.shape[:-2]])
    flat_a = reshape(broadcast_to(a, (*batch, *a.shape[-2:])), (math.prod(batch), *a.shape[-2:]))
    flat_b = reshape(broadcast_to(columns, (*batch, *columns.shape[-2:])), (math.prod(batch), *columns.shape[-2:]))
    if not flat_a.size or not flat_b.size:
        return device_of(a).empty((*batch, *(b.shape if b.ndim == 1 else b.shape[-2:])), dtype=dtype)  # type: ignore[no-any-return]
    lu, pivots = submit(a, solver.GetrfBatched(a=flat_a, check_finite=False))
    x = submit(a, solver.GetrsBatched(lu=lu, pivots=pivots, b=flat_b, check_finite=False))
    return reshape(x, (*batch, *(b.shape if b.ndim == 1 else b.shape[-2:])))


def inv(x: GpuRef[Mode], /) -> GpuRef[Mode]:
    """The inverses of matrices, by LU. To solve equations, :func:`solve` is faster and more accurate.

    Raises:
        NumericalError: At the await: a matrix is singular.
    """
    a = _matrices("inv", x, square=True)
    if a.ndim == 2:
        found: GpuRef[Mode] = submit(a, solver.Inverse(a=a, check_finite=False))
        return found
    return solve(a, device_of(a).eye(a.shape[-1], dtype=a.dtype))


def pinv(x: GpuRef[Mode], /, *, rtol: float | Ref | None = None) -> GpuRef[Mode]:
    """The Moore-Penrose inverses, by singular values.

    Args:
        x: ``[..., m, n]``.
        rtol: Singular values that are not larger than this part of the largest count as 0; the larger extent times the
            dtype's ``eps`` when None.
    """
    a = _matrices("pinv", x)
    if not a.size:
        return device_of(a).zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), dtype=a.dtype)  # type: ignore[no-any-return]
    u, s, vh = svd(a, full_matrices=False)
    limit = apply("t * m", t=_tolerance(a, rtol, s), m=statistics.max(s, axis=-1, keepdims=True))
    inverse = apply("where(s > limit, 1 / s, 0.0)", s=s, limit=limit)
    scaled = apply("conj(v) * s", v=matrix_transpose(vh), s=expand_dims(inverse, axis=-2))
    return matmul(scaled, matrix_transpose(elementwise.conj(u)))


def lstsq(a: GpuRef[Mode], b: GpuRef[Mode], rcond: float | None = None) -> LstsqResult[Mode]:
    """The shortest ``x`` with the least ``norm(a @ x - b)``, by singular values, as ``numpy.linalg.lstsq``.

    Args:
        a: ``[..., m, n]``, of any rank.
        b: ``[m]``, or ``[..., m, columns]``.
        rcond: Singular values that are not larger than this part of the largest count as 0; the larger extent times the
            dtype's ``eps`` when None.

    Of stacks, too. The residuals are there whatever the rank, where NumPy leaves them out unless ``rank == n < m``: the
    rank is known on the device alone. ``solver.least_squares`` is faster for matrices of full rank.

    Raises:
        ShapeError: The rows differ.
    """
    matrix = _matrices("lstsq", a)
    check_array("linalg.lstsq", "b", b)
    if not b.ndim or b.shape[0 if b.ndim == 1 else -2] != matrix.shape[-2]:
        raise ShapeError(f"xp.linalg.lstsq: a is {a.layout!r} and b is {b.layout!r}: the rows differ")
    dtype = _floating(result_type(matrix, b))
    matrix, right = cast(matrix, dtype), cast(b, dtype)
    columns = expand_dims(right, axis=1) if b.ndim == 1 else right
    u, s, vh = svd(matrix, full_matrices=False)
    limit = apply("t * m", t=_tolerance(matrix, rcond, s), m=statistics.max(s, axis=-1, keepdims=True))
    inverse = apply("where(s > limit, 1 / s, 0.0)", s=s, limit=limit)
    turned = matmul(matrix_transpose(elementwise.conj(u)), columns)
    x = matmul(matrix_transpose(elementwise.conj(vh)), apply("i * y", i=expand_dims(inverse, axis=-1), y=turned))
    left = statistics.sum(apply("square(abs(d - b))", d=matmul(matrix, x), b=columns), axis=-2)
    rank = statistics.count_nonzero(apply("s > limit", s=s, limit=limit), axis=-1)
    return LstsqResult(x[..., 0] if b.ndim == 1 else x, left, rank, s)


def _tolerance(a: Ref, rtol: Any, s: Ref) -> Any:
    if rtol is None:
        return max(a.shape[-2:]) * finfo(a.dtype).eps
    return expand_dims(cast(rtol, s.dtype), axis=rtol.ndim) if isinstance(rtol, GpuRef) else float(rtol)


def matrix_rank(x: GpuRef[Mode], /, *, rtol: float | Ref | None = None) -> GpuRef[Mode]:
    """The number of singular values larger than ``rtol`` times the largest (:func:`pinv`), int64."""
    a = _matrices("matrix_rank", x)
    s = svdvals(a)
    if not s.size:
        return device_of(a).zeros(a.shape[:-2], dtype="i64")  # type: ignore[no-any-return]
    limit = apply("t * m", t=_tolerance(a, rtol, s), m=statistics.max(s, axis=-1, keepdims=True))
    return statistics.count_nonzero(apply("s > limit", s=s, limit=limit), axis=-1)


def det(x: GpuRef[Mode], /) -> GpuRef[Mode]:
    """The determinants of matrices, by LU; those of a stack by QR."""
    a = _matrices("det", x, square=True)
    if a.ndim > 2 and a.size:
        corner, turns = triangle_of(a)
        return apply("d * s", d=statistics.prod(corner, axis=-1), s=statistics.prod(turns, axis=-1))  # type: ignore[no-any-return]
    (found,) = _each(a, lambda one: submit(one, solver.Determinant(a=one, check_finite=False)), lambda _: ((),))
    if not a.size or a.device.startswith("cpu"):
        return found
    # cuSOLVER's LU can take a 0 for the pivot where there is a NaN: the determinant would be 0.
    return apply("d + 0 * m", d=found, m=statistics.max(apply("abs(a)", a=a)))  # type: ignore[no-any-return]


def slogdet(x: GpuRef[Mode], /) -> SlogdetResult[Mode]:
    """Sign of the determinants of matrices and logarithm of their magnitude, by QR: 0 and -inf where it is 0."""
    a = _matrices("slogdet", x, square=True)
    if not a.shape[-1]:
        one = device_of(a).ones(a.shape[:-2], dtype=a.dtype)
        return SlogdetResult(one, device_of(a).zeros(a.shape[:-2], dtype=a.dtype.real))
    if not a.size:
        return SlogdetResult(*(device_of(a).empty(a.shape[:-2], dtype=one) for one in (a.dtype, a.dtype.real)))
    corner, turns = triangle_of(a)
    sign = statistics.prod(apply("sign(x) * t", x=corner, t=turns), axis=-1)
    return SlogdetResult(sign, statistics.sum(apply("log(abs(x))", x=corner), axis=-1))


def matrix_power(x: GpuRef[Mode], n: int, /) -> GpuRef[Mode]:
    """The product of ``n`` equal matrices, in about ``log2(n)`` products; of inverses where ``n`` is negative."""
    check_array("linalg.matrix_power", "x", x)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"xp.linalg.matrix_power: x is {x.layout!r}; it must be [..., n, n]")
    if n < 0:
        return matrix_power(inv(x), -n)
    if n == 0:
        eye = device_of(x).eye(x.shape[-1], dtype=x.dtype)
        return reshape(broadcast_to(eye, x.shape), x.shape, copy=True)
    result: Any = None
    square: Any = x
    while n:
        if n & 1:
            result = square if result is None else matmul(result, square)
        n >>= 1
        if n:
            square = matmul(square, square)
    return result  # type: ignore[no-any-return]


# -- norms, products of vectors ----------------------------------------------------------------------------------------


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
    a = cast(x, _floating(x.dtype))
    size = apply("abs(x)", x=a)
    if ord == math.inf:
        return statistics.max(size, axis=axis, keepdims=keepdims)
    if ord == -math.inf:
        return statistics.min(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return cast(statistics.count_nonzero(size, axis=axis, keepdims=keepdims), size.dtype)
    if ord == 1:
        return statistics.sum(size, axis=axis, keepdims=keepdims)
    text = "sqrt(sum(square(x)))" if ord == 2 else "pow(sum(pow(x, p)), q)"
    powers = {} if ord == 2 else {"p": float(ord), "q": 1.0 / ord}
    return reduced("linalg.vector_norm", text, axis, keepdims, x=size, **powers)  # type: ignore[no-any-return]


def matrix_norm(
    x: GpuRef[Mode], /, *, keepdims: bool = False, ord: float | Literal["fro", "nuc"] | None = "fro"
) -> GpuRef[Mode]:
    """The norm of matrices.

    ``"fro"`` is Frobenius', ``"nuc"`` the sum of the singular values, 2 and -2 the largest and the smallest of them, 1
    and -1 the largest and smallest sum of magnitudes of a column, inf and -inf of a row. The largest of none is 0, and
    there is no smallest one.
    """
    a = _matrices("matrix_norm", x)
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


def cross(x1: GpuRef[Mode], x2: GpuRef[Mode], /, *, axis: int = -1) -> GpuRef[Mode]:
    """The cross products of vectors of three elements along an axis; the other axes broadcast."""
    check_array("linalg.cross", "x1", x1)
    check_array("linalg.cross", "x2", x2)
    if not -min(x1.ndim, x2.ndim) <= axis < min(x1.ndim, x2.ndim):
        raise ShapeError(f"xp.linalg.cross: axis is {axis}; x1 is {x1.layout!r} and x2 is {x2.layout!r}")
    a, b = (moveaxis(x, axis, -1) for x in (x1, x2))
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise ShapeError(
            f"xp.linalg.cross: x1 is {x1.layout!r} and x2 is {x2.layout!r}: axis {axis} must have 3 elements"
        )
    a1, a2, b1, b2 = (roll(x, shift, axis=-1) for x in (a, b) for shift in (-1, -2))
    found = apply("a1 * b2 - a2 * b1", a1=a1, b2=b2, a2=a2, b1=b1)
    return moveaxis(found, -1, axis)


if not TYPE_CHECKING:  # type checkers would take every name for a function

    def __getattr__(name: str) -> Any:
        raise unknown("xp.linalg", name, __all__)
