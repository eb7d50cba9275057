"""Matrix products: one, a batch, or groups of rows with a matrix each."""

from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.operand import In
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.cutlass.fused import Fused, Problem
from callboard.kernel.cutlass.product import Product

__all__ = ["Gemm", "GroupedGemm"]


class Gemm(Product[GpuRef], tag="cutlass.gemm"):
    """``out = epilogue(alpha * a @ b + beta * c)`` (``GemmRequest``).

    Args:
        a: ``[m, k]``, or a batch ``[batch, m, k]``; f16, bf16, f32, f64, i8, f8_e4m3 or f8_e5m2; row- or column-major.
        b: ``[k, n]``, or a batch of them; the same dtype (the fp8 types mix). A factor without a batch axis serves the
            whole batch.
        out: ``[m, n]`` or ``[batch, m, n]``, row-major (rows may be apart); a new array when None. May be ``c``.
        c: Shape of ``out``, row-major; its dtype, or f16, bf16, f32 or f64.
        inputs: The arrays of the epilogue, in the order in which their names first appear in it; f16, bf16, f32 or f64.
        reductions: An array for each reduction of the epilogue, in order.
        alpha, beta: Numbers of the call.
        epilogue: Nodes of an :class:`EpilogueVisitorTree`; none: the product is only rounded.
        out_dtype: Dtype of a new ``out``; None: of ``quantize`` at the top; or else that of ``a``, i32 for i8 (f32 with
            an epilogue), bf16 for fp8.
        accum: The dtype of the sums, to be checked: f32, f64 beside f64, i32 beside i8.
        scale_a, scale_b: Factors of fp8 operands, f32, with the shapes and rules of
            :class:`~callboard.kernel.blas_lt.Matmul`: 0-d; one number for each row of ``a`` (``[m]``) and each column
            of ``b`` (``[n]``); or one for each 128 elements along ``k`` or each 128x128 block. None: 1.
        tf32: True if f32 factors may be rounded to TF32 (10 bits of mantissa); None: no. No effect on the CPU.
        engine: ``"auto"``, ``"vendor"`` (cuBLASLt, then a kernel of the epilogue where cuBLASLt lacks it) or
            ``"cutlass"`` (one kernel, compiled by nvcc on first use). No effect on the CPU.

    The result is rounded once, to nearest, ties to even; integers and fp8 saturate.
    """


class GroupedGemm(Fused[GpuRef], tag="cutlass.grouped_gemm"):
    """``out[r] = epilogue(alpha * a[r] @ b[g])`` for each row ``r`` of group ``g`` (``GroupedGemmRequest``).

    The groups are ranges of rows, as a mixture of experts has them: sizes may differ, and be 0.

    Args:
        a: ``[rows, k]``; dtypes as in :class:`Gemm`.
        b: ``[groups, k, n]``.
        offsets: ``[groups + 1]`` of i32, rising: group ``g`` is the rows ``offsets[g]`` to ``offsets[g + 1] - 1``. They
            are read on the device; values out of range are limited to ``[0, rows]``, and rows in no group are
            ``epilogue(0)`` with the first group's numbers.
        out: ``[rows, n]``; a new array when None.
        c, inputs, reductions, alpha, beta, epilogue, out_dtype, accum, engine: See :class:`Gemm`. A number for each
            column may be ``[groups, n]``. Reductions are for each row.
    """

    offsets: In

    def problem(self) -> Problem:
        if self.a.ndim != 2 or self.b.ndim != 3 or self.a.shape[1] != self.b.shape[1]:
            raise refuse(
                self, f"a is {self.a.layout!r} and b is {self.b.layout!r}; expected [rows, k] and [groups, k, n]"
            )
        groups = self.b.shape[0]
        offsets = self.offsets
        if offsets.shape != (groups + 1,) or offsets.dtype is not DTYPES["i32"] or not offsets.layout.contiguous:
            raise refuse(
                self, f"offsets is {offsets.layout!r}, expected i32[{groups + 1}]: the start of each group, and the end"
            )
        return Problem(layout_of(self.result_dtype, (self.a.shape[0], self.b.shape[2])), groups, by_group=True)
