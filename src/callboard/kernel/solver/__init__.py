"""Operations of ``dev.solver``: dense and sparse linear algebra.

Factorisations and solves, eigenvalues and singular values follow the conventions of NumPy and SciPy: arrays are
row-major, shapes come from the operands, views of any strides are accepted, and inputs are never overwritten. If LAPACK
reports a positive ``info`` (a singular or indefinite matrix, an iteration that did not converge), the op and the
ops called on its result fail with :class:`callboard.NumericalError`.
"""

from callboard.kernel.solver.actor import SolverActor
from callboard.kernel.solver.batched import (
    GelsBatched,
    GeqrfBatched,
    GesvdjBatched,
    GesvdjValuesBatched,
    GetrfBatched,
    GetrsBatched,
    PotrfBatched,
    PotrsBatched,
    SyevBatched,
)
from callboard.kernel.solver.cholesky import Cholesky, CholeskyInverse, CholeskySolve
from callboard.kernel.solver.eigen import (
    EigRangeResult,
    EigResult,
    Geev,
    GeevValues,
    Syevd,
    SyevdValues,
    SyevdxIndex,
    SyevdxRange,
    Sygvd,
    SygvdValues,
)
from callboard.kernel.solver.lu import Determinant, Inverse, Lu, LuResult, LuSolve, Solve
from callboard.kernel.solver.qr import Geqrf, HouseholderResult, LeastSquares, Orgqr, Ormqr, Qr, QrResult
from callboard.kernel.solver.sparse import SparseCholesky, SparseLu, SparseQr
from callboard.kernel.solver.svd import Svd, SvdResult, SvdValues

__all__ = [
    "Cholesky",
    "CholeskyInverse",
    "CholeskySolve",
    "Determinant",
    "EigRangeResult",
    "EigResult",
    "Geev",
    "GeevValues",
    "GelsBatched",
    "Geqrf",
    "GeqrfBatched",
    "GesvdjBatched",
    "GesvdjValuesBatched",
    "GetrfBatched",
    "GetrsBatched",
    "HouseholderResult",
    "Inverse",
    "LeastSquares",
    "Lu",
    "LuResult",
    "LuSolve",
    "Orgqr",
    "Ormqr",
    "PotrfBatched",
    "PotrsBatched",
    "Qr",
    "QrResult",
    "Solve",
    "SolverActor",
    "SparseCholesky",
    "SparseLu",
    "SparseQr",
    "Svd",
    "SvdResult",
    "SvdValues",
    "SyevBatched",
    "Syevd",
    "SyevdValues",
    "SyevdxIndex",
    "SyevdxRange",
    "Sygvd",
    "SygvdValues",
]
