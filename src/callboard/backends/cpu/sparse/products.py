"""Products with sparse matrices."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.blas.scalars import reader
from callboard.backends.cpu.sparse.checking import sound, sound_by_parts
from callboard.backends.cpu.sparse.found import Found
from callboard.backends.cpu.sparse.matrices import matrix_of, work_dtype
from callboard.backends.cpu.sparse.rows import Rows
from callboard.backends.cpu.views import viewer
from callboard.core.library import plans
from callboard.core.operand import Operand
from callboard.kernel import sparse

__all__ = ["dense_product", "sparse_product"]

Plan = Callable[..., None]


def dense_product(op: "sparse.SpMv | sparse.SpMm", shared: Rows) -> Plan:
    """``run(a, b, out, c, alpha, beta)``: ``out = alpha * op(a) @ b + beta * c`` with vectors or dense matrices."""
    b, c = (op.x, op.y) if isinstance(op, sparse.SpMv) else (op.b, op.c)
    matrix, dense = matrix_of(op.a, sound(op, "a")), viewer(b.layout)
    layout = op.infer()["out"] if op.out is None else op.out.layout
    target = viewer(layout)
    direct = _vector_product(op, shared) if isinstance(op, sparse.SpMv) and layout.contiguous else None
    addend = None if c is None else viewer(c.layout)
    alpha_of, beta_of = reader(op.alpha), reader(op.beta)

    def run(a: Sequence[int], b: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        factor, share = alpha_of(alpha), beta_of(beta)
        written = target(out)
        if direct is not None and share == 0:
            direct(a, dense(b), written)
            if factor != 1:
                np.multiply(written, written.dtype.type(factor), out=written)
            return
        left = matrix(a)
        if op.transpose:
            left = left.conj().T if op.conj and left.dtype.kind == "c" else left.T
        result = left @ dense(b).astype(left.dtype, copy=False)
        if factor != 1:
            result = result * left.dtype.type(factor)
        if share != 0 and addend is not None and c is not None:
            result = result + left.dtype.type(share) * addend(c).astype(left.dtype, copy=False)
        written[...] = result

    return run


def _vector_product(op: "sparse.SpMv", shared: Rows) -> Callable[[Sequence[int], Any, Any], None] | None:
    """``run(a, x, out)``: ``out = op(a) @ x`` by the routine under SciPy's operator, which adds to an array of zeros.

    The operator allocates its result: on a thread other than the main one the kernel maps and clears it page by page in
    every call, a fifth of the time of a product with a million entries. None for products that the routine does not
    support.
    """
    from scipy.sparse import _sparsetools

    dtype = op.a.values.dtype
    if (
        not isinstance(op.a, sparse.CsrRef | sparse.CscRef)
        or work_dtype(dtype) != dtype.np
        or (op.transpose and op.conj and dtype.is_complex)
    ):
        return None
    rows, cols = op.a.shape[::-1] if op.transpose else op.a.shape
    if isinstance(op.a, sparse.CsrRef) == op.transpose:
        arrays = sound(op, "a")

        def by_columns(a: Sequence[int], x: Any, out: Any) -> None:
            values, indices, indptr = arrays(a)
            out.fill(0)
            _sparsetools.csc_matvec(rows, cols, indptr, indices, values, np.ascontiguousarray(x), out)

        return by_columns
    pointed, look = sound_by_parts(op, "a")

    def by_rows(a: Sequence[int], x: Any, out: Any) -> None:
        parts = values, indices, indptr = pointed(a)
        x = np.ascontiguousarray(x)

        def some(first: int, last: int) -> None:
            part, pointers = out[first:last], indptr[first : last + 1]
            look(parts, int(pointers[0]), int(pointers[-1]))
            part.fill(0)
            _sparsetools.csr_matvec(last - first, cols, pointers, indices, values, x, part)

        shared.run(some, indptr)

    return by_rows


@plans(sparse.SpGemm, sizes=True)
def sparse_product(op: "sparse.SpGemm") -> Found:
    """``product(a, b, alpha)``: values, indices and indptr of ``alpha * a @ b``, indices sorted."""
    left, right, alpha_of = matrix_of(op.a, sound(op, "a")), matrix_of(op.b, sound(op, "b")), reader(op.alpha)
    index, dtype = op.a.indices.dtype.np, op.a.values.dtype.np

    def product(a: Sequence[int], b: Sequence[int], alpha: Any) -> "list[np.ndarray[Any, Any]]":
        found = left(a) @ right(b)
        found.sort_indices()
        factor = alpha_of(alpha)
        values = (
            found.data if factor == 1 and not isinstance(op.alpha, Operand) else found.data * found.dtype.type(factor)
        )
        values = values.astype(dtype, copy=False)
        return [values, found.indices.astype(index, copy=False), found.indptr.astype(index, copy=False)]

    return Found(op, product)
