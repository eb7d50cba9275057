"""Contractions: of two tensors by modes, and of any number by an equation."""

from typing import ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out, Scalar, differs
from callboard.core.ref import GpuRef
from callboard.kernel.blas.checks import check_addend, check_scalars, dtype_of
from callboard.kernel.tensor.actor import TensorActor
from callboard.kernel.tensor.checks import Compute, check_compute, check_numbers
from callboard.kernel.tensor.equation import Equation, read_equation
from callboard.kernel.tensor.modes import Label, Modes, ModeTable, Tensor
from callboard.kernel.tensor.network import Optimize
from callboard.kernel.tensor.operators import DTYPES_OF_TENSORS, Conj

__all__ = ["Contract", "Einsum", "operands_of"]


class Contract(Op[TensorActor, GpuRef], tag="tensor.contract"):
    """``out[modes_out] = alpha * sum(op_a(a)[modes_a] * op_b(b)[modes_b]) + beta * op_c(c)[modes_out]``.

    The sum runs over every mode that is not in ``modes_out``. A mode of ``a`` alone or of ``b`` alone may be summed
    or kept, one of both may be kept (a batch), and nothing need be summed (an outer product).

    Args:
        a, b: f16, bf16, f32, f64, c64, c128, i32 or i64, one dtype; any axes and strides.
        modes_a, modes_b: Names of their axes: ``"ik"`` or integers. Twice the same: the diagonal.
        modes_out: Names of the result's axes, in order, each once; each a mode of ``a`` or ``b``.
        out: Same dtype, any strides; a new row-major array when None. May be ``c``.
        c: Shape of the result, same dtype; not read while ``beta`` is 0.
        alpha, beta: Number or 0-d array (f32 for f16 and bf16, else the arrays' dtype); integers for integers.
            Whether a NaN in ``a`` or ``b`` survives a factor of 0 depends on the backend.
        op_a, op_b, op_c: ``"conj"`` takes the conjugate; no effect on real arrays.
        compute: The dtype that f32 and c64 factors may be rounded to before they are multiplied (cuTENSOR's compute
            descriptors): ``"tf32"``, ``"bf16"`` or ``"f16"`` (which also has the range of f16); None and ``"f32"``: no
            rounding. A backend may compute more exactly than requested (the CPU does); a precision finer than the
            arrays' is rejected.
        autotune: Try the ways to lower this contraction when it is first met, and keep the fastest. A backend with one
            way ignores it. The bits of the result may then differ from run to run, as the way does.

    f16 and bf16 are multiplied and summed in f32 and rounded once; but sums over a mode of only one operand may be
    rounded to the dtype (and overflow in it) before they are multiplied. Integers wrap around.
    """

    dtypes: ClassVar[tuple[DType, ...]] = DTYPES_OF_TENSORS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "c")})

    a: In
    b: In
    modes_a: Modes
    modes_b: Modes
    modes_out: Modes
    out: Out | None = None
    c: In | None = None
    alpha: Scalar = 1.0
    beta: Scalar = 0.0
    op_a: Conj = "identity"
    op_b: Conj = "identity"
    op_c: Conj = "identity"
    compute: Compute | None = None
    autotune: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if differs(self.beta, 0.0) or differs(self.alpha, 1.0):
            check_numbers(self, self.a.dtype, self.c, self.beta, alpha=self.alpha)

    def infer(self) -> Outputs:
        dtype = dtype_of(self, DTYPES_OF_TENSORS, a=self.a, b=self.b)
        _, result, _ = operands_of(self)
        check_addend(self, "c", self.c, result.layout)
        check_scalars(self, dtype, alpha=self.alpha, beta=self.beta)
        check_compute(self, dtype, self.compute)
        return {"out": result.layout}


def operands_of(op: Contract) -> tuple[tuple[Tensor, Tensor], Tensor, dict[Label, int]]:
    """``a`` and ``b`` by their modes, the result (row-major), and the extents of all modes.

    Raises:
        ShapeError: They do not fit; names mode and extents.
    """
    table = ModeTable(op)
    a, b = table.add("a", op.modes_a, op.a), table.add("b", op.modes_b, op.b)
    return (a, b), table.result(op.modes_out, op.a.layout), table.extents


class Einsum(Op[TensorActor, GpuRef], tag="tensor.einsum"):
    """The sum of products that an equation names, as ``numpy.einsum``: ``"bhqd,bhkd->bhqk"``.

    Letters name axes; ``...`` stands for any further ones; a letter twice in one operand is its diagonal; without
    ``->``, the result has the ``...`` axes and then the letters that occur once, in alphabetical order. An axis of
    extent 1 is stretched to the extent that its mode has elsewhere.

    Args:
        equation: Blanks do not count.
        operands: Operands, as many as the equation has; f16, bf16, f32, f64, c64, c128, i32 or i64, one dtype; any
            strides.
        out: Same dtype, any strides; a new row-major array when None.
        optimize: Strategy by which opt_einsum chooses the order of the pairwise contractions.
        compute: See :class:`Contract`.
        autotune: See :class:`Contract`; applies to each contraction.

    f16 and bf16 are multiplied and summed in f32. With more than two operands, and for sums over a mode of only one
    operand, results between the steps may be rounded to the dtype (and overflow in it). Integers wrap around.
    """

    dtypes: ClassVar[tuple[DType, ...]] = DTYPES_OF_TENSORS
    variadic: ClassVar[str | None] = "operands"

    equation: str
    operands: tuple[In, ...]
    out: Out | None = None
    optimize: Optimize = "auto"
    compute: Compute | None = None
    autotune: bool = False

    def infer(self) -> Outputs:
        found = self.read()
        named = {f"operands[{i}]": operand for i, operand in enumerate(self.operands)}
        dtype = dtype_of(self, DTYPES_OF_TENSORS, **named)
        check_compute(self, dtype, self.compute)
        return {"out": layout_of(dtype, found.shape)}

    def read(self) -> Equation:
        """Resolve the equation for these operands.

        Raises:
            ShapeError: They do not fit it; names operand, mode and extents.
        """
        return read_equation(self, self.equation, self.operands)
