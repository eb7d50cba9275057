"""BLAS-LT: matrix products fused with what comes before and after them, behind ``dev.blas_lt``.

Bias, activation, their derivatives and the gradients of biases in one pass over the result; scaled fp8 factors;
batches; a result apart from the addend. Row-major like NumPy: a bias has one number for each column.
"""

from callboard.kernel.blas_lt.actor import BlasLtActor
from callboard.kernel.blas_lt.epilogues import Activation, AuxEpilogue, BgradEpilogue, Epilogue
from callboard.kernel.blas_lt.matmul import Matmul, MatmulAux, MatmulBgrad, MatmulWithAux, MatmulWithBgrad

__all__ = [
    "Activation",
    "AuxEpilogue",
    "BgradEpilogue",
    "BlasLtActor",
    "Epilogue",
    "Matmul",
    "MatmulAux",
    "MatmulBgrad",
    "MatmulWithAux",
    "MatmulWithBgrad",
]
