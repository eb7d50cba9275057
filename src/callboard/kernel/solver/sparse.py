"""Sparse direct solves: one square CSR matrix, one or more right-hand sides.

Column indices ascend strictly in each row; other arrays are a ``NumericalError``, and so are NaN and
infinities. On CUDA LU and Cholesky are cuDSS's, and the last factorisation is kept: another op of the same kind with
the same matrix costs a substitution only, one with the same pattern no new analysis.
"""

from typing import ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Operand, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import AnyOp, refuse
from callboard.kernel.solver.actor import SolverActor
from callboard.kernel.solver.checks import FLOATS, right_hand_side
from callboard.kernel.sparse.checks import checked
from callboard.kernel.sparse.formats import CsrRef

__all__ = ["SparseCholesky", "SparseLu", "SparseQr"]


def _infer(op: AnyOp, a: CsrRef, b: Operand) -> Outputs:
    rows, cols = checked(op, "a", a)
    dtype = a.values.dtype
    if rows != cols:
        raise refuse(op, f"a.shape is {a.shape}; it must be square")
    if dtype not in FLOATS:
        raise refuse(op, f"a.values is {a.values.layout!r}; its dtype must be one of f32, f64, c64, c128")
    if b.dtype is not dtype:
        raise refuse(op, f"b is {b.layout!r} and a.values {a.values.layout!r}; both must have one dtype")
    right_hand_side(op, "b", b, rows)
    return {"x": layout_of(dtype, b.shape)}


class SparseLu(Op[SolverActor, GpuRef], tag="solver.sparse_lu"):
    """Solve ``a @ x = b`` for a sparse square ``a`` by LU; on CUDA with cuDSS, which must be installed.

    A ``NumericalError`` is raised if ``a`` is structurally singular or rounding leaves a pivot of 0, whatever ``b`` is;
    as in LAPACK, a matrix that rounding has made regular is solved. On CUDA without cuDSS the op fails with
    ``BackendUnavailable``, which names how to install it: use :class:`SparseQr` there. A solution that does not satisfy
    the system as well as that of a stable method also raises ``NumericalError``.

    Args:
        a: ``[n, n]``; values in f32, f64, c64 or c128.
        b: ``[n]`` or ``[n, columns]``, same dtype.
        x: Shape and dtype of ``b``; may be ``b``.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("x",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("x", "b")})

    a: CsrRef
    b: In
    x: Out | None = None

    def infer(self) -> Outputs:
        return _infer(self, self.a, self.b)


class SparseQr(Op[SolverActor, GpuRef], tag="solver.sparse_qr"):
    """Solve ``a @ x = b`` for a sparse square ``a`` by QR (``SparseQrRequest``); on the CPU by LU.

    A singular ``a`` is a ``NumericalError`` as for :class:`SparseLu`. On CUDA one right-hand side is solved after the
    other, each with a new factorisation.

    Args:
        a: ``[n, n]``; values in f32, f64, c64 or c128.
        b: ``[n]`` or ``[n, columns]``, same dtype.
        x: Shape and dtype of ``b``; may be ``b``.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("x",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("x", "b")})

    a: CsrRef
    b: In
    x: Out | None = None

    def infer(self) -> Outputs:
        return _infer(self, self.a, self.b)


class SparseCholesky(Op[SolverActor, GpuRef], tag="solver.sparse_cholesky"):
    """Solve ``a @ x = b`` for a sparse positive definite ``a`` by Cholesky (``SparseCholeskyRequest``).

    The whole matrix is stored, both triangles. One that is not symmetric (Hermitian) or not positive definite is a
    ``NumericalError``; on CUDA its ``info`` counts pivots in cuDSS's own order. Without cuDSS, cuSOLVER solves for one
    right-hand side after the other, each with a new factorisation.

    Args:
        a: ``[n, n]``; values in f32, f64, c64 or c128.
        b: ``[n]`` or ``[n, columns]``, same dtype.
        x: Shape and dtype of ``b``; may be ``b``.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("x",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("x", "b")})

    a: CsrRef
    b: In
    x: Out | None = None

    def infer(self) -> Outputs:
        return _infer(self, self.a, self.b)
