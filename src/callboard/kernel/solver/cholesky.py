"""Cholesky: factorisation, solve, inverse of positive definite matrices.

Operands may have any strides; inputs are only read. Only one triangle of ``a`` is used, but NaN or infinities anywhere
in ``a`` raise ``NumericalError``.
"""

from typing import ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.solver.actor import SolverActor
from callboard.kernel.solver.checks import FLOATS, dtype_of, right_hand_side, square

__all__ = ["Cholesky", "CholeskyInverse", "CholeskySolve"]


class Cholesky(Op[SolverActor, GpuRef], tag="solver.cholesky"):
    """Cholesky factor of a positive definite matrix (``CholeskyRequest``; ``potrf``), as ``scipy.linalg.cholesky``.

    Fails with ``NumericalError`` if a leading minor is not positive.

    Args:
        a: ``[n, n]``, symmetric or Hermitian, f32, f64, c64 or c128; the triangle that ``lower`` names is read.
        out: Same shape and dtype, zeros in the other triangle; may be ``a``.
        lower: ``a = out @ out.conj().T`` with a lower ``out``; otherwise ``a = out.conj().T @ out`` with an upper one.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "a")})

    a: In
    out: Out | None = None
    lower: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        _, n = square(self, "a", self.a)
        return {"out": layout_of(dtype, (n, n))}


class CholeskySolve(Op[SolverActor, GpuRef], tag="solver.cholesky_solve"):
    """Solve ``a @ x = b`` with the Cholesky factor of ``a`` (``potrs``).

    Args:
        factor: ``[n, n]`` as returned by :class:`Cholesky`, f32, f64, c64 or c128.
        b: ``[n]`` or ``[n, columns]``, same dtype.
        x: Shape and dtype of ``b``; may be ``b``.
        lower: The factor is the lower one.
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
        _, n = square(self, "factor", self.factor)
        right_hand_side(self, "b", self.b, n)
        return {"x": layout_of(dtype, self.b.shape)}


class CholeskyInverse(Op[SolverActor, GpuRef], tag="solver.cholesky_inverse"):
    """The inverse of ``a``, whole, from its Cholesky factor.

    Args:
        factor: ``[n, n]`` as returned by :class:`Cholesky`, f32, f64, c64 or c128.
        out: Same shape and dtype; may be ``factor``.
        lower: The factor is the lower one.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "factor")})

    factor: In
    out: Out | None = None
    lower: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, factor=self.factor)
        _, n = square(self, "factor", self.factor)
        return {"out": layout_of(dtype, (n, n))}
