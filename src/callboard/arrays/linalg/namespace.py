"""``xp.linalg`` as an attribute of a namespace, whose functions type checkers and editors know."""

from typing import TYPE_CHECKING, Any

from callboard.arrays import linalg
from callboard.arrays.introspection.unknown import unknown
from callboard.core.ref.naming import naming

__all__ = ["LinearAlgebra"]


@naming("xp.linalg")
class LinearAlgebra:
    """``xp.linalg``: linear algebra of matrices and of stacks of them (:mod:`callboard.arrays.linalg`)."""

    cholesky = staticmethod(linalg.cholesky)
    cross = staticmethod(linalg.cross)
    det = staticmethod(linalg.det)
    diagonal = staticmethod(linalg.diagonal)
    eig = staticmethod(linalg.eig)
    eigh = staticmethod(linalg.eigh)
    eigvals = staticmethod(linalg.eigvals)
    eigvalsh = staticmethod(linalg.eigvalsh)
    inv = staticmethod(linalg.inv)
    lstsq = staticmethod(linalg.lstsq)
    matmul = staticmethod(linalg.matmul)
    matrix_norm = staticmethod(linalg.matrix_norm)
    matrix_power = staticmethod(linalg.matrix_power)
    matrix_rank = staticmethod(linalg.matrix_rank)
    matrix_transpose = staticmethod(linalg.matrix_transpose)
    outer = staticmethod(linalg.outer)
    pinv = staticmethod(linalg.pinv)
    qr = staticmethod(linalg.qr)
    slogdet = staticmethod(linalg.slogdet)
    solve = staticmethod(linalg.solve)
    svd = staticmethod(linalg.svd)
    svdvals = staticmethod(linalg.svdvals)
    tensordot = staticmethod(linalg.tensordot)
    trace = staticmethod(linalg.trace)
    vecdot = staticmethod(linalg.vecdot)
    vector_norm = staticmethod(linalg.vector_norm)

    def __repr__(self) -> str:
        return "<linear algebra of an array namespace>"

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            raise unknown("xp.linalg", name, linalg.__all__)
