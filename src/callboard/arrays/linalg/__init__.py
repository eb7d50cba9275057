"""``xp.linalg``: linear algebra of matrices and stacks of matrices, through :mod:`callboard.kernel.solver`.

Arrays of integers or booleans are computed in float64, and half-precision arrays in float32. If the solver has no op
for a stack, the matrices of the stack are processed one after the other.

A NaN or an infinity in a matrix gives NaN in the results of ``det``, ``inv``, ``qr``, ``slogdet`` and ``solve``. The
results of the other functions, whose routines iterate, fail with ``NumericalError``.
"""

from callboard.arrays.linalg.decompositions import cholesky, eig, eigh, eigvals, eigvalsh, qr, svd, svdvals
from callboard.arrays.linalg.equations import inv, lstsq, pinv, solve
from callboard.arrays.linalg.norms import det, matrix_norm, matrix_rank, slogdet, vector_norm
from callboard.arrays.linalg.products import cross, matrix_power
from callboard.arrays.linalg.results import EighResult, EigResult, LstsqResult, QRResult, SlogdetResult, SVDResult
from callboard.arrays.manipulation import matrix_transpose
from callboard.arrays.products.contracting import matmul, outer, tensordot, vecdot
from callboard.arrays.products.diagonals import diagonal, trace

__all__ = [
    "EigResult",
    "EighResult",
    "LstsqResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
