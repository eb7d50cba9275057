"""Singular value decomposition.

Operands of any strides; ``a`` is only read. Singular values are real, not negative, and descend. NaN and infinities in
``a`` are a ``NumericalError``, and so is an iteration that does not converge.
"""

from typing import Any, ClassVar, Generic, Literal, NamedTuple

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.mode import Mode
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.solver.actor import SolverActor
from callboard.kernel.solver.checks import FLOATS, dtype_of, matrix

__all__ = ["Svd", "SvdMethod", "SvdResult", "SvdValues"]

SvdMethod = Literal["auto", "gesvd", "gesdd", "gesvdj"]
"""QR iteration, divide and conquer (CPU only), or Jacobi rotations, in whose place the CPU has divide and conquer;
``"auto"``: the backend's best (CPU ``gesdd``, CUDA ``gesvd``)."""


class SvdResult(NamedTuple, Generic[Mode]):
    """``a = u * s @ vt``.

    Attributes:
        u: Left singular vectors, in columns.
        s: Singular values, descending.
        vt: Right singular vectors, conjugated, in rows.
    """

    u: GpuRef[Mode]
    s: GpuRef[Mode]
    vt: GpuRef[Mode]


class Svd(Op[SolverActor, SvdResult], tag="solver.svd"):
    """Singular value decomposition ``a = u * s @ vt`` (``SvdRequest``), as ``numpy.linalg.svd``.

    Args:
        a: ``[m, n]``, f32, f64, c64 or c128.
        u: ``[m, min(m, n)]``, or ``[m, m]`` when ``full_matrices``; same dtype.
        s: ``[min(m, n)]``, f32 for f32 and c64, f64 for f64 and c128.
        vt: ``[min(m, n), n]``, or ``[n, n]`` when ``full_matrices``; same dtype.
        full_matrices: Complete ``u`` and ``vt`` to square matrices.
        method: ``"auto"``, ``"gesvd"``, ``"gesdd"`` (CPU only) or ``"gesvdj"`` (on the CPU ``gesdd``).
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("u", "s", "vt")
    results: ClassVar[type[Any] | None] = SvdResult

    a: In
    u: Out | None = None
    s: Out | None = None
    vt: Out | None = None
    full_matrices: bool = False
    method: SvdMethod = "auto"

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        _, m, n = matrix(self, "a", self.a)
        k = min(m, n)
        left, right = (m, n) if self.full_matrices else (k, k)
        return {
            "u": layout_of(dtype, (m, left)),
            "s": layout_of(dtype.real, (k,)),
            "vt": layout_of(dtype, (right, n)),
        }


class SvdValues(Op[SolverActor, GpuRef], tag="solver.svd_values"):
    """The singular values of ``a``, without vectors.

    Args:
        a: ``[m, n]``, f32, f64, c64 or c128.
        s: ``[min(m, n)]``, f32 for f32 and c64, f64 for f64 and c128.
        method: See :class:`Svd`.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("s",)

    a: In
    s: Out | None = None
    method: SvdMethod = "auto"

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        _, m, n = matrix(self, "a", self.a)
        return {"s": layout_of(dtype.real, (min(m, n),))}
