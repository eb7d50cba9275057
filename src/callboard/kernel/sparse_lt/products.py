"""Products of a structured matrix with a dense one, and their epilogues."""

from typing import ClassVar, Literal, NamedTuple, TypeVar

from callboard.core.dtype import DTYPES, DType, DTypeLike
from callboard.core.layout import Layout, layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Operand, Out, Scalar, differs
from callboard.core.ref import GpuRef
from callboard.kernel.blas.checks import check_addend_given
from callboard.kernel.blas_lt.checks import Stack, kept_dtype, stack
from callboard.kernel.checks import refuse
from callboard.kernel.sparse_lt.actor import SparseLtActor
from callboard.kernel.sparse_lt.checks import bias_dtype, checked, result_dtype
from callboard.kernel.sparse_lt.structured import FACTORS, StructuredRef

__all__ = ["Activation", "Linear", "Matmul"]

R_co = TypeVar("R_co", covariant=True)
Activation = Literal["relu", "gelu"]


class ProductExtents(NamedTuple):
    """A product ``[outer, k] @ [k, n]``, the structured factor first.

    Attributes:
        outer: Rows of the structured matrix.
        n: The other extent of the result.
        k: The inner extent.
        batch: Products; 1 without a batch.
        stacked: The result has a batch axis.
    """

    outer: int
    n: int
    k: int
    batch: int
    stacked: bool


class Product(Op[SparseLtActor, R_co]):
    """Base of the messages; not sent itself. The fields are documented in ``Matmul``."""

    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "c")})

    out: Out | None = None
    c: In | None = None
    bias: In | None = None
    alpha: Scalar = 1.0
    beta: Scalar = 0.0
    activation: Activation | None = None
    out_dtype: DTypeLike | None = None
    autotune: bool = False

    structured_first: ClassVar[bool] = True

    def factors(self) -> tuple[StructuredRef, Operand]:
        """The structured factor, and the dense one as the message has it."""
        raise NotImplementedError  # both messages have it

    def __post_init__(self) -> None:
        super().__post_init__()
        if differs(self.beta, 0.0) or differs(self.alpha, 1.0):
            check_addend_given(self, "c", self.c, self.beta)

    def product(self) -> tuple[ProductExtents, Stack, Layout]:
        """Extents, the dense factor as the message has it, and the result's layout; everything has been checked."""
        first = self.structured_first
        names = ("a", "b") if first else ("w", "x")
        structured, dense = self.factors()
        factor = checked(self, names[0], structured)
        if dense.dtype is not factor:
            raise refuse(
                self, f"{names[1]} is {dense.layout!r} and {names[0]} holds {factor}; both must have one dtype"
            )
        other = stack(self, names[1], dense.layout)
        outer, k = structured.shape[-2:]
        k_other, n = (other.form.rows, other.form.cols) if first else (other.form.cols, other.form.rows)
        if k != k_other:
            raise refuse(
                self,
                f"{names[0]} is {factor}{list(structured.shape)} and {names[1]} is {dense.layout!r}: "
                f"{'the rows of b' if first else 'the columns of x'} must be {k}",
            )
        own = structured.shape[0] if len(structured.shape) == 3 else 1
        if own != other.matrices and 1 not in (own, other.matrices):
            raise refuse(
                self,
                f"{names[0]} is {factor}{list(structured.shape)} and {names[1]} is {dense.layout!r}: {own} and "
                f"{other.matrices} matrices; the first extents must be equal, or one of them 1",
            )
        stacked = len(structured.shape) == 3 or other.stacked
        extents = ProductExtents(outer, n, k, other.matrices if own == 1 else own, stacked)
        dtype = result_dtype(self, factor, self.out, self.out_dtype)
        shape = (outer, n) if first else (n, outer)
        result = layout_of(dtype, (extents.batch, *shape) if stacked else shape)
        self._check_given(extents, result)
        return extents, other, result

    def _check_given(self, extents: ProductExtents, result: Layout) -> None:
        factor, dtype = DTYPES[self.factors()[0].dtype], result.dtype
        if self.out is not None:
            stack(self, "out", self.out.layout)
        if self.c is not None:
            want = layout_of(kept_dtype(dtype), result.shape)
            if self.c.dtype is not want.dtype or self.c.shape != want.shape:
                raise refuse(self, f"c is {self.c.layout!r}, expected {want!r}")
            stack(self, "c", self.c.layout)
        if self.bias is not None:
            want = layout_of(bias_dtype(dtype), (extents.outer,))
            if self.bias.layout != want:
                raise refuse(
                    self,
                    f"bias is {self.bias.layout!r}, expected {want!r} without gaps: one number for each row of the "
                    f"structured matrix",
                )
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if isinstance(value, Operand) and value.dtype.name != "f32":
                raise refuse(self, f"{name} is {value.layout!r}; a 0-d array must be f32")
            if isinstance(value, complex):
                raise refuse(self, f"{name} is complex and the arrays are {factor}; pass a real number")

    def infer(self) -> Outputs:
        return {"out": self.product()[2]}


class Matmul(Product[GpuRef], tag="sparse_lt.matmul"):
    """``out = activation(alpha * a @ b + beta * c + bias)`` with a structured ``a``.

    Args:
        a: ``[m, k]`` or ``[batch, m, k]``.
        b: ``[k, n]`` or ``[batch, k, n]``, dtype of ``a``; row- or column-major (a transposed view), steps may be
            larger than rows. On CUDA f32 and single bytes must be column-major. Where one factor is a single matrix, it
            serves the whole batch.
        out: ``[m, n]`` or ``[batch, m, n]``, row- or column-major; a new row-major array when None. May be ``c``.
        c: Shape and dtype of ``out`` (bf16 for an fp8 ``out``); read only where ``beta`` is not 0.
        bias: ``[m]``, one number for each row of ``a``, without gaps; dtype of ``out``, f32 for an integer one, bf16
            beside an fp8 one.
        alpha, beta: Number or 0-d f32 array. On CUDA with an array, the product is stored before it is scaled, in f32
            or i32; f16 and bf16 products are rounded at that point too (and f16 may overflow). This takes another pass
            over the product.
        activation: ``"relu"``, ``"gelu"`` or None.
        out_dtype: The dtype of a new ``out``. f16, bf16 and f32 give their own; i8 gives i32 (the default), i8, f16 or
            bf16; fp8 gives bf16 (the default), f16, f32 or its own.
        autotune: Time cuSPARSELt's algorithms when a product of this kind is first met, and keep the fastest.

    Sums are kept in f32, those of i8 in i32; ``alpha``, ``beta``, bias and activation are computed in f32, and the
    result is rounded once. On CUDA, GELU is applied to the rounded result where cuSPARSELt has none (it has it for i8
    to i8, and for fp8 to bf16 or fp8). i8 and fp8 results saturate. On CUDA f32 factors are rounded to TF32 (10 bits of
    mantissa); cuSPARSELt has no other f32. GELU is the tanh form (Hendrycks and Gimpel, arXiv:1606.08415).
    """

    dtypes: ClassVar[tuple[DType, ...]] = FACTORS

    a: StructuredRef
    b: In

    def factors(self) -> tuple[StructuredRef, Operand]:
        return self.a, self.b


class Linear(Product[GpuRef], tag="sparse_lt.linear"):
    """``out = activation(alpha * x @ w.T + beta * c + bias)`` with a structured ``w``: a layer.

    Args:
        x: ``[n, k]`` or ``[batch, n, k]``, dtype of ``w``; row- or column-major. On CUDA f32 and single bytes must be
            row-major.
        w: ``[m, k]`` or ``[batch, m, k]``.
        out: ``[n, m]`` or ``[batch, n, m]``, row- or column-major; a new row-major array when None. May be ``c``.
        bias: ``[m]``, one number for each column of ``out``.
        c, alpha, beta, activation, out_dtype, autotune: See :class:`Matmul`, which also describes all else.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FACTORS
    structured_first: ClassVar[bool] = False

    x: In
    w: StructuredRef

    def factors(self) -> tuple[StructuredRef, Operand]:
        return self.w, self.x
