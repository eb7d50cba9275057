"""Linear equations and least squares, inverses and pseudo-inverses."""

import math

from callboard.arrays import elementwise, statistics
from callboard.arrays.dtypes import result_type
from callboard.arrays.elementwise import apply
from callboard.arrays.handles import cast, check_array, device_of, submit
from callboard.arrays.linalg.decompositions import svd
from callboard.arrays.linalg.matrices import cutoff, floating, matrices
from callboard.arrays.linalg.results import LstsqResult
from callboard.arrays.linalg.scaling import levelled, normalised
from callboard.arrays.manipulation import broadcast_to, expand_dims, matrix_transpose, reshape
from callboard.arrays.products.contracting import matmul
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel import solver
from callboard.kernel.array.checks import broadcast_shape

__all__ = ["inv", "lstsq", "pinv", "solve"]


def solve(x1: GpuRef[Mode], x2: GpuRef[Mode], /) -> GpuRef[Mode]:
    """The ``x`` with ``x1 @ x = x2``, by LU with pivots.

    Args:
        x1: ``[..., n, n]``.
        x2: ``[n]``, or ``[..., n, columns]``, whose first axes broadcast with those of ``x1``.

    Raises:
        NumericalError: At the await: a matrix is singular.
    """
    a = matrices("solve", x1, square=True)
    check_array("linalg.solve", "x2", x2)
    dtype = floating(result_type(a, x2))
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
    level = levelled(flat_a)
    lu, pivots = submit(a, solver.GetrfBatched(a=level.matrices, check_finite=False))
    right = apply("b * f * s", b=flat_b, f=level.first, s=level.second)
    x = submit(a, solver.GetrsBatched(lu=lu, pivots=pivots, b=right, check_finite=False))
    return reshape(x, (*batch, *(b.shape if b.ndim == 1 else b.shape[-2:])))


def inv(x: GpuRef[Mode], /) -> GpuRef[Mode]:
    """The inverses of matrices, by LU. To solve equations, :func:`solve` is faster and more accurate.

    Raises:
        NumericalError: At the await: a matrix is singular.
    """
    a = matrices("inv", x, square=True)
    if a.ndim == 2:
        found: GpuRef[Mode] = submit(a, solver.Inverse(a=a, check_finite=False))
        return found
    return solve(a, device_of(a).eye(a.shape[-1], dtype=a.dtype))


def pinv(x: GpuRef[Mode], /, *, rtol: float | GpuRef[Mode] | None = None) -> GpuRef[Mode]:
    """The Moore-Penrose inverses, by singular values.

    Args:
        x: ``[..., m, n]``.
        rtol: Singular values that are not larger than this part of the largest count as 0; the larger extent times the
            dtype's ``eps`` when None.
    """
    a = matrices("pinv", x)
    if not a.size:
        return device_of(a).zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), dtype=a.dtype)  # type: ignore[no-any-return]
    u, s, vh = svd(a, full_matrices=False)
    limit = cutoff(a, rtol, s)
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
    matrix = matrices("lstsq", a)
    check_array("linalg.lstsq", "b", b)
    if not b.ndim or b.shape[0 if b.ndim == 1 else -2] != matrix.shape[-2]:
        raise ShapeError(f"xp.linalg.lstsq: a is {a.layout!r} and b is {b.layout!r}: the rows differ")
    dtype = floating(result_type(matrix, b))
    matrix, right = cast(matrix, dtype), cast(b, dtype)
    columns = expand_dims(right, axis=1) if b.ndim == 1 else right
    if not min(matrix.shape[-2:]):
        return _empty_lstsq(matrix, columns, vector=b.ndim == 1)
    matrix, power = normalised(matrix)
    columns = apply("p * b", p=power, b=columns)
    u, s, vh = svd(matrix, full_matrices=False)
    limit = cutoff(matrix, rcond, s)
    inverse = apply("where(s > limit, 1 / s, 0.0)", s=s, limit=limit)
    turned = matmul(matrix_transpose(elementwise.conj(u)), columns)
    x = matmul(matrix_transpose(elementwise.conj(vh)), apply("i * y", i=expand_dims(inverse, axis=-1), y=turned))
    left = statistics.sum(apply("square(abs(d - b))", d=matmul(matrix, x), b=columns), axis=-2)
    rank = statistics.count_nonzero(apply("s > limit", s=s, limit=limit), axis=-1)
    line = power[..., 0]
    left, s = apply("x / p / p", x=left, p=line), apply("s / p", s=s, p=line)
    return LstsqResult(x[..., 0] if b.ndim == 1 else x, left, rank, s)


def _empty_lstsq(matrix: GpuRef[Mode], columns: GpuRef[Mode], *, vector: bool) -> LstsqResult[Mode]:
    """Of a matrix without rows or without columns: the shortest solution is 0, and ``b`` is what it leaves."""
    device, dtype = device_of(matrix), matrix.dtype
    stack = matrix.shape[:-2]
    x = device.zeros((*stack, matrix.shape[-1], columns.shape[-1]), dtype=dtype)
    left = statistics.sum(apply("square(abs(b))", b=columns), axis=-2)
    s = device.zeros((*stack, 0), dtype=left.dtype)
    return LstsqResult(x[..., 0] if vector else x, left, device.zeros(stack, dtype="i64"), s)
