"""Epilogues missing in cuSPARSELt: a custom kernel finishes the product that cuSPARSELt stored."""

import ctypes
from collections.abc import Callable
from ctypes import c_float, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.launching import kernel_launcher
from callboard.backends.cuda.sparse_lt.cusparselt import CusparseLt
from callboard.core.layout import Layout
from callboard.core.operand import Operand
from callboard.kernel.blas_lt.checks import stack
from callboard.kernel.sparse_lt.products import Product

if TYPE_CHECKING:
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Finish", "FinishArgs", "finish", "gelu"]

BLOCK = (32, 8)
ADJACENT = 1024
"""Elements of a row that a warp has."""
MAX_BLOCKS = 1 << 14
ACTIVATION = {None: 0, "relu": 1, "gelu": 2}


class FinishArgs(ctypes.Structure):
    """``FinishArgs`` of ``data/sparse_lt_products.cu``."""

    _fields_ = (
        *((name, c_void_p) for name in ("product", "c", "bias", "out", "alpha", "beta")),
        *((name, c_float) for name in ("by_alpha", "by_beta")),
        *((name, c_int64) for name in ("matrices", "rows", "cols")),
        *((name, c_int64) for name in ("product_matrix", "product_row", "out_matrix", "out_row")),
        *((name, c_int) for name in ("bias_of_rows", "activation")),
    )


Finish = Callable[["CudaStream", int, int, "int | None", "int | None", Any, Any], None]
"""``finish(stream, product, out, c, bias, alpha, beta)``, with addresses; factors are numbers where they were."""


def finish(lt: CusparseLt, op: Product[Any], product: Layout, out: Layout) -> Finish:
    """Return ``out = activation(alpha * product + beta * c + bias)``, in f32 and rounded once.

    ``c`` has the layout of ``out``.

    Args:
        lt: The handle.
        op: The message, with placeholders: its activation, and which of its factors are arrays.
        product: Product that cuSPARSELt has stored, in the order of ``out``; may share the memory of ``out``.
        out: The result.
    """
    target, source = stack(op, "out", out), stack(op, "out", product)
    rows, cols = (target.form.rows, target.form.cols)[:: -1 if target.form.transposed else 1]
    args = FinishArgs(
        matrices=target.matrices,
        rows=rows,
        cols=cols,
        product_matrix=source.step,
        product_row=source.form.ld,
        out_matrix=target.step,
        out_row=target.form.ld,
        bias_of_rows=int(op.structured_first != target.form.transposed),
        activation=ACTIVATION[op.activation],
    )
    warps = -(-cols // ADJACENT) * rows * target.matrices
    grid = max(1, min(-(-warps // BLOCK[1]), MAX_BLOCKS))
    function = lt.device.kernels.get("sparse_lt_products", f"finish_{product.dtype}_{out.dtype}")
    launch = kernel_launcher(lt.driver, function, grid, BLOCK, args)
    alpha_lies, beta_lies = (isinstance(factor, Operand) for factor in (op.alpha, op.beta))

    def run(
        stream: "CudaStream", product: int, out: int, c: int | None, bias: int | None, alpha: Any, beta: Any
    ) -> None:
        args.product, args.out, args.c, args.bias = product, out, c, bias
        args.alpha, args.by_alpha = (alpha, 0.0) if alpha_lies else (None, alpha)
        args.beta, args.by_beta = (beta, 0.0) if beta_lies else (None, beta)
        launch(stream.native)

    return run


def gelu(lt: CusparseLt, op: Product[Any], out: Layout) -> "Callable[[CudaStream, int], None]":
    """GELU of the stored product, in place."""
    run = finish(lt, op, out, out)

    def in_place(stream: "CudaStream", address: int) -> None:
        run(stream, address, address, None, None, 1.0, 0.0)

    return in_place
