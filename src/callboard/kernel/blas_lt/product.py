"""``Product``: the base of the messages of a fused product, with their common checks."""

from typing import ClassVar, TypeVar

from callboard.core.dtype import DTYPES, DType, DTypeLike
from callboard.core.layout import Layout, layout_of
from callboard.core.op import Op, info_of
from callboard.core.operand import In, InOut, Operand, Out, Scalar, differs
from callboard.kernel.blas.checks import check_addend_given, check_tf32
from callboard.kernel.blas_lt.actor import BlasLtActor
from callboard.kernel.blas_lt.checks import (
    Stack,
    aux_layout,
    bias_dtype,
    check_bias,
    check_scale_start,
    check_scales,
    is_fp8,
    kept_dtype,
    result_dtype,
    rows,
    scale_dtype,
    stack,
)
from callboard.kernel.blas_lt.epilogues import AUX, BGRAD, EPILOGUES, Traits
from callboard.kernel.checks import refuse

__all__ = ["MAX_CANDIDATES", "WORKSPACE", "Product"]

R_co = TypeVar("R_co", covariant=True)

WORKSPACE = 32 << 20
"""Bytes; NVIDIA's recommendation for Hopper."""
MAX_CANDIDATES = 64


class Product(Op[BlasLtActor, R_co]):
    """Base of the messages; not sent itself. ``Matmul`` explains the fields."""

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
    out_dtype: DTypeLike | None = None
    tf32: bool | None = None
    fast_accum: bool = False
    deterministic: bool = False
    autotune: int = 0
    workspace_size: int = WORKSPACE

    @property
    def traits(self) -> Traits:
        """The properties of its epilogue."""
        return EPILOGUES[self.epilogue]

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except TypeError:
            _check_answer(self)
            raise
        if differs(self.beta, 0.0) or differs(self.alpha, 1.0):
            check_addend_given(self, "c", self.c, self.beta)
        if self.scale_a is not None or self.scale_b is not None:
            check_scale_start(self, "scale_a", self.scale_a)
            check_scale_start(self, "scale_b", self.scale_b)

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
        check_scales(self, (self.scale_a, self.scale_b), (self.a, self.b), m, n, k)
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
                self,
                "autotune and deterministic are both given, but the fastest algorithm differs from run to run; "
                "choose one of them",
            )
        if self.workspace_size < 0:
            raise refuse(self, f"workspace_size is {self.workspace_size}; it must be a number of bytes, 0 or more")
        if self.a.dtype.name == "i8" and self.traits != Traits():
            raise refuse(self, f"epilogue is {self.epilogue!r} and a is i8; integer products take 'none' only")

    def check_bias_given(self, bias: Operand | None, result: Layout) -> None:
        """A bias is given if and only if the epilogue adds one."""
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
        """An auxiliary array is given if and only if the epilogue reads one."""
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


def _check_answer(op: Product[R_co]) -> None:
    """An epilogue of another message is refused by naming that message."""
    name: object = op.epilogue
    if isinstance(name, str) and name in EPILOGUES:
        right = "matmul_aux" if name in AUX else "matmul_bgrad" if name in BGRAD else "matmul"
        if info_of(type(op)).tag != f"blas_lt.{right}":
            raise refuse(op, f"epilogue is {name!r}, which has another answer; use dev.blas_lt.{right}")


def _with_bias(name: str) -> str:
    return "bias" if name == "none" else f"{name}_bias"
