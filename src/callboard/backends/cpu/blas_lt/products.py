"""``alpha * op(a) @ op(b) + beta * c`` in the precision that sums are kept in: f64 beside f64, else f32."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.blas.products import EXACT_TERMS
from callboard.backends.cpu.blas.scalars import reader
from callboard.backends.cpu.views import viewer
from callboard.core.layout import Layout
from callboard.core.operand import Operand
from callboard.kernel.blas_lt.checks import BLOCK, block_scales, scale_kind
from callboard.kernel.blas_lt.product import Product

__all__ = ["Array", "Factors", "affine", "factor", "factors"]

Array = np.ndarray[Any, Any]
Factors = Callable[[int, int, int | None, int | None], tuple[Array, Array]]
"""``(a, b, scale_a, scale_b)`` to ``op(a)`` and ``op(b)``, wide and scaled."""


def factors(op: Product[Any]) -> Factors:
    """Return a function that reads both factors of an op, widened and scaled."""
    read_a = factor(op.a.layout, op.transpose_a, op.scale_a, columns=False)
    read_b = factor(op.b.layout, op.transpose_b, op.scale_b, columns=True)
    return lambda a, b, scale_a, scale_b: (read_a(a, scale_a), read_b(b, scale_b))


def factor(
    layout: Layout, transpose: bool, scale: Operand | None, *, columns: bool
) -> Callable[[int, int | None], Array]:
    """Return a function that reads a factor, widened and scaled.

    Args:
        layout: Of the factor.
        transpose: The matrices are transposed first.
        scale: The scale, if there is one; its address is the second argument.
        columns: It is the second factor, whose scales are by columns.
    """
    view = viewer(layout)
    wide = np.float64 if layout.dtype.name in ("f64", "i8") else np.float32
    view_scale = None if scale is None else viewer(scale.layout)

    def read(address: int, at_scale: int | None) -> Array:
        array = view(address)
        if transpose:
            array = array.swapaxes(-1, -2)
        array = array.astype(wide, copy=False)
        if view_scale is not None and at_scale is not None:
            array = array * _spread(view_scale(at_scale), array.shape, columns)
        return array

    return read


def _spread(scale: Array, shape: tuple[int, ...], columns: bool) -> Array:
    """A scale of any kind as numbers for each element of a factor of ``shape``."""
    outer, k = shape[-2:][::-1] if columns else shape[-2:]
    if scale.ndim == 0:
        return scale
    if scale.ndim == 1:
        return scale if columns else scale[:, None]
    by_rows = scale.T if columns else scale
    kind = scale_kind(block_scales(scale.shape, columns), outer, k)
    spread = np.repeat(by_rows, BLOCK, axis=1)[:, :k]
    if kind == "block_2d":
        spread = np.repeat(spread, BLOCK, axis=0)[:outer]
    return spread.T if columns else spread


def affine(op: Product[Any]) -> Callable[[Array, Array, int | None, Any, Any], Array]:
    """A function of ``op(a)``, ``op(b)``, ``c``, ``alpha`` and ``beta``."""
    view_c = None if op.c is None else viewer(op.c.layout)
    read_alpha, read_beta = reader(op.alpha), reader(op.beta)
    if op.a.dtype.name == "i8":
        return _integer_affine(op, view_c, read_alpha, read_beta)

    def run(a: Array, b: Array, c: int | None, alpha: Any, beta: Any) -> Array:
        result: Array = a @ b
        kind = result.dtype.type
        if (alpha := read_alpha(alpha)) != 1:
            result *= kind(alpha)
        if (beta := read_beta(beta)) != 0 and view_c is not None and c is not None:
            result += kind(beta) * view_c(c).astype(kind)
        return result

    return run


def _integer_affine(op: Product[Any], view_c: Any, read_alpha: Any, read_beta: Any) -> Callable[..., Array]:
    k = op.a.shape[-2] if op.transpose_a else op.a.shape[-1]
    wide = np.float64 if k <= EXACT_TERMS else np.int64  # f64 has a fast product and holds every partial sum
    whole = op.infer()["out"].dtype.name == "i32"

    def run(a: Array, b: Array, c: int | None, alpha: Any, beta: Any) -> Array:
        result: Array = (a.astype(wide, copy=False) @ b.astype(wide, copy=False)).astype(np.int64)
        alpha, beta = read_alpha(alpha), read_beta(beta)
        if whole:
            result *= int(alpha)
            if beta != 0 and c is not None:
                result += int(beta) * view_c(c).astype(np.int64)
            return result.astype(np.int32)
        scaled = result.astype(np.int32).astype(np.float32) * np.float32(alpha)
        if beta != 0 and c is not None:
            scaled += np.float32(beta) * view_c(c).astype(np.float32)
        limits = np.iinfo(np.int8)
        rounded: Array = np.clip(np.rint(scaled), limits.min, limits.max).astype(np.int8)
        return rounded

    return run
