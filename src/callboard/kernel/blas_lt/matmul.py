"""The fused matrix products.

There is one message for each kind of answer: ``out`` alone, ``out`` and data for the backward pass, ``out`` and the
gradient of a bias. ``a`` and ``b`` are row- or column-major (a transposed view); everything else is row-major. Nothing
is copied implicitly.
"""

from typing import Any, ClassVar, Generic, NamedTuple

from callboard.core.dtype import DType, dtypes_of
from callboard.core.layout import layout_of
from callboard.core.mode import Mode
from callboard.core.op import Outputs
from callboard.core.operand import In, Out, differs
from callboard.core.ref import GpuRef
from callboard.kernel.blas.checks import check_gemm_numbers
from callboard.kernel.blas_lt.checks import bias_dtype, check_start, rows
from callboard.kernel.blas_lt.epilogues import AuxEpilogue, BgradEpilogue, Epilogue
from callboard.kernel.blas_lt.product import Product
from callboard.kernel.checks import refuse

__all__ = ["Matmul", "MatmulAux", "MatmulBgrad", "MatmulWithAux", "MatmulWithBgrad"]


class MatmulWithAux(NamedTuple, Generic[Mode]):
    """The answer of :class:`MatmulAux`."""

    out: GpuRef[Mode]
    aux: GpuRef[Mode]


class MatmulWithBgrad(NamedTuple, Generic[Mode]):
    """The answer of :class:`MatmulBgrad`."""

    out: GpuRef[Mode]
    bias_grad: GpuRef[Mode]


class Matmul(Product[GpuRef], tag="blas_lt.matmul"):
    """``out = activation(alpha * op(a) @ op(b) + beta * c + bias)`` (``MatmulRequest``).

    Args:
        a: ``[m, k]`` (``[k, m]`` when ``transpose_a``), or a batch ``[batch, m, k]``; f16, bf16, f32, f64, i8, f8_e4m3
            or f8_e5m2; row- or column-major. Without a batch axis, or with one of extent 1, it serves the whole batch.
        b: ``[k, n]`` (``[n, k]`` when ``transpose_b``), or a batch of them; the same dtype (the fp8 types mix);
            the rest as ``a``.
        out: ``[m, n]`` or ``[batch, m, n]``, row-major (rows may be apart); a new array when None. May be ``c``.
        c: Shape and dtype of ``out`` (bf16 if that is fp8), row-major; not read while ``beta`` is 0.
        bias: ``[n]``, or ``[batch, n]`` for a batch: added to each row. Dtype of ``out``; for fp8 factors
            bf16 (f16 where ``out`` is). No gaps; one of 16 bits starts at a multiple of 4 bytes.
        aux: Array for ``drelu`` and ``dgelu`` that the forward pass returned (:class:`MatmulAux`), row-major.
        scale_a, scale_b: Factors of fp8 operands, f32: a 0-d array; one number for each row of ``op(a)`` (``[m]``) and
            each column of ``op(b)`` (``[n]``); or one for each 128 elements along ``k`` (``[m, k / 128]``,
            ``[k / 128, n]``) or each 128x128 block (``[m / 128, k / 128]``, ``[k / 128, n / 128]``), all quotients
            rounded up. Block scales start at a multiple of 16 bytes. None: 1.
        scale_out: 0-d, f32: factor of an fp8 result before it is rounded. None: 1.
        amax: 0-d, f32: set to the largest absolute value of an fp8 result before ``scale_out``. None: not wanted.
        alpha, beta: Number or 0-d array (f32; f64 for f64; whole numbers, i32, for i8 with an i32 result).
        epilogue: ``none``, ``relu``, ``bias``, ``relu_bias``, ``gelu``, ``gelu_bias``; or ``drelu``, ``dgelu``: the
            product (with ``beta * c``) times the derivative at ``aux``.
        transpose_a, transpose_b: Use ``a.T``, ``b.T`` (of each matrix).
        out_dtype: The dtype of a new ``out``. f16 and bf16 factors give their own dtype (the default) or f32; i8 gives
            i32 or i8; fp8 gives bf16, f16, f32, f8_e4m3 or f8_e5m2.
        tf32: True if f32 factors may be rounded to TF32 (10 bits of mantissa); None: no.
        fast_accum: fp8 products may be summed with 14 bits (Hopper), which is faster.
        deterministic: Take no algorithm whose partial sums arrive in any order.
        autotune: So many candidates are timed when a product of this kind is first met, and the fastest is kept; 0: the
            library's own guess. On the device; up to 64.
        workspace_size: Bytes of scratch that an algorithm may use.

    Halves and fp8 are summed in f32, i8 in i32 (which wraps around); fp8 and i8 results saturate. The CPU rounds every
    result once; some of cuBLASLt's kernels also round a product before they add a bias or multiply by a derivative.
    GELU is the tanh form (Hendrycks and Gimpel, arXiv:1606.08415); cuBLASLt evaluates it to about 1e-5 in f32.

    On CUDA, fp8 factors need their inner axis adjacent in memory (``b`` transposed: ``dev.put(b.T.copy()).T``) and rows
    in steps of 16 bytes. Products that CUDA cannot execute raise ``UnsupportedOp`` at the call, which names the change
    needed.
    """

    dtypes: ClassVar[tuple[DType, ...]] = dtypes_of("f16 bf16 f32 f64 i8 f8_e4m3 f8_e5m2")

    bias: In | None = None
    aux: In | None = None
    epilogue: Epilogue = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_start(self, "bias", self.bias)
        if differs(self.alpha, 1.0) or differs(self.beta, 0.0):
            named = self.out.dtype.name if self.out is not None else self.out_dtype
            if self.a.dtype.name == "i8" and named in (None, "i32"):
                check_gemm_numbers(self, self.a.dtype, alpha=self.alpha, beta=self.beta)

    def infer(self) -> Outputs:
        _, _, result = self.product()
        self.check_bias_given(self.bias, result)
        self.check_aux_given(self.aux, result)
        return {"out": result}


class MatmulAux(Product[MatmulWithAux], tag="blas_lt.matmul_aux"):
    """A product with activation that also returns the data for the backward pass: ``out`` and ``aux``.

    Args:
        a, b, out, c, scale_a, scale_b, scale_out, amax, alpha, beta, transpose_a, transpose_b, out_dtype, tf32: See
            :class:`Matmul`; the factors are f16, bf16, f32, f64 or fp8.
        fast_accum, deterministic, autotune, workspace_size: See :class:`Matmul`.
        bias: ``[n]``, or ``[batch, n]`` for a batch.
        aux: Row-major; a new array when None. GELU: the pre-activation, ``[m, n]``, dtype of ``out`` (bf16 if that
            is fp8). ReLU: bits that are 1 where the pre-activation is 0 or more, as u8 of shape
            ``[m, ceil(n / 128) * 16]``, in which bit ``j % 8`` (counted from the lowest) of byte ``j // 8`` belongs to
            column ``j``; bits from ``n`` on, and those of NaN, are unspecified.
        epilogue: ``relu_aux``, ``relu_aux_bias``, ``gelu_aux`` or ``gelu_aux_bias``.

    ``aux`` has one form on all backends: the forward pass may run on one and the backward pass on another.
    """

    dtypes: ClassVar[tuple[DType, ...]] = dtypes_of("f16 bf16 f32 f64 f8_e4m3 f8_e5m2")
    returns: ClassVar[tuple[str, ...]] = ("out", "aux")
    results: ClassVar[type[Any] | None] = MatmulWithAux

    bias: In | None = None
    aux: Out | None = None
    epilogue: AuxEpilogue = "gelu_aux"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_start(self, "bias", self.bias)

    def infer(self) -> Outputs:
        _, _, result = self.product()
        self.check_bias_given(self.bias, result)
        if self.aux is not None and self.aux.ndim in (2, 3):
            rows(self, "aux", self.aux.layout)
        return {"out": result, "aux": self.aux_of(result)}


class MatmulBgrad(Product[MatmulWithBgrad], tag="blas_lt.matmul_bgrad"):
    """A product of the backward pass that also sums the gradient of a bias: ``out`` and ``bias_grad``.

    Args:
        a, b, out, c, scale_a, scale_b, scale_out, amax, alpha, beta, transpose_a, transpose_b, out_dtype, tf32: See
            :class:`Matmul`; the factors are f16, bf16, f32, f64 or fp8.
        fast_accum, deterministic, autotune, workspace_size: See :class:`Matmul`.
        aux: Array for ``drelu_bgrad`` and ``dgelu_bgrad`` that the forward pass returned (:class:`MatmulAux`).
        bias_grad: A new array when None; dtype of a bias; no gaps. ``drelu_bgrad`` and ``dgelu_bgrad``: the sum of
            ``out`` over its rows, ``[n]``. ``bgrad_a``: of ``op(a)`` over ``k``, ``[m]``; ``bgrad_b``: of ``op(b)``
            over ``k``, ``[n]`` (scales and ``alpha`` do not enter). With a batch axis in front for a batch.
        epilogue: ``drelu_bgrad``, ``dgelu_bgrad``, ``bgrad_a`` or ``bgrad_b``.

    With ``x`` the input of a layer and ``dy`` the gradient at its output, ``bgrad_b`` of ``x.T @ dy`` gives the
    gradients of weights and bias at once.
    """

    dtypes: ClassVar[tuple[DType, ...]] = dtypes_of("f16 bf16 f32 f64 f8_e4m3 f8_e5m2")
    returns: ClassVar[tuple[str, ...]] = ("out", "bias_grad")
    results: ClassVar[type[Any] | None] = MatmulWithBgrad

    aux: In | None = None
    bias_grad: Out | None = None
    epilogue: BgradEpilogue = "bgrad_b"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_start(self, "bias_grad", self.bias_grad)

    def infer(self) -> Outputs:
        _, _, result = self.product()
        self.check_aux_given(self.aux, result)
        length = result.shape[-2] if self.traits.grad == "a" else result.shape[-1]
        shape = (*result.shape[:-2], length)
        grad = layout_of(bias_dtype(self.a.dtype, result.dtype), shape)
        given = self.bias_grad
        if given is not None and given.shape == shape and length > 1 and given.strides[-1] != 1:
            raise refuse(self, f"bias_grad is {given.layout!r}; its last axis must have no gaps: give another one")
        return {"out": result, "bias_grad": grad}
