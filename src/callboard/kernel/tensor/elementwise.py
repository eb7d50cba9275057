"""Reductions, permutations, and two or three tensors combined element by element, with operators on each of them."""

from typing import ClassVar

from callboard.core.dtype import DType
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Operand, Out, Scalar, differs
from callboard.core.ref import GpuRef
from callboard.kernel.blas.checks import check_addend, check_scalars, dtype_of
from callboard.kernel.checks import refuse
from callboard.kernel.tensor.actor import TensorActor
from callboard.kernel.tensor.checks import check_numbers
from callboard.kernel.tensor.modes import Label, Modes, ModeTable, Tensor
from callboard.kernel.tensor.operators import DTYPES_OF_TENSORS, Binary, Unary, check_binary, check_unary

__all__ = ["ElementwiseBinary", "ElementwiseTrinary", "Permutation", "Reduction", "modes_of"]

Named = tuple[dict[str, Tensor], Tensor, dict[Label, int]]


class Reduction(Op[TensorActor, GpuRef], tag="tensor.reduction"):
    """``out[modes_out] = alpha * op_reduce(op_a(a)[modes_a]) + beta * op_c(c)[modes_out]``.

    Reduced are the modes that are not in ``modes_out``.

    Args:
        a: f16, bf16, f32, f64, c64, c128, i32 or i64; any axes and strides.
        modes_a: Names of its axes: ``"ij"`` or integers. Twice the same: the diagonal.
        modes_out: Names of the result's axes, in order, each once; each a mode of ``a``.
        out: Same dtype, any strides; a new row-major array when None. May be ``c``.
        c: Shape of the result, same dtype; not read while ``beta`` is 0.
        op_reduce: ``"add"`` (0 of nothing), ``"mul"`` (1 of nothing); of real arrays also ``"max"`` and ``"min"``,
            which are NaN if an element is, and refused of nothing.
        alpha, beta: Number or 0-d array (f32 for f16 and bf16, else the arrays' dtype); integers for integers.
            While ``alpha`` is 0, the reduction counts as 0.
        op_a, op_c: Applied to each element first; see :data:`callboard.kernel.tensor.operators.Unary`.

    f16 and bf16 are reduced in f32 and rounded once; sums of integers wrap around. Elements are combined in a fixed
    order: equal calls give equal bits.
    """

    dtypes: ClassVar[tuple[DType, ...]] = DTYPES_OF_TENSORS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "c")})

    a: In
    modes_a: Modes
    modes_out: Modes
    out: Out | None = None
    c: In | None = None
    op_reduce: Binary = "add"
    alpha: Scalar = 1.0
    beta: Scalar = 0.0
    op_a: Unary = "identity"
    op_c: Unary = "identity"

    def __post_init__(self) -> None:
        super().__post_init__()
        if differs(self.beta, 0.0) or differs(self.alpha, 1.0):
            check_numbers(self, self.a.dtype, self.c, self.beta, alpha=self.alpha)

    def infer(self) -> Outputs:
        dtype = dtype_of(self, DTYPES_OF_TENSORS, a=self.a)
        _, result, _ = modes_of(self)
        check_addend(self, "c", self.c, result.layout)
        check_scalars(self, dtype, alpha=self.alpha, beta=self.beta)
        check_binary(self, dtype, op_reduce=self.op_reduce)
        check_unary(self, dtype, op_a=self.op_a, op_c=self.op_c)
        if self.op_reduce in ("max", "min") and result.layout.size and not self.a.size:
            raise refuse(self, f"a is {self.a.layout!r}: nothing has no {self.op_reduce} (use 'add' or 'mul')")
        return {"out": result.layout}


class Permutation(Op[TensorActor, GpuRef], tag="tensor.permutation"):
    """``out[modes_out] = alpha * op_a(a)[modes_a]``: the axes in another order.

    Args:
        a: f16, bf16, f32, f64, c64, c128, i32 or i64; any axes and strides.
        modes_a: Names of its axes: ``"ij"`` or integers. Twice the same: the diagonal.
        modes_out: The same modes in the result's order, each once.
        out: Same dtype, any strides; a new row-major array when None.
        alpha: Number or 0-d array (f32 for f16 and bf16, else the arrays' dtype); an integer for integers.
        op_a: Applied to each element first; see :data:`callboard.kernel.tensor.operators.Unary`.
    """

    dtypes: ClassVar[tuple[DType, ...]] = DTYPES_OF_TENSORS

    a: In
    modes_a: Modes
    modes_out: Modes
    out: Out | None = None
    alpha: Scalar = 1.0
    op_a: Unary = "identity"

    def __post_init__(self) -> None:
        super().__post_init__()
        if differs(self.alpha, 1.0):
            check_numbers(self, self.a.dtype, alpha=self.alpha)

    def infer(self) -> Outputs:
        dtype = dtype_of(self, DTYPES_OF_TENSORS, a=self.a)
        _, result, extents = modes_of(self)
        _check_kept(self, extents)
        check_scalars(self, dtype, alpha=self.alpha)
        check_unary(self, dtype, op_a=self.op_a)
        return {"out": result.layout}


class ElementwiseBinary(Op[TensorActor, GpuRef], tag="tensor.elementwise_binary"):
    """``out[modes_out] = op_ac(alpha * op_a(a)[modes_a], gamma * op_c(c)[modes_out])``.

    Args:
        a: f16, bf16, f32, f64, c64, c128, i32 or i64; any axes and strides.
        c: Shape of the result, same dtype.
        modes_a: Names of its axes: ``"ij"`` or integers. Twice the same: the diagonal. ``a`` is repeated along the
            modes of the result that it does not have.
        modes_out: Names of the axes of ``c`` and of the result, each once.
        out: Same dtype and shape as ``c``, any strides; a new row-major array when None. May be ``c``.
        op_ac: ``"add"``, ``"mul"``; of real arrays also ``"max"`` and ``"min"``, which are NaN if an operand is.
        alpha, gamma: Number or 0-d array (f32 for f16 and bf16, else the arrays' dtype); integers for integers.
            An operand whose factor is 0 counts as 0 and is not read.
        op_a, op_c: Applied to each element first; see :data:`callboard.kernel.tensor.operators.Unary`.

    f16 and bf16 are computed in f32 and rounded once; integers wrap around.
    """

    dtypes: ClassVar[tuple[DType, ...]] = DTYPES_OF_TENSORS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "c")})

    a: In
    c: In
    modes_a: Modes
    modes_out: Modes
    out: Out | None = None
    op_ac: Binary = "add"
    alpha: Scalar = 1.0
    gamma: Scalar = 1.0
    op_a: Unary = "identity"
    op_c: Unary = "identity"

    def __post_init__(self) -> None:
        super().__post_init__()
        if differs(self.alpha, 1.0) or differs(self.gamma, 1.0):
            check_numbers(self, self.a.dtype, alpha=self.alpha, gamma=self.gamma)

    def infer(self) -> Outputs:
        dtype = dtype_of(self, DTYPES_OF_TENSORS, a=self.a, c=self.c)
        _, result, extents = modes_of(self)
        _check_kept(self, extents)
        check_scalars(self, dtype, alpha=self.alpha, gamma=self.gamma)
        check_binary(self, dtype, op_ac=self.op_ac)
        check_unary(self, dtype, op_a=self.op_a, op_c=self.op_c)
        return {"out": result.layout}


class ElementwiseTrinary(Op[TensorActor, GpuRef], tag="tensor.elementwise_trinary"):
    """``out = op_abc(op_ab(alpha * op_a(a), beta * op_b(b)), gamma * op_c(c))``, each by its modes.

    Args:
        a, b: f16, bf16, f32, f64, c64, c128, i32 or i64, one dtype; any axes and strides.
        c: Shape of the result, same dtype.
        modes_a, modes_b: Names of their axes, as in :class:`ElementwiseBinary`.
        modes_out: Names of the axes of ``c`` and of the result, each once.
        out: Same dtype and shape as ``c``, any strides; a new row-major array when None. May be ``c``.
        op_ab, op_abc, alpha, beta, gamma, op_a, op_b, op_c: See :class:`ElementwiseBinary`.
    """

    dtypes: ClassVar[tuple[DType, ...]] = DTYPES_OF_TENSORS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "c")})

    a: In
    b: In
    c: In
    modes_a: Modes
    modes_b: Modes
    modes_out: Modes
    out: Out | None = None
    op_ab: Binary = "add"
    op_abc: Binary = "add"
    alpha: Scalar = 1.0
    beta: Scalar = 1.0
    gamma: Scalar = 1.0
    op_a: Unary = "identity"
    op_b: Unary = "identity"
    op_c: Unary = "identity"

    def __post_init__(self) -> None:
        super().__post_init__()
        if differs(self.alpha, 1.0) or differs(self.beta, 1.0) or differs(self.gamma, 1.0):
            check_numbers(self, self.a.dtype, self.c, self.beta, alpha=self.alpha, gamma=self.gamma)

    def infer(self) -> Outputs:
        dtype = dtype_of(self, DTYPES_OF_TENSORS, a=self.a, b=self.b, c=self.c)
        _, result, extents = modes_of(self)
        _check_kept(self, extents)
        check_scalars(self, dtype, alpha=self.alpha, beta=self.beta, gamma=self.gamma)
        check_binary(self, dtype, op_ab=self.op_ab, op_abc=self.op_abc)
        check_unary(self, dtype, op_a=self.op_a, op_b=self.op_b, op_c=self.op_c)
        return {"out": result.layout}


def modes_of(op: Reduction | Permutation | ElementwiseBinary | ElementwiseTrinary) -> Named:
    """The operands by name and modes, the result (row-major), and the extents of all modes.

    Raises:
        ShapeError: They do not fit; names mode and extents.
    """
    table = ModeTable(op)
    found = {"a": table.add("a", op.modes_a, op.a)}
    if isinstance(op, ElementwiseTrinary):
        found["b"] = table.add("b", op.modes_b, op.b)
    c: Operand | None = None if isinstance(op, Permutation) else op.c
    if isinstance(op, ElementwiseBinary | ElementwiseTrinary):
        table.add("out", op.modes_out, op.c)
    result = table.result(op.modes_out, op.a.layout)
    if c is not None:
        found["c"] = Tensor(result.labels, c.layout)
    return found, result, table.extents


def _check_kept(op: Permutation | ElementwiseBinary | ElementwiseTrinary, extents: dict[Label, int]) -> None:
    lost = [label for label in extents if label not in tuple(op.modes_out)]
    if lost:
        raise refuse(op, f"modes_out {op.modes_out!r} leaves out {lost[0]!r}; name it, or sum over it with reduction")
