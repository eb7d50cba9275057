"""One matrix product from its layouts, executed by ``gemm`` and all batched forms, matrix by matrix."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from callboard.backends.cpu.blas.routines import integer, letter, number, prefix, routine
from callboard.backends.cpu.views import viewer
from callboard.core.layout import Layout
from callboard.kernel.blas.checks import BLAS_FLOATS
from callboard.kernel.blas.strides import Matrix, matrix_of

__all__ = ["Flags", "Product", "product", "required", "scaled", "start_from"]

Product = Callable[[int, int, int, int | None, Any, Any], None]
"""``(a, b, out, c, alpha, beta)``: four addresses and two numbers."""


class Flags(NamedTuple):
    """Transposition and conjugation of the factors."""

    transpose_a: bool
    transpose_b: bool
    conj_a: bool
    conj_b: bool


def required(layout: Layout) -> Matrix:
    """The matrix that a checked layout is."""
    form = matrix_of(layout)
    assert form is not None, layout  # the message has refused it otherwise
    return form


def product(a: Layout, b: Layout, out: Layout, c: Layout | None, flags: Flags) -> Product:
    """A function that computes ``out = alpha * op(a) @ op(b) + beta * c``."""
    if a.dtype in BLAS_FLOATS:
        return _blas_product(a, b, out, c, flags)
    if a.dtype.is_float:
        return _half_product(a, b, out, c, flags)
    return _integer_product(a, b, out, c, flags)


def _blas_product(a: Layout, b: Layout, out: Layout, c: Layout | None, flags: Flags) -> Product:
    form_a, form_b, form_out = required(a), required(b), required(out)
    # BLAS sees a row-major array as its transpose. For a row-major result it therefore computes the transpose of the
    # product, op(b).T @ op(a).T; `flipped` is true if an operand, in the order that BLAS sees, still has to be
    # transposed.
    flipped_a = form_a.transposed ^ flags.transpose_a ^ form_out.transposed
    flipped_b = form_b.transposed ^ flags.transpose_b ^ form_out.transposed
    op_a, op_b = letter(_operation(flipped_a, flags.conj_a)), letter(_operation(flipped_b, flags.conj_b))
    m, n = integer(form_out.rows), integer(form_out.cols)
    k = integer(form_a.rows if flags.transpose_a else form_a.cols)
    lda, ldb, ldc = integer(form_a.ld), integer(form_b.ld), integer(form_out.ld)
    gemm, pack = routine(prefix(a.dtype) + "gemm"), number(a.dtype)
    addend, scale = start_from(out, c), scaled(out, c)

    if form_out.transposed:

        def column_major(a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
            if alpha == 0:  # OpenBLAS multiplies small matrices nevertheless, and NaN by 0
                scale(out, c, beta)
            else:
                addend(out, c, beta)
                gemm(op_a, op_b, m, n, k, pack(alpha), a, lda, b, ldb, pack(beta), out, ldc)

        return column_major

    def row_major(a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        if alpha == 0:
            scale(out, c, beta)
        else:
            addend(out, c, beta)
            gemm(op_b, op_a, n, m, k, pack(alpha), b, ldb, a, lda, pack(beta), out, ldc)

    return row_major


def _operation(flipped: bool, conj: bool) -> str:
    return ("C" if conj else "T") if flipped else "N"


def start_from(out: Layout, c: Layout | None) -> Callable[[int, int | None, Any], None]:
    """A function ``(out, c, beta)`` that copies ``c`` to ``out``, if it is wanted and not there already."""
    if c is None:
        return lambda out, c, beta: None
    view_out, view_c = viewer(out), viewer(c)
    one_layout = out == c

    def copy(out: int, c: int | None, beta: Any) -> None:
        if beta != 0 and c is not None and not (one_layout and out == c):
            np.copyto(view_out(out), view_c(c))

    return copy


def scaled(out: Layout, c: Layout | None) -> Callable[[int, int | None, Any], None]:
    """A function ``(out, c, beta)`` for a product with an ``alpha`` of 0: ``out = beta * c``, of floating types."""
    view_out, view_c = viewer(out), None if c is None else viewer(c)
    wide: Any = np.dtype(out.dtype.np if out.dtype in BLAS_FLOATS else np.float32)

    def scale(out: int, c: int | None, beta: Any) -> None:
        if beta == 0 or view_c is None or c is None:
            view_out(out)[...] = 0
        else:
            view_out(out)[...] = view_c(c).astype(wide, copy=False) * wide.type(beta)

    return scale


def _views(a: Layout, b: Layout, flags: Flags) -> Callable[[int, int], tuple[Any, Any]]:
    view_a, view_b = viewer(a), viewer(b)
    turn_a, turn_b = flags.transpose_a, flags.transpose_b

    def both(a: int, b: int) -> tuple[Any, Any]:
        x, y = view_a(a), view_b(b)
        return x.T if turn_a else x, y.T if turn_b else y

    return both


def _half_product(a: Layout, b: Layout, out: Layout, c: Layout | None, flags: Flags) -> Product:
    views, view_out, scale = _views(a, b, flags), viewer(out), scaled(out, c)
    view_c = None if c is None else viewer(c)

    def run(a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        if alpha == 0:
            scale(out, c, beta)
            return
        x, y = views(a, b)
        result = x.astype(np.float32) @ y.astype(np.float32)
        if alpha != 1:
            result *= np.float32(alpha)
        if beta != 0 and view_c is not None and c is not None:
            result += np.float32(beta) * view_c(c).astype(np.float32)
        view_out(out)[...] = result

    return run


EXACT_TERMS = 2**53 // 2**14
"""The number of products of two i8 whose sum is exact in f64."""


def _integer_product(a: Layout, b: Layout, out: Layout, c: Layout | None, flags: Flags) -> Product:
    views, view_out = _views(a, b, flags), viewer(out)
    view_c = None if c is None else viewer(c)

    def run(a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        x, y = views(a, b)
        # f64 has a fast product and holds every partial sum; in i64, sums that pass 2**63 still end right modulo 2**32.
        wide = np.float64 if x.shape[1] <= EXACT_TERMS else np.int64
        result = (x.astype(wide) @ y.astype(wide)).astype(np.int64) * int(alpha)
        if beta != 0 and view_c is not None and c is not None:
            result += int(beta) * view_c(c).astype(np.int64)
        view_out(out)[...] = result.astype(np.int32)

    return run
