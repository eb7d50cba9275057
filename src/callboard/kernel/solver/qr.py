"""QR: the factors, their Householder form, and least squares.

Operands of any strides; inputs are only read. NaN and infinities in the operands are a ``NumericalError``.
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
from callboard.kernel.solver.checks import FLOATS, dtype_of, matrix, right_hand_side, shaped

__all__ = ["Geqrf", "HouseholderResult", "LeastSquares", "Orgqr", "Ormqr", "Qr", "QrResult"]


class QrResult(NamedTuple, Generic[Mode]):
    """``a = q @ r``.

    Attributes:
        q: Orthonormal columns.
        r: Upper triangular, zeros below.
    """

    q: GpuRef[Mode]
    r: GpuRef[Mode]


class HouseholderResult(NamedTuple, Generic[Mode]):
    """The factors as LAPACK keeps them (``scipy.linalg.qr(a, mode="raw")``).

    Attributes:
        h: R on and above the diagonal, the vectors of the reflections below it.
        tau: The factors of the reflections.
    """

    h: GpuRef[Mode]
    tau: GpuRef[Mode]


class Qr(Op[SolverActor, QrResult], tag="solver.qr"):
    """QR factorisation ``a = q @ r``, as ``numpy.linalg.qr`` (``geqrf``, ``orgqr`` or ``ungqr``).

    Args:
        a: ``[m, n]``, f32, f64, c64 or c128.
        q: ``[m, min(m, n)]``, or ``[m, m]`` when ``mode`` is ``"complete"``; may be ``a`` if it has its shape.
        r: ``[min(m, n), n]``, or ``[m, n]`` when ``mode`` is ``"complete"``; may be ``a`` if it has its shape.
        mode: ``"reduced"`` or ``"complete"``.
        check_finite: Refuse NaN and infinities. Without it they are computed with, as by LAPACK: NaN gives NaN.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("q", "r")
    results: ClassVar[type[Any] | None] = QrResult
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("q", "a"), ("r", "a")})

    a: In
    q: Out | None = None
    r: Out | None = None
    mode: Literal["reduced", "complete"] = "reduced"
    check_finite: bool = True

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        _, m, n = matrix(self, "a", self.a)
        k = m if self.mode == "complete" else min(m, n)
        return {"q": layout_of(dtype, (m, k)), "r": layout_of(dtype, (k, n))}


class Geqrf(Op[SolverActor, HouseholderResult], tag="solver.geqrf"):
    """QR factorisation in Householder form (``QrRequest``), for :class:`Orgqr` and :class:`Ormqr`.

    Args:
        a: ``[m, n]``, f32, f64, c64 or c128.
        h: ``[m, n]``, same dtype; may be ``a``.
        tau: ``[min(m, n)]``, same dtype.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("h", "tau")
    results: ClassVar[type[Any] | None] = HouseholderResult
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("h", "a")})

    a: In
    h: Out | None = None
    tau: Out | None = None

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a)
        _, m, n = matrix(self, "a", self.a)
        return {"h": layout_of(dtype, (m, n)), "tau": layout_of(dtype, (min(m, n),))}


class Orgqr(Op[SolverActor, GpuRef], tag="solver.orgqr"):
    """The first columns of Q from its Householder form (``orgqr``, of complex arrays ``ungqr``).

    Args:
        h: ``[m, n]`` as returned by :class:`Geqrf`, f32, f64, c64 or c128.
        tau: ``[min(m, n)]``, same dtype.
        q: ``[m, columns]``, same dtype.
        columns: Columns of Q, from ``min(m, n)`` (the default) to ``m``.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("q",)

    h: In
    tau: In
    q: Out | None = None
    columns: int | None = None

    def infer(self) -> Outputs:
        dtype = dtype_of(self, h=self.h, tau=self.tau)
        _, m, n = matrix(self, "h", self.h)
        k = min(m, n)
        shaped(self, "tau", self.tau, (k,), f"h of shape [{m}, {n}]")
        columns = k if self.columns is None else self.columns
        if not k <= columns <= m:
            raise refuse(self, f"columns is {columns}; it must be from {k} to {m} for h of shape [{m}, {n}]")
        return {"q": layout_of(dtype, (m, columns))}


class Ormqr(Op[SolverActor, GpuRef], tag="solver.ormqr"):
    """Multiply by Q in its Householder form, without forming it (``ormqr``, of complex arrays ``unmqr``).

    Args:
        h: ``[m, n]`` as returned by :class:`Geqrf`, f32, f64, c64 or c128. Q is ``[m, m]``.
        tau: ``[min(m, n)]``, same dtype.
        c: ``[m, columns]`` when ``side`` is ``"left"``, ``[rows, m]`` when it is ``"right"``; same dtype.
        out: Shape and dtype of ``c``; may be ``c``.
        side: ``"left"``: ``out = op(Q) @ c``; ``"right"``: ``out = c @ op(Q)``.
        transpose: ``op(Q)`` is the conjugate transpose of Q.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "c")})

    h: In
    tau: In
    c: In
    out: Out | None = None
    side: Literal["left", "right"] = "left"
    transpose: bool = False

    def infer(self) -> Outputs:
        dtype = dtype_of(self, h=self.h, tau=self.tau, c=self.c)
        _, m, n = matrix(self, "h", self.h)
        shaped(self, "tau", self.tau, (min(m, n),), f"h of shape [{m}, {n}]")
        _, rows, cols = matrix(self, "c", self.c)
        if m != (rows if self.side == "left" else cols):
            raise refuse(self, f"c is {self.c.layout!r}; Q is [{m}, {m}] and is multiplied from the {self.side}")
        return {"out": layout_of(dtype, (rows, cols))}


class LeastSquares(Op[SolverActor, GpuRef], tag="solver.least_squares"):
    """``x`` with the least ``norm(a @ x - b)``; the shortest of them where ``m < n``. By QR, as ``gels``.

    ``a`` must have full rank: a zero on the diagonal of its triangular factor is a ``NumericalError``, a nearly
    singular one is not noticed. For matrices that may lack rank, take :class:`Svd <callboard.kernel.solver.svd.Svd>`.

    Args:
        a: ``[m, n]``, f32, f64, c64 or c128.
        b: ``[m]`` or ``[m, columns]``, same dtype.
        x: ``[n]`` or ``[n, columns]``, same dtype; may be ``b`` where ``m == n``.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("x",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("x", "b")})

    a: In
    b: In
    x: Out | None = None

    def infer(self) -> Outputs:
        dtype = dtype_of(self, a=self.a, b=self.b)
        _, m, n = matrix(self, "a", self.a)
        return {"x": layout_of(dtype, (n, *right_hand_side(self, "b", self.b, m)))}
