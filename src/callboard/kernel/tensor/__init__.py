"""Tensors: what can be asked of ``dev.tensor``.

Axes are matched by their modes (names), not by their order. Any strides are taken as they are: transposed, sliced,
reversed and repeated views, and diagonals.
"""

from callboard.kernel.tensor.actor import TensorActor
from callboard.kernel.tensor.contraction import Contract, Einsum
from callboard.kernel.tensor.elementwise import ElementwiseBinary, ElementwiseTrinary, Permutation, Reduction

__all__ = [
    "Contract",
    "Einsum",
    "ElementwiseBinary",
    "ElementwiseTrinary",
    "Permutation",
    "Reduction",
    "TensorActor",
]
