"""Matrices as arguments: their dtype, stacks of them taken one after the other, and the cut-off of singular values."""

import math
from collections.abc import Callable
from typing import Any

from callboard.arrays import elementwise, statistics
from callboard.arrays.dtypes import finfo
from callboard.arrays.elementwise import apply
from callboard.arrays.handles import Ref, cast, check_array, device_of
from callboard.arrays.manipulation import expand_dims, reshape, stack, unstack
from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.core.ref import GpuRef

__all__ = ["cutoff", "each_matrix", "floating", "matrices", "real_values"]


def floating(dtype: DType) -> DType:
    """The dtype in which matrices of this dtype are computed."""
    if dtype.kind not in ("float", "complex"):
        return DTYPES["f64"]
    return DTYPES["f32"] if dtype.itemsize < 4 else dtype


def matrices(function: str, x: Any, *, square: bool = False) -> Ref:
    """``x``, floating, whose last two axes are those of matrices."""
    check_array(f"linalg.{function}", "x", x)
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise ShapeError(f"xp.linalg.{function}: x is {x.layout!r}; it must be [..., {'n, n' if square else 'm, n'}]")
    return cast(x, floating(x.dtype))


def each_matrix(x: Ref, one: Callable[[Ref], Any], shapes: Callable[[Ref], tuple[tuple[int, ...], ...]]) -> list[Ref]:
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


def real_values(values: Ref, dtype: DType) -> Ref:
    """Values of matrices of this dtype that are real; those of no matrix have got the dtype of the matrices."""
    return cast(elementwise.real(values) if values.dtype.is_complex else values, dtype.real)


def cutoff(a: Ref, rtol: Any, s: Ref) -> Ref:
    """The limit up to which the singular values ``s`` of ``a`` count as 0, with a last axis of 1.

    It is ``rtol`` times the largest; where ``rtol`` is None, the larger extent times the dtype's ``eps``.
    """
    if rtol is None:
        part: Any = max(a.shape[-2:]) * finfo(a.dtype).eps
    else:
        part = expand_dims(cast(rtol, s.dtype), axis=rtol.ndim) if isinstance(rtol, GpuRef) else float(rtol)
    limit: Ref = apply("t * m", t=part, m=statistics.max(s, axis=-1, keepdims=True))
    return limit
