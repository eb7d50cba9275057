"""Many small matrices in one message: stacks ``[batch, …]`` of one shape.

Operands may have any strides; inputs are only read. A ``NumericalError`` names the first item that failed and the
number of failed items; no result of the stack can then be read. The whole stack is checked for NaN and infinities.
"""

from typing import Any, ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Operand, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import AnyOp, refuse
from callboard.kernel.solver.actor import SolverActor
from callboard.kernel.solver.checks import FLOATS, INDICES, dtype_of, matrix, pivots_of, shaped, square
from callboard.kernel.solver.eigen import EigResult
from callboard.kernel.solver.lu import LuResult, Transpose
from callboard.kernel.solver.qr import HouseholderResult
from callboard.kernel.solver.svd import SvdResult

__all__ = [
    "GelsBatched",
    "GeqrfBatched",
    "GesvdjBatched",
    "GesvdjValuesBatched",
    "GetrfBatched",
    "GetrsBatched",
    "PotrfBatched",
    "PotrsBatched",
    "SyevBatched",
]


def _right_hand_sides(op: AnyOp, b: Operand, batch: int, rows: int) -> int:
    """Columns of ``b``."""
    of_b, rows_b, columns = matrix(op, "b", b, batched=True)
    if (of_b, rows_b) != (batch, rows):
        raise refuse(op, f"b is {b.layout!r}; it must be [{batch}, {rows}, columns]")
    return columns


class GetrfBatched(Op[SolverActor, LuResult], tag="solver.getrf_batched"):
    """LU factorisations with partial pivoting (``GetrfBatchedRequest``).

    Args:
        a: ``[batch, n, n]``, f32, f64, c64 or c128.
        lu: Same shape and dtype; may be ``a``.
        pivots: ``[batch, n]``, i32 (as new) or i64, 0-based.
        check_finite: Refuse NaN and infinities. Without it they are computed with, as by LAPACK: NaN gives NaN.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("lu", "pivots")
    results: ClassVar[type[Any] | None] = LuResult
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("lu", "a")})

    a: In
    lu: Out | None = None
    pivots: Out | None = None
    check_finite: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        batch, n = square(self, "a", self.a, batched=True)
        return {"lu": layout_of(dtype, (batch, n, n)), "pivots": pivots_of(self, self.pivots, (batch, n))}


class GetrsBatched(Op[SolverActor, GpuRef], tag="solver.getrs_batched"):
    """Solve ``op(a[i]) @ x[i] = b[i]`` with the factors of :class:`GetrfBatched`.

    Args:
        lu: ``[batch, n, n]``, f32, f64, c64 or c128.
        pivots: ``[batch, n]``, i32 or i64, 0-based.
        b: ``[batch, n, columns]``, dtype of ``lu``.
        x: Shape and dtype of ``b``; may be ``b``.
        transpose: ``"n"``, ``"t"`` or ``"c"``, as for :class:`LuSolve <callboard.kernel.solver.lu.LuSolve>`.
        check_finite: Refuse NaN and infinities. Without it they are computed with, as by LAPACK: NaN gives NaN.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("x",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("x", "b")})

    lu: In
    pivots: In
    b: In
    x: Out | None = None
    transpose: Transpose = "n"
    check_finite: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, lu=self.lu, b=self.b)
        batch, n = square(self, "lu", self.lu, batched=True)
        _right_hand_sides(self, self.b, batch, n)
        if self.pivots.dtype not in INDICES:
            raise refuse(self, f"pivots is {self.pivots.layout!r}; its dtype must be i32 or i64")
        shaped(self, "pivots", self.pivots, (batch, n), f"lu of shape {list(self.lu.shape)}")
        return {"x": layout_of(dtype, self.b.shape)}


class PotrfBatched(Op[SolverActor, GpuRef], tag="solver.potrf_batched"):
    """Cholesky factors (``PotrfBatchedRequest``).

    Args:
        a: ``[batch, n, n]``, symmetric or Hermitian, f32, f64, c64 or c128; one triangle is read.
        out: Same shape and dtype, zeros in the other triangle; may be ``a``.
        lower: Use the lower triangle, else the upper one, as for
            :class:`Cholesky <callboard.kernel.solver.cholesky.Cholesky>`.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "a")})

    a: In
    out: Out | None = None
    lower: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        batch, n = square(self, "a", self.a, batched=True)
        return {"out": layout_of(dtype, (batch, n, n))}


class PotrsBatched(Op[SolverActor, GpuRef], tag="solver.potrs_batched"):
    """Solve ``a[i] @ x[i] = b[i]`` with the factors of :class:`PotrfBatched`.

    Args:
        factor: ``[batch, n, n]``, f32, f64, c64 or c128.
        b: ``[batch, n, columns]``, same dtype.
        x: Shape and dtype of ``b``; may be ``b``.
        lower: The factors are the lower ones.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("x",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("x", "b")})

    factor: In
    b: In
    x: Out | None = None
    lower: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, factor=self.factor, b=self.b)
        batch, n = square(self, "factor", self.factor, batched=True)
        _right_hand_sides(self, self.b, batch, n)
        return {"x": layout_of(dtype, self.b.shape)}


class GeqrfBatched(Op[SolverActor, HouseholderResult], tag="solver.geqrf_batched"):
    """QR factorisations in Householder form.

    Args:
        a: ``[batch, m, n]``, f32, f64, c64 or c128.
        h: Same shape and dtype; may be ``a``.
        tau: ``[batch, min(m, n)]``, same dtype.
        check_finite: Refuse NaN and infinities. Without it they are computed with, as by LAPACK: NaN gives NaN.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("h", "tau")
    results: ClassVar[type[Any] | None] = HouseholderResult
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("h", "a")})

    a: In
    h: Out | None = None
    tau: Out | None = None
    check_finite: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        batch, m, n = matrix(self, "a", self.a, batched=True)
        return {"h": layout_of(dtype, (batch, m, n)), "tau": layout_of(dtype, (batch, min(m, n)))}


class GelsBatched(Op[SolverActor, GpuRef], tag="solver.gels_batched"):
    """``x[i]`` with the least ``norm(a[i] @ x[i] - b[i])`` for tall or square matrices of full rank, by QR.

    Args:
        a: ``[batch, m, n]`` with ``m >= n``, f32, f64, c64 or c128.
        b: ``[batch, m, columns]``, same dtype.
        x: ``[batch, n, columns]``, same dtype; may be ``b`` where ``m == n``.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("x",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("x", "b")})

    a: In
    b: In
    x: Out | None = None

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a, b=self.b)
        batch, m, n = matrix(self, "a", self.a, batched=True)
        if m < n:
            raise refuse(self, f"a is {self.a.layout!r}; it must have at least as many rows as columns")
        return {"x": layout_of(dtype, (batch, n, _right_hand_sides(self, self.b, batch, m)))}


class GesvdjBatched(Op[SolverActor, SvdResult], tag="solver.gesvdj_batched"):
    """Reduced singular value decompositions (``GesvdjBatchedRequest``); on CUDA by Jacobi rotations.

    Args:
        a: ``[batch, m, n]``, f32, f64, c64 or c128; on CUDA fastest where neither exceeds 32.
        u: ``[batch, m, min(m, n)]``, same dtype.
        s: ``[batch, min(m, n)]``, f32 for f32 and c64, f64 for f64 and c128; descending.
        vt: ``[batch, min(m, n), n]``, same dtype.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("u", "s", "vt")
    results: ClassVar[type[Any] | None] = SvdResult

    a: In
    u: Out | None = None
    s: Out | None = None
    vt: Out | None = None

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        batch, m, n = matrix(self, "a", self.a, batched=True)
        k = min(m, n)
        return {
            "u": layout_of(dtype, (batch, m, k)),
            "s": layout_of(dtype.real, (batch, k)),
            "vt": layout_of(dtype, (batch, k, n)),
        }


class GesvdjValuesBatched(Op[SolverActor, GpuRef], tag="solver.gesvdj_values_batched"):
    """The singular values of several matrices, without vectors; on CUDA by Jacobi rotations.

    Args:
        a: ``[batch, m, n]``, f32, f64, c64 or c128; on CUDA fastest where neither exceeds 32.
        s: ``[batch, min(m, n)]``, f32 for f32 and c64, f64 for f64 and c128; descending.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("s",)

    a: In
    s: Out | None = None

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        batch, m, n = matrix(self, "a", self.a, batched=True)
        return {"s": layout_of(dtype.real, (batch, min(m, n)))}


class SyevBatched(Op[SolverActor, EigResult], tag="solver.syev_batched"):
    """Eigenvalues and vectors of symmetric or Hermitian matrices.

    Args:
        a: ``[batch, n, n]``, f32, f64, c64 or c128; one triangle is read.
        w: ``[batch, n]``, f32 for f32 and c64, f64 for f64 and c128; ascending.
        v: ``[batch, n, n]``, dtype of ``a``; may be ``a``.
        lower: Use the lower triangle; else the upper one.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("w", "v")
    results: ClassVar[type[Any] | None] = EigResult
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("v", "a")})

    a: In
    w: Out | None = None
    v: Out | None = None
    lower: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        batch, n = square(self, "a", self.a, batched=True)
        return {"w": layout_of(dtype.real, (batch, n)), "v": layout_of(dtype, (batch, n, n))}
