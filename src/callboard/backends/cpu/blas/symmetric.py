"""Plans of symmetric and Hermitian matrices and vectors.

BLAS reads a row-major square as its transpose, which for a Hermitian matrix is the conjugate. Its level 2 routines do
not support that, but its level 3 routines do, so vectors are passed as matrices of one row.
"""

from collections.abc import Callable
from typing import Any

from callboard.backends.cpu.blas.level1 import strided
from callboard.backends.cpu.blas.level3 import layout_of_out, triangle
from callboard.backends.cpu.blas.products import required, scaled, start_from
from callboard.backends.cpu.blas.routines import integer, letter, number, prefix, routine
from callboard.backends.cpu.blas.scalars import reader
from callboard.backends.cpu.blas.triangular import stored
from callboard.backends.cpu.views import viewer
from callboard.core.library import plans
from callboard.kernel.blas import Hbmv, Hemv, Her, Her2, Hpmv, Hpr, Hpr2, Sbmv, Spmv, Spr2, Symv, Syr2
from callboard.kernel.blas.symmetric import HermitianRank1, SymmetricProduct, SymmetricRank2

__all__ = ["product", "rank_1", "rank_2"]

Plan = Callable[..., None]


@plans(Hbmv, Hemv, Hpmv, Sbmv, Spmv, Symv)
def product(op: SymmetricProduct) -> Plan:
    """Called with ``(a, x, out, y, alpha, beta)``."""
    dtype, out_layout = op.a.dtype, layout_of_out(op)
    y_layout = None if op.y is None else op.y.layout
    addend, scale, view_out = start_from(out_layout, y_layout), scaled(out_layout, y_layout), viewer(out_layout)
    pack, read_alpha, read_beta = number(dtype), reader(op.alpha), reader(op.beta)
    enqueue = _call(op)

    def work(a: int, x: int, out: int, y: int | None, alpha: Any, beta: Any) -> None:
        alpha, beta = read_alpha(alpha), read_beta(beta)
        if alpha == 0:
            scale(out, y, beta)
            return
        addend(out, y, beta)
        if beta == 0:
            view_out(out)[...] = 0  # libraries differ in whether they scale NaN in the output by 0
        enqueue(pack(alpha), a, x, pack(beta), out)

    return work


def _call(op: SymmetricProduct) -> Callable[[Any, int, int, Any, int], None]:
    """The routine, as a function of ``(alpha, a, x, beta, out)``."""
    letters, x_at, out_at = prefix(op.a.dtype), strided(op.x.layout), strided(layout_of_out(op))
    name = type(op).__name__.lower()
    if op.storage == "square" and op.hermitian and not (form := required(op.a.layout)).transposed:
        call, side, uplo, one = routine(f"{letters}hemm"), letter("R"), triangle(op.lower, False), integer(1)
        lda = integer(form.ld)
        return lambda alpha, a, x, beta, out: call(
            side, uplo, one, x_at.n, alpha, a, lda, x, x_at.inc, beta, out, out_at.inc
        )
    call = routine(letters + name)
    lead, steps, column_major = stored(op)
    uplo = triangle(op.lower, column_major or op.hermitian)
    return lambda alpha, a, x, beta, out: call(
        *(uplo, x_at.n, *lead, alpha, a, *steps, x + x_at.first, x_at.inc),
        *(beta, out + out_at.first, out_at.inc),
    )


@plans(Her, Hpr)
def rank_1(op: HermitianRank1) -> Plan:
    """Called with ``(x, a, alpha)``."""
    dtype, x_at = op.a.dtype, strided(op.x.layout)
    if op.packed:
        hpr, by_columns = routine(prefix(dtype) + "hpr"), triangle(op.lower, True)
        pack, read_alpha = number(dtype.real), reader(op.alpha)
        return lambda x, a, alpha: hpr(by_columns, x_at.n, pack(read_alpha(alpha)), x + x_at.first, x_at.inc, a)
    form = required(op.a.layout)
    uplo, lda, pack, read_alpha = (
        triangle(op.lower, form.transposed),
        integer(form.ld),
        number(dtype.real),
        reader(op.alpha),
    )
    if form.transposed:
        call = routine(prefix(dtype) + "her")
        return lambda x, a, alpha: call(uplo, x_at.n, pack(read_alpha(alpha)), x + x_at.first, x_at.inc, a, lda)
    call, trans, one = routine(prefix(dtype) + "herk"), letter("C"), integer(1)
    keep = number(dtype.real)(1.0)
    return lambda x, a, alpha: call(uplo, trans, x_at.n, one, pack(read_alpha(alpha)), x, x_at.inc, keep, a, lda)


@plans(Her2, Hpr2, Spr2, Syr2)
def rank_2(op: SymmetricRank2) -> Plan:
    """Called with ``(x, y, a, alpha)``."""
    dtype, x_at, y_at = op.a.dtype, strided(op.x.layout), strided(op.y.layout)
    pack, read_alpha = number(dtype), reader(op.alpha)
    form = None if op.packed else required(op.a.layout)
    uplo = triangle(op.lower, op.hermitian if form is None else form.transposed)
    ld = () if form is None else (integer(form.ld),)
    if form is not None and dtype.is_complex and not (op.hermitian and form.transposed):
        name, scale = ("her2k", dtype.real) if op.hermitian else ("syr2k", dtype)  # BLAS has no syr2 of these
        call, trans, one = routine(prefix(dtype) + name), letter("C" if op.hermitian else "T"), integer(1)
        keep = number(scale)(1.0)
        return lambda x, y, a, alpha: call(
            uplo, trans, x_at.n, one, pack(read_alpha(alpha)), y, y_at.inc, x, x_at.inc, keep, a, *ld
        )
    call = routine(prefix(dtype) + type(op).__name__.lower())
    return lambda x, y, a, alpha: call(
        *(uplo, x_at.n, pack(read_alpha(alpha)), x + x_at.first, x_at.inc, y + y_at.first, y_at.inc, a, *ld)
    )
