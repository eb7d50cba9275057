"""Products with a bias, a residual and an activation, in one op of ``dev.blas_lt``."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from callboard.core.operand import Operand
from callboard.kernel.engine.mapped.tools import Tools, Value, name_of

__all__ = ["FLOATS", "linear", "linear_by_side"]

FLOATS = ("f16", "bf16", "f32", "f64")
HALVES = FLOATS[:2]


def linear(
    t: Tools, x: Value, w: Value, *addends: Value, transposed: bool = False, activation: str = "", wide: bool = False
) -> Value | None:
    """``activation(x @ w + bias + residual)``, or None if these values are not for one op.

    Args:
        t: The libraries of the device.
        x: ``[..., k]``.
        w: ``[k, n]``, or ``[n, k]`` if it is transposed.
        addends: At most one of ``n`` numbers, and at most one of the shape of the product.
        transposed: See ``w``.
        activation: ``"relu"``, ``"gelu"`` (by tanh), or none.
        wide: The product of halves is in f32, as the addends are.
    """
    dtype = name_of(x)
    if not isinstance(x, Operand) or dtype not in FLOATS or w.ndim != 2 or x.ndim < 2 or 0 in (*x.shape, *w.shape):
        return None
    k, n = w.shape[::-1] if transposed else w.shape
    out = "f32" if wide else dtype
    if x.shape[-1] != k or name_of(w) != dtype or any(name_of(each) != out for each in addends):
        return None
    if wide and dtype not in HALVES:
        return None
    shape = (*x.shape[:-1], n)
    bias, residual = _told_apart(addends, shape)
    if (bias is not None) + (residual is not None) < len(addends) or t.panels(w, x, transposed) is not None:
        return None
    t.sized(shape, x)
    lines = (math.prod(shape[:-1]), n)
    more: dict[str, Any] = {"tf32": True} if t.tf32(x) else {}
    if wide:
        more["out_dtype"] = out
    if bias is not None:
        more["bias"] = _flat(t, bias, n)
    if residual is not None:
        more |= {"c": t.xp(residual).reshape(residual, lines), "beta": 1.0}
    words = [*([activation] if activation else []), *(["bias"] if bias is not None else [])]
    found = t.blas_lt.matmul(
        t.xp(x).reshape(x, (lines[0], k)),
        t.ref(w),
        transpose_b=transposed,
        epilogue="_".join(words) or "none",
        **more,
    )
    return t.xp(found).reshape(found, shape)


def _told_apart(addends: Sequence[Value], shape: tuple[int, ...]) -> tuple[Value | None, Value | None]:
    """The bias, and the residual, of those that are one."""
    bias = residual = None
    for each in addends:
        if bias is None and each.shape and each.shape[-1] == shape[-1] == math.prod(each.shape):
            bias = each
        elif residual is None and tuple(each.shape) == shape and isinstance(each, Operand):
            residual = each
    return bias, residual


def _flat(t: Tools, bias: Value, n: int) -> Value:
    return t.ref(bias) if bias.ndim == 1 else t.ref(t.xp(bias).reshape(bias, (n,)))


def linear_by_side(
    t: Tools, x: Value, w: Value, b: Value = None, *, widths: Sequence[int], **settings: Any
) -> list[Value] | None:
    """Products of one array with several matrices, which lie side by side in ``w``: views of one result.

    Args:
        t: The libraries of the device.
        x: ``[..., k]``.
        w: ``[k, sum of widths]``.
        b: One number for each column, or None.
        widths: Columns of each matrix.
        settings: As for :func:`linear`.
    """
    whole = linear(t, x, w, *(() if b is None else (b,)), **settings)
    if whole is None:
        return None
    ends = np.cumsum(widths).tolist()
    return [whole[..., end - width : end] for end, width in zip(ends, widths, strict=True)]
