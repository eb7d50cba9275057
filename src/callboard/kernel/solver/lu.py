"""LU: factorisation, solve, inverse, determinant.

Operands of any strides; ``a`` is only read. Where an op has an output of an input's shape, the input itself may be
given as that output. NaN and infinities in the operands are a :class:`NumericalError
<callboard.core.errors.NumericalError>`.
"""

from typing import Any, ClassVar, Generic, Literal, NamedTuple

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.mode import Mode
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.solver.actor import SolverActor
from callboard.kernel.solver.checks import FLOATS, INDICES, dtype_of, matrix, pivots_of, right_hand_side, shaped, square

__all__ = ["Determinant", "Inverse", "Lu", "LuResult", "LuSolve", "Solve", "Transpose"]

Transpose = Literal["n", "t", "c"]
"""Solve with the matrix, with its transpose, or with its conjugate transpose."""


class LuResult(NamedTuple, Generic[Mode]):
    """``a[perm] = L @ U``, packed as ``scipy.linalg.lu_factor`` does.

    Attributes:
        lu: U on and above the diagonal; L below it, whose diagonal of ones is not stored.
        pivots: Row ``i`` was exchanged with row ``pivots[i]``, one after the other; 0-based.
    """

    lu: GpuRef[Mode]
    pivots: GpuRef[Mode]


class Lu(Op[SolverActor, LuResult], tag="solver.lu"):
    """LU factorisation with partial pivoting (``LuRequest``; LAPACK's ``getrf``).

    Fails with ``NumericalError`` if a pivot is exactly 0.

    Args:
        a: ``[m, n]``, f32, f64, c64 or c128.
        lu: ``[m, n]``, same dtype; may be ``a``.
        pivots: ``[min(m, n)]``, i32 (as new) or i64.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("lu", "pivots")
    results: ClassVar[type[Any] | None] = LuResult
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("lu", "a")})

    a: In
    lu: Out | None = None
    pivots: Out | None = None

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        _, m, n = matrix(self, "a", self.a)
        return {"lu": layout_of(dtype, (m, n)), "pivots": pivots_of(self, self.pivots, (min(m, n),))}


class LuSolve(Op[SolverActor, GpuRef], tag="solver.lu_solve"):
    """Solve ``op(a) @ x = b`` with the factors of ``a`` (``LuSolveRequest``; ``getrs``).

    Pivots that name no row raise ``NumericalError``. The diagonal of U is not checked for zeros: ``lu`` fails on them.

    Args:
        lu: ``[n, n]`` as returned by :class:`Lu`, f32, f64, c64 or c128.
        pivots: ``[n]``, i32 or i64, 0-based.
        b: ``[n]`` or ``[n, columns]``, dtype of ``lu``.
        x: Shape and dtype of ``b``; may be ``b``.
        transpose: ``"n"``: ``a @ x = b``; ``"t"``: ``a.T @ x = b``; ``"c"``: ``a.conj().T @ x = b``.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("x",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("x", "b")})

    lu: In
    pivots: In
    b: In
    x: Out | None = None
    transpose: Transpose = "n"

    def infer(self) -> Outputs:
        dtype = dtype_of(self, lu=self.lu, b=self.b)
        _, n = square(self, "lu", self.lu)
        right_hand_side(self, "b", self.b, n)
        if self.pivots.dtype not in INDICES:
            raise refuse(self, f"pivots is {self.pivots.layout!r}; its dtype must be i32 or i64")
        shaped(self, "pivots", self.pivots, (n,), f"lu of order {n}")
        return {"x": layout_of(dtype, self.b.shape)}


class Solve(Op[SolverActor, GpuRef], tag="solver.solve"):
    """Solve ``a @ x = b`` (``getrf`` and ``getrs``), as ``numpy.linalg.solve``.

    Fails with ``NumericalError`` if a pivot is exactly 0.

    Args:
        a: ``[n, n]``, f32, f64, c64 or c128.
        b: ``[n]`` or ``[n, columns]``, same dtype.
        x: Shape and dtype of ``b``; may be ``b``.
        check_finite: Refuse NaN and infinities. Without it a NaN in ``a`` makes the whole result NaN. So does an
            infinity on CUDA; the CPU computes with infinities as LAPACK does.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("x",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("x", "b")})

    a: In
    b: In
    x: Out | None = None
    check_finite: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a, b=self.b)
        _, n = square(self, "a", self.a)
        right_hand_side(self, "b", self.b, n)
        return {"x": layout_of(dtype, self.b.shape)}


class Inverse(Op[SolverActor, GpuRef], tag="solver.inverse"):
    """The inverse of ``a``, by LU. To solve equations, :class:`Solve` is faster and more accurate.

    Fails with ``NumericalError`` if a pivot is exactly 0.

    Args:
        a: ``[n, n]``, f32, f64, c64 or c128.
        out: Same shape and dtype; may be ``a``.
        check_finite: Refuse NaN and infinities. Without it a NaN in ``a`` makes the whole result NaN. So does an
            infinity on CUDA; the CPU computes with infinities as LAPACK does.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "a")})

    a: In
    out: Out | None = None
    check_finite: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        _, n = square(self, "a", self.a)
        return {"out": layout_of(dtype, (n, n))}


class Determinant(Op[SolverActor, GpuRef], tag="solver.determinant"):
    """The determinant of ``a``, by LU, as a 0-d array; 0 if a pivot is exactly 0, 1 for an empty matrix.

    Products that leave the dtype's range become infinities or 0.

    Args:
        a: ``[n, n]``, f32, f64, c64 or c128.
        out: 0-d, same dtype.
        check_finite: Refuse NaN and infinities. Without it a NaN in ``a`` makes the whole result NaN. So does an
            infinity on CUDA; the CPU computes with infinities as LAPACK does.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS

    a: In
    out: Out | None = None
    check_finite: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        square(self, "a", self.a)
        return {"out": layout_of(dtype, ())}
