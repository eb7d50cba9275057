"""``activation(alpha * op + beta * c + bias)`` in f32, with the structured factor as a dense one."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.blas.scalars import reader as scalar_reader
from callboard.backends.cpu.blas_lt.activations import forward
from callboard.backends.cpu.lowprec import encode_f8
from callboard.backends.cpu.sparse_lt.compressed import Array, reader
from callboard.backends.cpu.views import viewer
from callboard.core.library import plans
from callboard.kernel.blas_lt.checks import is_fp8
from callboard.kernel.sparse_lt.products import Linear, Matmul

__all__ = ["product"]

Plan = Callable[..., None]


@plans(Linear, Matmul)
def product(op: Linear | Matmul) -> Plan:
    """``plan(out, c, bias, alpha, beta, first, second)``, with the factors in the order of the message."""
    _, _, result = op.product()
    structured, dense = op.factors()
    read_structured, view_dense = reader(structured), viewer(dense.layout)
    view_out = viewer(result if op.out is None else op.out.layout)
    view_c = None if op.c is None else viewer(op.c.layout)
    view_bias = None if op.bias is None else viewer(op.bias.layout)
    read_alpha, read_beta = scalar_reader(op.alpha), scalar_reader(op.beta)
    wide = np.float64 if structured.dtype == "i8" else np.float32  # f64 holds sums of i8 products exactly
    first, activation, dtype = op.structured_first, op.activation, result.dtype

    def work(out: int, c: int | None, bias: int | None, alpha: Any, beta: Any, *factors: Any) -> None:
        a, b = factors if first else reversed(factors)
        left: Array = read_structured(a[0]).astype(wide)
        right: Array = view_dense(b).astype(wide)
        value: Array = (left @ right if first else right @ left.swapaxes(-1, -2)).astype(np.float32)
        value *= np.float32(read_alpha(alpha))
        if view_c is not None and c is not None and (beta := read_beta(beta)) != 0:
            value += np.float32(beta) * view_c(c).astype(np.float32)
        if view_bias is not None and bias is not None:
            added = view_bias(bias).astype(np.float32)
            value += added[:, None] if first else added
        if activation is not None:
            value = forward(activation, value)
        target = view_out(out)
        if is_fp8(dtype):
            target[...] = encode_f8(value, dtype)
        elif dtype.is_integer:
            limits = np.iinfo(dtype.np)
            target[...] = np.clip(np.rint(value.astype(np.float64)), limits.min, limits.max)
        else:
            target[...] = value

    return work
