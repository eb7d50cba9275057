"""The plan of a product: cuSPARSELt's descriptors with the algorithm that was chosen.

cuSPARSELt multiplies ``[outer, k]`` (structured, row-major) by ``[k, n]``, in any order. ``x @ w.T`` is the transpose
of ``w @ x.T``: the same call with ``x`` and the result read the other way round.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.backends.cuda.sparse_lt.cusparselt import COLUMNS, ROWS, CusparseLt, Descriptors, check_address
from callboard.backends.cuda.sparse_lt.finishing import gelu
from callboard.backends.cuda.sparse_lt.tuning import fastest
from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout, layout_of
from callboard.core.op import info_of
from callboard.kernel.blas_lt.checks import Stack, is_fp8, kept_dtype, stack
from callboard.kernel.sparse_lt.products import Product
from callboard.kernel.sparse_lt.structured import compressed_bytes

if TYPE_CHECKING:
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Multiplying"]

COMPUTE_32I, COMPUTE_32F = 0, 2
"""``cusparseComputeType``."""


class Multiplying:
    """A plan: ``plan(stream, structured, dense, out, c, bias, alpha, beta)`` enqueues one product, or a batch.

    A bias is copied to memory of the plan, whose address was given to cuSPARSELt when the plan was made.

    Args:
        lt: The handle.
        op: The message, with placeholders.
    """

    def __init__(self, lt: CusparseLt, op: Product[Any]) -> None:
        self._lt, self._tag = lt, info_of(type(op)).tag
        self._made = Descriptors(lt)
        self._numbers = np.zeros(2, np.float32)
        self._streams = np.zeros(1, np.uint64)
        extents, other, result = op.product()
        structured, dense = op.factors()
        out = result if op.out is None else op.out.layout
        own = structured.shape[0] if len(structured.shape) == 3 else 1
        # One structured matrix serves a whole batch in one call; several are multiplied one after the other.
        self._count = 0 if result.size == 0 else extents.batch if own > 1 else 1
        self._apart = (
            compressed_bytes(DTYPES[structured.dtype], structured.shape[-2:]) if own > 1 else 0,
            other.step * dense.dtype.itemsize,
            _apart(op, "out", out),
            0 if op.c is None else _apart(op, "c", op.c.layout),
        )
        self._plan = self._bias = self._bias_bytes = 0
        self._gelu: Callable[[CudaStream, int], None] | None = None
        if not self._count:
            return
        try:
            self._describe(op, out, extents.batch if own == 1 else 1)
        except BaseException:  # any exception: release the parts made so far
            self.close()
            raise

    def __call__(
        self,
        stream: "CudaStream",
        structured: int,
        dense: int,
        out: int,
        c: int | None,
        bias: int | None,
        alpha: float,
        beta: float,
    ) -> None:
        if not self._count:
            return
        c = out if c is None else c
        check_address(self._tag, structured=structured, dense=dense, out=out, c=c)
        if bias is not None:
            driver = self._lt.driver
            driver.check(driver.memcpy_dtod(self._bias, bias, self._bias_bytes, stream.native), "cuMemcpyDtoDAsync")
        self._numbers[:] = alpha, beta
        self._streams[0] = stream.native
        by_structured, by_dense, by_out, by_c = self._apart
        for at in range(self._count):
            self._run(structured + at * by_structured, dense + at * by_dense, c + at * by_c, out + at * by_out)

        if self._gelu is not None:
            self._gelu(stream, out)

    def close(self) -> None:
        """Free descriptors and memory."""
        self._made.close()

    def _run(self, structured: int, dense: int, c: int, out: int) -> None:
        alpha, beta = self._numbers.ctypes.data, self._numbers.ctypes.data + self._numbers.itemsize
        streams = self._streams.ctypes.data
        self._lt.call("matmul", self._plan, alpha, structured, dense, beta, c, out, self._workspace, streams, 1)

    def _describe(self, op: Product[Any], out: Layout, batch: int) -> None:
        """Make the descriptors of a product, or of ``batch`` products with one structured matrix."""
        extents, other, _ = op.product()
        structured, dense = op.factors()
        made, first, dtype = self._made, op.structured_first, DTYPES[structured.dtype]

        def order(found: Stack) -> int:
            return ROWS if found.form.transposed != first else COLUMNS

        def matrix(found: Stack, kind: Layout) -> int:
            rows, cols = (found.form.rows, found.form.cols) if first else (found.form.cols, found.form.rows)
            return made.dense(kind.dtype, rows, cols, found.form.ld, order(found), batch, found.step)

        a = made.structured(dtype, extents.outer, extents.k, extents.k)
        if batch > 1:
            made.batched(a, batch, 0)
        b = matrix(other, dense.layout)
        target = stack(op, "out", out)
        d = matrix(target, out)
        addend = layout_of(kept_dtype(out.dtype), out.shape, out.strides) if op.c is None else op.c.layout
        c = d if addend == out else matrix(stack(op, "c", addend), addend)
        product = made.product(0, a, b, c, d, COMPUTE_32I if dtype.name == "i8" else COMPUTE_32F)
        if op.activation == "gelu" and not _has_gelu(dtype, out.dtype):
            self._gelu = gelu(self._lt, op, out)
        elif op.activation is not None:
            made.set(product, f"ACTIVATION_{op.activation.upper()}", np.array([1], np.int32))
        if op.bias is not None:
            self._bias_bytes = op.bias.nbytes
            self._bias = made.memory(self._bias_bytes)
            made.set(product, "BIAS_POINTER", np.array([self._bias], np.uint64))
        selection = made.selection(product)
        if op.autotune:
            self._lt.check_known(self._tag, "which algorithms end the context", "leave autotune out")
            own = structured.data.size // (structured.shape[0] if len(structured.shape) == 3 else 1)
            orders = order(other), order(target)
            spans = [layout.span for layout in (dense.layout, out, addend)]
            sizes = [own, *(high - low for low, high in spans)]
            stored = extents.outer * extents.k // 2 * dtype.itemsize
            made.take(selection, fastest(self._lt, product, dtype, orders, sizes, stored))
        self._plan = made.plan(product, selection)
        self._workspace = made.workspace(self._plan)


def _has_gelu(factor: DType, result: DType) -> bool:
    """True if cuSPARSELt 0.8 supports GELU for these dtypes; it rejects others when asked."""
    return result.name == "i8" or (is_fp8(factor) and (result.name == "bf16" or is_fp8(result)))


def _apart(op: Product[Any], name: str, layout: Layout) -> int:
    """Bytes from matrix to matrix."""
    return stack(op, name, layout).step * layout.dtype.itemsize
