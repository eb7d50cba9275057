"""The fused matrix products.

One message for each kind of answer: ``out`` alone, ``out`` and what the backward pass needs, ``out`` and the gradient
of a bias. ``a`` and ``b`` are row- or column-major (a transposed view); everything else is row-major. Nothing is copied
behind the caller's back.
"""

from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout, layout_of
from callboard.core.mode import Mode
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, InOut, Operand, Out, Scalar
from callboard.core.ref import GpuRef
from callboard.kernel.blas.checks import check_addend_given, check_gemm_numbers, check_tf32, refuse
from callboard.kernel.blas_lt.actor import BlasLtActor
from callboard.kernel.blas_lt.checks import (
    Stack,
    aux_layout,
    bias_dtype,
    check_bias,
    check_scale,
    is_fp8,
    kept_dtype,
    result_dtype,
    rows,
    scale_dtype,
    stack,
)
from callboard.kernel.blas_lt.epilogues import AUX, BGRAD, EPILOGUES, AuxEpilogue, BgradEpilogue, Epilogue, Traits

__all__ = ["MAX_CANDIDATES", "WORKSPACE", "Matmul", "MatmulAux", "MatmulBgrad", "MatmulWithAux", "MatmulWithBgrad"]

R_co = TypeVar("R_co", covariant=True)

WORKSPACE = 32 << 20
"""Bytes; NVIDIA's recommendation for Hopper."""
MAX_CANDIDATES = 64


class MatmulWithAux(NamedTuple, Generic[Mode]):
    """The answer of :class:`MatmulAux`."""

    out: GpuRef[Mode]
    aux: GpuRef[Mode]


class MatmulWithBgrad(NamedTuple, Generic[Mode]):
    """The answer of :class:`MatmulBgrad`."""

    out: GpuRef[Mode]
    bias_grad: GpuRef[Mode]


class Product(Op[BlasLtActor, R_co]):
    """What the messages of this module share; not sent itself. :class:`Matmul` explains the fields."""

    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "c")})

    a: In
    b: In
    out: Out | None = None
    c: In | None = None
    scale_a: In | None = None
    scale_b: In | None = None
    scale_out: In | None = None
    amax: InOut | None = None
    alpha: Scalar = 1.0
    beta: Scalar = 0.0
    epilogue: str = "none"
    transpose_a: bool = False
    transpose_b: bool = False
    out_dtype: str | None = None
    tf32: bool | None = None
    fast_accum: bool = False
    deterministic: bool = False
    autotune: int = 0
    workspace_size: int = WORKSPACE

    @property
    def traits(self) -> Traits:
        """What its epilogue does."""
        return EPILOGUES[self.epilogue]

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except TypeError:
            _check_answer(self, self.epilogue)
            raise
        if self.beta != 0.0 or self.alpha != 1.0:
            check_addend_given(self, "c", self.c, self.beta)

    def product(self) -> "tuple[Stack, Stack, Layout]":
        """Both factors and the layout of the result, all checks done that every epilogue shares."""
        dtype = result_dtype(self, self.a, self.b, self.out, self.out_dtype)
        a, b = stack(self, "a", self.a.layout), stack(self, "b", self.b.layout)
        m, k = (a.form.cols, a.form.rows) if self.transpose_a else (a.form.rows, a.form.cols)
        k_b, n = (b.form.cols, b.form.rows) if self.transpose_b else (b.form.rows, b.form.cols)
        if k != k_b:
            raise refuse(
                self,
                f"a is {self.a.layout!r} and b is {self.b.layout!r}: op(a) is [{m}, {k}] and op(b) [{k_b}, {n}]; "
                f"their inner extents must be equal (see transpose_a, transpose_b)",
            )
        if a.matrices != b.matrices and 1 not in (a.matrices, b.matrices):
            raise refuse(
                self,
                f"a is {self.a.layout!r} and b is {self.b.layout!r}: {a.matrices} and {b.matrices} matrices; "
                f"the first extents must be equal, or one of them 1",
            )
        batch = (b.matrices if a.matrices == 1 else a.matrices,) if a.stacked or b.stacked else ()
        result = layout_of(dtype, (*batch, m, n))
        self._check_operands(result, m, n, k)
        self._check_settings(dtype)
        return a, b, result

    def _check_operands(self, result: Layout, m: int, n: int, k: int) -> None:
        factor, dtype = self.a.dtype, result.dtype
        if self.out is not None:
            rows(self, "out", self.out.layout)
        if self.c is not None:
            want = layout_of(kept_dtype(dtype), result.shape)
            if self.c.dtype is not want.dtype or self.c.shape != want.shape:
                raise refuse(self, f"c is {self.c.layout!r}, expected {want!r}")
            rows(self, "c", self.c.layout)
        kinds = (
            check_scale(self, "scale_a", self.scale_a, self.a, m, k),
            check_scale(self, "scale_b", self.scale_b, self.b, n, k),
        )
        if (kinds[0] or "tensor") != (kinds[1] or "tensor") and set(kinds) != {"block_1d", "block_2d"}:
            raise refuse(
                self,
                f"scale_a scales by {kinds[0] or 'tensor'} and scale_b by {kinds[1] or 'tensor'}; both must scale by "
                f"tensor, by row and column, or by blocks",
            )
        for name, operand in (("scale_out", self.scale_out), ("amax", self.amax)):
            if operand is None:
                continue
            if not is_fp8(dtype):
                raise refuse(self, f"{name} is {operand.layout!r} and out is {dtype}; it goes with an fp8 out only")
            if operand.shape != () or operand.dtype is not DTYPES["f32"]:
                raise refuse(self, f"{name} is {operand.layout!r}; it must be a 0-d array of f32")
        want_scale = scale_dtype(factor, dtype)
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if isinstance(value, Operand) and value.dtype is not want_scale:
                raise refuse(
                    self, f"{name} is {value.layout!r}; for {factor} to {dtype} a 0-d array must be {want_scale}"
                )
            if isinstance(value, complex):
                raise refuse(self, f"{name} is complex and the arrays are {factor}; pass a real number")

    def _check_settings(self, dtype: DType) -> None:
        check_tf32(self, self.tf32, self.a.dtype)
        if self.fast_accum and not is_fp8(self.a.dtype):
            raise refuse(self, f"fast_accum is True and a is {self.a.dtype}; leave it out, it applies to fp8 only")
        if not 0 <= self.autotune <= MAX_CANDIDATES:
            raise refuse(self, f"autotune is {self.autotune}; it must be a number of candidates, 0 to {MAX_CANDIDATES}")
        if self.autotune and self.deterministic:
            raise refuse(
                self, "autotune and deterministic: what is fastest differs from run to run; choose one of them"
            )
        if self.workspace_size < 0:
            raise refuse(self, f"workspace_size is {self.workspace_size}; it must be a number of bytes, 0 or more")
        if self.a.dtype.name == "i8" and self.traits != Traits():
            raise refuse(self, f"epilogue is {self.epilogue!r} and a is i8; integer products take 'none' only")

    def check_bias_given(self, bias: Operand | None, result: Layout) -> None:
        """A bias exactly where the epilogue adds one."""
        name = self.epilogue
        if self.traits.bias != (bias is not None):
            cure = "pass bias=" if bias is None else f"take an epilogue with bias, {_with_bias(name)!r}"
            raise refuse(
                self, f"epilogue is {name!r} and bias is {'None' if bias is None else repr(bias.layout)}; {cure}"
            )
        if bias is not None:
            stacked = len(result.shape) == 3
            dtype = bias_dtype(self.a.dtype, result.dtype)
            check_bias(self, bias, result.shape[-1], result.shape[0] if stacked else 1, stacked, dtype)

    def aux_of(self, result: Layout) -> Layout:
        """The auxiliary array that belongs to the result."""
        assert self.traits.activation is not None
        return aux_layout(self.traits.activation, result.shape, kept_dtype(result.dtype))

    def check_aux_given(self, aux: Operand | None, result: Layout) -> None:
        """An auxiliary array to read exactly where the epilogue reads one."""
        name = self.epilogue
        if self.traits.backward != (aux is not None):
            cure = (
                f"pass the aux of the forward pass ({name.partition('_')[0][1:]}_aux)"
                if aux is None
                else "leave it out"
            )
            raise refuse(self, f"epilogue is {name!r} and aux is {'None' if aux is None else repr(aux.layout)}; {cure}")
        if aux is not None:
            want = self.aux_of(result)
            if aux.dtype is not want.dtype or aux.shape != want.shape:
                raise refuse(self, f"aux is {aux.layout!r}, expected {want!r}, as the forward pass made it")
            rows(self, "aux", aux.layout)


class Matmul(Product[GpuRef], tag="blas_lt.matmul"):
    """``out = activation(alpha * op(a) @ op(b) + beta * c + bias)`` (``MatmulRequest``).

    Args:
        a: ``[m, k]`` (``[k, m]`` when ``transpose_a``), or a batch ``[batch, m, k]``; f16, bf16, f32, f64, i8, f8_e4m3
            or f8_e5m2; row- or column-major. Without a batch axis, or with one of extent 1, it serves the whole batch.
        b: ``[k, n]`` (``[n, k]`` when ``transpose_b``), or a batch of them; the same dtype (the fp8 types mix);
            the rest as ``a``.
        out: ``[m, n]`` or ``[batch, m, n]``, row-major (rows may be apart); a new array when None. May be ``c``.
        c: Shape and dtype of ``out`` (bf16 where that is fp8), row-major; not read while ``beta`` is 0.
        bias: ``[n]``, or ``[batch, n]`` for a batch: added to each row. Dtype of ``out``; beside fp8 factors
            bf16 (f16 where ``out`` is).
        aux: For ``drelu`` and ``dgelu``: what the forward pass kept (:class:`MatmulAux`), row-major.
        scale_a, scale_b: What fp8 factors are multiplied by, f32: a 0-d array; one number for each row of ``op(a)``
            (``[m]``) and each column of ``op(b)`` (``[n]``); or one for each 128 elements along ``k``
            (``[m, k / 128]``, ``[k / 128, n]``) or each 128x128 (``[m / 128, k / 128]``, ``[k / 128, n / 128]``), all
            quotients rounded up. None: 1.
        scale_out: 0-d, f32: what an fp8 result is multiplied by before it is rounded. None: 1.
        amax: 0-d, f32: set to the largest absolute value of an fp8 result before ``scale_out``. None: not wanted.
        alpha, beta: Number or 0-d array (f32; f64 beside f64; i32, and whole numbers, where i8 gives i32).
        epilogue: ``none``, ``relu``, ``bias``, ``relu_bias``, ``gelu``, ``gelu_bias``; or ``drelu``, ``dgelu``: the
            product (with ``beta * c``) times the derivative at ``aux``.
        transpose_a, transpose_b: Use ``a.T``, ``b.T`` (of each matrix).
        out_dtype: Of a new ``out``. f16 and bf16 give their own (the default) or f32; i8 gives i32 or i8; fp8 gives
            bf16, f16, f32, f8_e4m3 or f8_e5m2.
        tf32: Whether f32 factors may be rounded to TF32 (10 bits of mantissa); None: no.
        fast_accum: fp8 products may be summed with 14 bits (Hopper), which is faster.
        deterministic: Take no algorithm whose partial sums arrive in any order.
        autotune: So many candidates are timed when a product of this kind is first met, and the fastest is kept; 0: the
            library's own guess. On the device; up to 64.
        workspace_size: Bytes of scratch that an algorithm may use.

    Halves and fp8 are summed in f32, i8 in i32 (which wraps around); fp8 and i8 results saturate. The CPU rounds every
    result once; some of cuBLASLt's kernels also round a product before they add a bias or multiply by a derivative.
    GELU is the tanh form (Hendrycks and Gimpel, arXiv:1606.08415); cuBLASLt evaluates it to about 1e-5 in f32.

    On CUDA, fp8 factors need their inner axis adjacent in memory (``b`` transposed: ``dev.put(b.T.copy()).T``) and rows
    in steps of 16 bytes. Whatever is not executed there is an ``UnsupportedOp`` at the call, which says what to change.
    """

    bias: In | None = None
    aux: In | None = None
    epilogue: Epilogue = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha != 1.0 or self.beta != 0.0:
            named = self.out.dtype.name if self.out is not None else self.out_dtype
            if self.a.dtype.name == "i8" and named in (None, "i32"):
                check_gemm_numbers(self, self.a.dtype, alpha=self.alpha, beta=self.beta)

    def infer(self) -> Outputs:
        _, _, result = self.product()
        self.check_bias_given(self.bias, result)
        self.check_aux_given(self.aux, result)
        return {"out": result}


class MatmulAux(Product[MatmulWithAux], tag="blas_lt.matmul_aux"):
    """A product with activation that also answers what the backward pass needs: ``out`` and ``aux``.

    Args:
        a, b, out, c, scale_a, scale_b, scale_out, amax, alpha, beta, transpose_a, transpose_b, out_dtype, tf32: As for
            :class:`Matmul`; f16, bf16, f32, f64 or fp8.
        fast_accum, deterministic, autotune, workspace_size: As for :class:`Matmul`.
        bias: ``[n]``, or ``[batch, n]`` for a batch.
        aux: Row-major; a new array when None. GELU: the pre-activation, ``[m, n]``, dtype of ``out`` (bf16 where that
            is fp8). ReLU: where the pre-activation is 0 or more, as bits: u8 of shape ``[m, ceil(n / 128) * 16]``,
            in which bit ``j % 8`` (counted from the lowest) of byte ``j // 8`` belongs to column ``j``; bits from ``n``
            on, and those of NaN, mean nothing.
        epilogue: ``relu_aux``, ``relu_aux_bias``, ``gelu_aux`` or ``gelu_aux_bias``.

    ``aux`` has one form on all backends: the forward pass may run on one and the backward pass on another.
    """

    returns: ClassVar[tuple[str, ...]] = ("out", "aux")
    results: ClassVar[type[Any] | None] = MatmulWithAux

    bias: In | None = None
    aux: Out | None = None
    epilogue: AuxEpilogue = "gelu_aux"

    def infer(self) -> Outputs:
        _, _, result = self.product()
        self.check_bias_given(self.bias, result)
        if self.aux is not None and self.aux.ndim in (2, 3):
            rows(self, "aux", self.aux.layout)
        return {"out": result, "aux": self.aux_of(result)}


class MatmulBgrad(Product[MatmulWithBgrad], tag="blas_lt.matmul_bgrad"):
    """A product of the backward pass that also sums the gradient of a bias: ``out`` and ``bias_grad``.

    Args:
        a, b, out, c, scale_a, scale_b, scale_out, amax, alpha, beta, transpose_a, transpose_b, out_dtype, tf32: As for
            :class:`Matmul`; f16, bf16, f32, f64 or fp8.
        fast_accum, deterministic, autotune, workspace_size: As for :class:`Matmul`.
        aux: For ``drelu_bgrad`` and ``dgelu_bgrad``: what the forward pass kept (:class:`MatmulAux`).
        bias_grad: A new array when None; dtype of a bias; no gaps. ``drelu_bgrad`` and ``dgelu_bgrad``: the sum of
            ``out`` over its rows, ``[n]``. ``bgrad_a``: of ``op(a)`` over ``k``, ``[m]``; ``bgrad_b``: of ``op(b)``
            over ``k``, ``[n]`` (scales and ``alpha`` do not enter). With a batch axis in front for a batch.
        epilogue: ``drelu_bgrad``, ``dgelu_bgrad``, ``bgrad_a`` or ``bgrad_b``.

    With ``x`` the input of a layer and ``dy`` the gradient at its output, ``bgrad_b`` of ``x.T @ dy`` gives the
    gradients of weights and bias at once.
    """

    returns: ClassVar[tuple[str, ...]] = ("out", "bias_grad")
    results: ClassVar[type[Any] | None] = MatmulWithBgrad

    aux: In | None = None
    bias_grad: Out | None = None
    epilogue: BgradEpilogue = "bgrad_b"

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


def _check_answer(op: Product[R_co], epilogue: object) -> None:
    """An epilogue of another message is refused by naming that message."""
    own = AUX if isinstance(op, MatmulAux) else BGRAD if isinstance(op, MatmulBgrad) else None
    if isinstance(epilogue, str) and epilogue in EPILOGUES:
        other = "matmul_aux" if epilogue in AUX else "matmul_bgrad" if epilogue in BGRAD else "matmul"
        mine = "matmul" if own is None else "matmul_aux" if own is AUX else "matmul_bgrad"
        if other != mine:
            raise refuse(op, f"epilogue is {epilogue!r}, which has another answer; use dev.blas_lt.{other}")


def _with_bias(name: str) -> str:
    return "bias" if name == "none" else f"{name}_bias"
