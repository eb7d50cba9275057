"""The results of ``xp.linalg`` that are several arrays."""

from typing import Generic, NamedTuple

from callboard.core.mode import Mode
from callboard.core.ref import GpuRef

__all__ = ["EigResult", "EighResult", "LstsqResult", "QRResult", "SVDResult", "SlogdetResult"]


class EigResult(NamedTuple, Generic[Mode]):
    """Eigenvalues in no particular order, and the eigenvectors as columns; complex."""

    eigenvalues: GpuRef[Mode]
    eigenvectors: GpuRef[Mode]


class EighResult(NamedTuple, Generic[Mode]):
    """Eigenvalues, ascending, and the eigenvectors as columns."""

    eigenvalues: GpuRef[Mode]
    eigenvectors: GpuRef[Mode]


class LstsqResult(NamedTuple, Generic[Mode]):
    """A solution, the sums of squared residuals, the rank of the matrix, its singular values, descending."""

    x: GpuRef[Mode]
    residuals: GpuRef[Mode]
    rank: GpuRef[Mode]
    singular_values: GpuRef[Mode]


class QRResult(NamedTuple, Generic[Mode]):
    """Orthonormal columns, and the upper triangle that gives the matrix from them."""

    Q: GpuRef[Mode]
    R: GpuRef[Mode]


class SlogdetResult(NamedTuple, Generic[Mode]):
    """Sign of a determinant, and the logarithm of its magnitude."""

    sign: GpuRef[Mode]
    logabsdet: GpuRef[Mode]


class SVDResult(NamedTuple, Generic[Mode]):
    """Left singular vectors as columns, singular values, right singular vectors as rows."""

    U: GpuRef[Mode]
    S: GpuRef[Mode]
    Vh: GpuRef[Mode]
