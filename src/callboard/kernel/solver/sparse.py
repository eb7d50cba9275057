"""Sparse direct solves: one square CSR matrix, one or more right-hand sides.

The matrix is given as its three arrays. Column indices are 0-based and ascend strictly in each row; arrays that are no
such matrix are a ``NumericalError``, and so are NaN and infinities. The factors are not kept.
"""

from typing import ClassVar

from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Operand, Out
from callboard.core.ref import GpuRef
from callboard.kernel.solver.actor import SolverActor
from callboard.kernel.solver.checks import INDICES, AnyOp, dtype_of, refuse, right_hand_side

__all__ = ["SparseCholesky", "SparseLu", "SparseQr"]


def _infer(op: AnyOp, values: Operand, offsets: Operand, indices: Operand, b: Operand) -> Outputs:
    dtype = dtype_of(op, values=values, b=b)
    for name, operand in (("offsets", offsets), ("indices", indices)):
        if operand.dtype not in INDICES or operand.ndim != 1:
            raise refuse(op, f"{name} is {operand.layout!r}; it must have one axis, i32 or i64")
    if indices.dtype is not offsets.dtype:
        raise refuse(op, f"indices is {indices.layout!r} and offsets {offsets.layout!r}; both must have one dtype")
    if offsets.size == 0:
        raise refuse(op, f"offsets is {offsets.layout!r}; a matrix of n rows has n + 1")
    if values.shape != indices.shape:
        raise refuse(op, f"values is {values.layout!r} and indices {indices.layout!r}; one value for each index")
    right_hand_side(op, "b", b, offsets.size - 1)
    return {"x": layout_of(dtype, b.shape)}


class SparseLu(Op[SolverActor, GpuRef], tag="solver.sparse_lu"):
    """Solve ``a @ x = b`` for a sparse square ``a`` by LU (``SparseLuRequest``); on the CPU only.

    A singular ``a`` is a ``NumericalError``. cuSOLVER factors sparse matrices by LU on the host only, so CUDA answers
    ``UnsupportedOp``: take :class:`SparseQr` there.

    Args:
        values: ``[nnz]``, f32, f64, c64 or c128.
        offsets: ``[n + 1]``, i32 or i64: where each row starts.
        indices: ``[nnz]``, dtype of ``offsets``: the column of each value.
        b: ``[n]`` or ``[n, columns]``, dtype of ``values``.
        x: Shape and dtype of ``b``; may be ``b``.
    """

    returns: ClassVar[tuple[str, ...]] = ("x",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("x", "b")})

    values: In
    offsets: In
    indices: In
    b: In
    x: Out | None = None

    def infer(self) -> Outputs:
        return _infer(self, self.values, self.offsets, self.indices, self.b)


class SparseQr(Op[SolverActor, GpuRef], tag="solver.sparse_qr"):
    """Solve ``a @ x = b`` for a sparse square ``a`` by QR (``SparseQrRequest``); on the CPU by LU.

    A singular ``a`` is a ``NumericalError``. On CUDA one right-hand side is solved after the other, each with a new
    factorisation.

    Args:
        values: ``[nnz]``, f32, f64, c64 or c128.
        offsets: ``[n + 1]``, i32 or i64: where each row starts.
        indices: ``[nnz]``, dtype of ``offsets``: the column of each value.
        b: ``[n]`` or ``[n, columns]``, dtype of ``values``.
        x: Shape and dtype of ``b``; may be ``b``.
    """

    returns: ClassVar[tuple[str, ...]] = ("x",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("x", "b")})

    values: In
    offsets: In
    indices: In
    b: In
    x: Out | None = None

    def infer(self) -> Outputs:
        return _infer(self, self.values, self.offsets, self.indices, self.b)


class SparseCholesky(Op[SolverActor, GpuRef], tag="solver.sparse_cholesky"):
    """Solve ``a @ x = b`` for a sparse positive definite ``a`` by Cholesky (``SparseCholeskyRequest``).

    The whole matrix is stored, both triangles. One that is not symmetric (Hermitian) or not positive definite is a
    ``NumericalError``. On CUDA one right-hand side is solved after the other, each with a new factorisation.

    Args:
        values: ``[nnz]``, f32, f64, c64 or c128.
        offsets: ``[n + 1]``, i32 or i64: where each row starts.
        indices: ``[nnz]``, dtype of ``offsets``: the column of each value.
        b: ``[n]`` or ``[n, columns]``, dtype of ``values``.
        x: Shape and dtype of ``b``; may be ``b``.
    """

    returns: ClassVar[tuple[str, ...]] = ("x",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("x", "b")})

    values: In
    offsets: In
    indices: In
    b: In
    x: Out | None = None

    def infer(self) -> Outputs:
        return _infer(self, self.values, self.offsets, self.indices, self.b)
