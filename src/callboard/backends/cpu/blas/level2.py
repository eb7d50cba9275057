"""Plans of BLAS level 2."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.blas.level1 import strided
from callboard.backends.cpu.blas.level3 import layout_of_out, triangle
from callboard.backends.cpu.blas.products import required, scaled, start_from
from callboard.backends.cpu.blas.routines import integer, letter, number, prefix, routine
from callboard.backends.cpu.blas.scalars import reader
from callboard.backends.cpu.views import viewer
from callboard.core.library import plans
from callboard.kernel.blas import Gemv, Ger, Gerc, Geru, Spr, Syr
from callboard.kernel.blas.checks import BLAS_FLOATS

__all__ = ["gemv", "rank_1", "symmetric_rank_1"]

Plan = Callable[..., None]


@plans(Gemv)
def gemv(op: Gemv) -> Plan:
    """Called with ``(a, x, out, y, alpha, beta)``."""
    dtype, form = op.a.dtype, required(op.a.layout)
    conj = op.conj and dtype.is_complex
    flipped = form.transposed ^ op.transpose
    # BLAS does nothing when x is empty, has no half types, and conjugates only together with a transposition.
    if op.x.size == 0 or dtype not in BLAS_FLOATS or (conj and flipped):
        return _gemv_by_numpy(op)
    out_layout = layout_of_out(op)
    call, pack = routine(prefix(dtype) + "gemv"), number(dtype)
    trans = letter("N" if flipped else "C" if conj else "T")
    m, n = integer(form.rows), integer(form.cols)
    if not form.transposed:
        m, n = n, m
    lda, x_at, out_at = integer(form.ld), strided(op.x.layout), strided(out_layout)
    addend, view_out = start_from(out_layout, None if op.y is None else op.y.layout), viewer(out_layout)
    read_alpha, read_beta = reader(op.alpha), reader(op.beta)

    def work(a: int, x: int, out: int, y: int | None, alpha: Any, beta: Any) -> None:
        beta = read_beta(beta)
        addend(out, y, beta)
        if beta == 0:
            view_out(out)[...] = 0  # libraries differ in whether they scale NaN in the output by 0
        call(
            trans,
            m,
            n,
            pack(read_alpha(alpha)),
            a,
            lda,
            x + x_at.first,
            x_at.inc,
            pack(beta),
            out + out_at.first,
            out_at.inc,
        )

    return work


def _gemv_by_numpy(op: Gemv) -> Plan:
    dtype = op.a.dtype
    wide = dtype.np if dtype in BLAS_FLOATS else np.dtype(np.float32)
    view_a, view_x, view_out = viewer(op.a.layout), viewer(op.x.layout), viewer(layout_of_out(op))
    view_y = None if op.y is None else viewer(op.y.layout)
    read_alpha, read_beta = reader(op.alpha), reader(op.beta)

    scale = scaled(layout_of_out(op), None if op.y is None else op.y.layout)

    def work(a: int, x: int, out: int, y: int | None, alpha: Any, beta: Any) -> None:
        alpha, beta = read_alpha(alpha), read_beta(beta)
        if alpha == 0:
            scale(out, y, beta)
            return
        matrix = view_a(a).astype(wide, copy=False)
        matrix = matrix.T if op.transpose else matrix
        result = (matrix.conj() if op.conj else matrix) @ view_x(x).astype(wide, copy=False)
        result *= alpha
        if beta != 0 and view_y is not None and y is not None:
            result += beta * view_y(y).astype(wide, copy=False)
        view_out(out)[...] = result

    return work


@plans(Ger, Gerc, Geru)
def rank_1(op: Ger | Geru | Gerc) -> Plan:
    """Called with ``(x, y, a, alpha)``."""
    dtype, form = op.a.dtype, required(op.a.layout)
    lda, pack, read_alpha = integer(form.ld), number(dtype), reader(op.alpha)
    m, n = integer(form.rows), integer(form.cols)
    x_at, y_at = strided(op.x.layout), strided(op.y.layout)
    plain = routine(prefix(dtype) + ("geru" if dtype.is_complex else "ger"))
    if form.transposed:
        call = routine(prefix(dtype) + "gerc") if isinstance(op, Gerc) else plain

        def column_major(x: int, y: int, a: int, alpha: Any) -> None:
            call(m, n, pack(read_alpha(alpha)), x + x_at.first, x_at.inc, y + y_at.first, y_at.inc, a, lda)

        return column_major

    if isinstance(op, Gerc):
        view_y, one = viewer(op.y.layout), integer(1)

        def conjugated(x: int, y: int, a: int, alpha: Any) -> None:
            # In the order that BLAS sees, y is the first vector, and gerc conjugates the second.
            first = np.conj(view_y(y))
            call_plain(first.ctypes.data, one, x + x_at.first, x_at.inc, a, pack(read_alpha(alpha)))

        def call_plain(y: int, inc: Any, x: int, inc_x: Any, a: int, alpha: Any) -> None:
            plain(n, m, alpha, y, inc, x, inc_x, a, lda)

        return conjugated

    def row_major(x: int, y: int, a: int, alpha: Any) -> None:
        plain(n, m, pack(read_alpha(alpha)), y + y_at.first, y_at.inc, x + x_at.first, x_at.inc, a, lda)

    return row_major


@plans(Spr, Syr)
def symmetric_rank_1(op: Syr | Spr) -> Plan:
    """Called with ``(x, a, alpha)``. Packed by rows, a triangle is what BLAS has packed by columns as the other one."""
    dtype, x_at = op.a.dtype, strided(op.x.layout)
    form = None if op.packed else required(op.a.layout)
    call, pack, read_alpha = (
        routine(prefix(dtype) + ("spr" if form is None else "syr")),
        number(dtype),
        reader(op.alpha),
    )
    uplo = triangle(op.lower, form is not None and form.transposed)
    ld = () if form is None else (integer(form.ld),)

    def work(x: int, a: int, alpha: Any) -> None:
        call(uplo, x_at.n, pack(read_alpha(alpha)), x + x_at.first, x_at.inc, a, *ld)

    return work
