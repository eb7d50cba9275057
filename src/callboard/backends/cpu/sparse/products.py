"""Products with sparse matrices."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.blas.scalars import reader
from callboard.backends.cpu.sparse.matrices import matrix_of
from callboard.backends.cpu.views import viewer
from callboard.core.operand import Operand
from callboard.kernel import sparse

__all__ = ["dense_product", "sparse_product"]

Plan = Callable[..., None]


def dense_product(op: "sparse.SpMv | sparse.SpMm") -> Plan:
    """``run(a, b, out, c, alpha, beta)``: ``out = alpha * op(a) @ b + beta * c`` with vectors or dense matrices."""
    b, c = (op.x, op.y) if isinstance(op, sparse.SpMv) else (op.b, op.c)
    matrix, dense = matrix_of(op.a), viewer(b.layout)
    target = viewer(op.infer()["out"] if op.out is None else op.out.layout)
    addend = None if c is None else viewer(c.layout)
    alpha_of, beta_of = reader(op.alpha), reader(op.beta)

    def run(a: Sequence[int], b: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        left = matrix(a)
        if op.transpose:
            left = left.conj().T if op.conj and left.dtype.kind == "c" else left.T
        right = dense(b)
        result = left @ right.astype(left.dtype, copy=False)
        factor, share = alpha_of(alpha), beta_of(beta)
        if factor != 1:
            result = result * left.dtype.type(factor)
        if share != 0 and addend is not None and c is not None:
            result = result + left.dtype.type(share) * addend(c).astype(left.dtype, copy=False)
        target(out)[...] = result

    return run


def sparse_product(op: "sparse.SpGemm") -> Callable[[Sequence[int], Sequence[int], Any], "list[np.ndarray[Any, Any]]"]:
    """``product(a, b, alpha)``: values, indices and indptr of ``alpha * a @ b``, indices sorted."""
    left, right, alpha_of = matrix_of(op.a), matrix_of(op.b), reader(op.alpha)
    index = op.a.indices.dtype.np

    def product(a: Sequence[int], b: Sequence[int], alpha: Any) -> "list[np.ndarray[Any, Any]]":
        found = left(a) @ right(b)
        found.sort_indices()
        factor = alpha_of(alpha)
        values = (
            found.data if factor == 1 and not isinstance(op.alpha, Operand) else found.data * found.dtype.type(factor)
        )
        return [values, found.indices.astype(index, copy=False), found.indptr.astype(index, copy=False)]

    return product
