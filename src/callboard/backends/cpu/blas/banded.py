"""The plan of a banded matrix and a vector."""

from collections.abc import Callable
from typing import Any

from callboard.backends.cpu.blas.level1 import strided
from callboard.backends.cpu.blas.level3 import layout_of_out
from callboard.backends.cpu.blas.products import scaled, start_from
from callboard.backends.cpu.blas.routines import integer, letter, number, prefix, routine
from callboard.backends.cpu.blas.scalars import reader
from callboard.backends.cpu.views import viewer
from callboard.core.library import plans
from callboard.kernel.blas import Gbmv
from callboard.kernel.blas.strides import band_of

__all__ = ["gbmv"]


@plans(Gbmv)
def gbmv(op: Gbmv) -> Callable[..., None]:
    """Called with ``(a, x, out, y, alpha, beta)``."""
    dtype, out_layout = op.a.dtype, layout_of_out(op)
    width, n = op.a.shape
    y_layout = None if op.y is None else op.y.layout
    addend, scale, view_out = start_from(out_layout, y_layout), scaled(out_layout, y_layout), viewer(out_layout)
    pack, read_alpha, read_beta = number(dtype), reader(op.alpha), reader(op.beta)
    call, x_at, out_at = routine(prefix(dtype) + "gbmv"), strided(op.x.layout), strided(out_layout)
    trans = letter(("C" if op.conj else "T") if op.transpose else "N")
    m, cols, ld = integer(n if op.rows is None else op.rows), integer(n), integer(band_of(op.a.layout) or 1)
    below, above, nothing = integer(op.below), integer(width - 1 - op.below), op.x.size == 0

    def work(a: int, x: int, out: int, y: int | None, alpha: Any, beta: Any) -> None:
        alpha, beta = read_alpha(alpha), read_beta(beta)
        if alpha == 0 or nothing:
            scale(out, y, beta)
            return
        addend(out, y, beta)
        if beta == 0:
            view_out(out)[...] = 0
        call(
            *(trans, m, cols, below, above, pack(alpha), a, ld, x + x_at.first, x_at.inc),
            *(pack(beta), out + out_at.first, out_at.inc),
        )

    return work
