"""Operations of ``dev.solver``: dense and sparse linear algebra.

Factorisations and solves, eigenvalues and singular values follow the conventions of NumPy and SciPy: arrays are
row-major, shapes come from the operands, views of any strides are accepted, and inputs are never overwritten. If LAPACK
reports a positive ``info`` (a singular or indefinite matrix, an iteration that did not converge), the op and the
ops called on its result fail with :class:`callboard.NumericalError`.
"""

from callboard.kernel.exports import export_all as _export_all
from callboard.kernel.solver.actor import *
from callboard.kernel.solver.batched import *
from callboard.kernel.solver.cholesky import *
from callboard.kernel.solver.eigen import *
from callboard.kernel.solver.lu import *
from callboard.kernel.solver.qr import *
from callboard.kernel.solver.sparse import *
from callboard.kernel.solver.svd import *

_export_all(__name__)
