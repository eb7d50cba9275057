"""Plans of BLAS level 3."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.blas.products import Flags, product, required, start_from
from callboard.backends.cpu.blas.routines import integer, letter, number, prefix, routine
from callboard.backends.cpu.blas.scalars import reader
from callboard.backends.cpu.views import viewer
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.core.op import Op
from callboard.core.operand import Operand
from callboard.kernel.blas import Geam, Gemm, Hemm, Her2k, Herk, Symm, Syr2k, Syrk, Trmm, Trsm

__all__ = ["geam", "gemm", "layout_of_out", "rank_2k", "rank_k", "symmetric", "triangle", "triangular"]

Plan = Callable[..., None]


def layout_of_out(op: Op[Any, Any]) -> Layout:
    """Return the layout of the given output, or of the one that the host allocates."""
    given: Operand | None = op.out  # type: ignore[attr-defined]
    return op.infer()["out"] if given is None else given.layout


@plans(Gemm)
def gemm(op: Gemm) -> Plan:
    """Called with ``(a, b, out, c, alpha, beta)``."""
    flags = Flags(op.transpose_a, op.transpose_b, op.conj_a, op.conj_b)
    run = product(op.a.layout, op.b.layout, layout_of_out(op), None if op.c is None else op.c.layout, flags)
    read_alpha, read_beta = reader(op.alpha), reader(op.beta)

    def work(a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        run(a, b, out, c, read_alpha(alpha), read_beta(beta))

    return work


@plans(Geam)
def geam(op: Geam) -> Plan:
    """Called with ``(a, b, out, alpha, beta)``; BLAS has none, so NumPy."""
    view_a, view_b, view_out = viewer(op.a.layout), viewer(op.b.layout), viewer(layout_of_out(op))
    read_alpha, read_beta = reader(op.alpha), reader(op.beta)
    term_a, term_b = _term(op.transpose_a, op.conj_a), _term(op.transpose_b, op.conj_b)

    def work(a: int, b: int, out: int, alpha: Any, beta: Any) -> None:
        factor_a, factor_b = read_alpha(alpha), read_beta(beta)
        result: Any = 0
        if factor_a != 0:
            result = term_a(view_a(a), factor_a)
        if factor_b != 0:
            result = result + term_b(view_b(b), factor_b)
        view_out(out)[...] = result

    return work


def _term(transpose: bool, conj: bool) -> Callable[[Any, Any], Any]:
    def term(array: Any, factor: Any) -> Any:
        turned = array.T if transpose else array
        return (turned.conj() if conj else turned) * factor

    return term


@plans(Herk, Syrk)
def rank_k(op: Syrk | Herk) -> Plan:
    """Called with ``(a, c, alpha, beta)``."""
    dtype = op.a.dtype
    form_a, form_c = required(op.a.layout), required(op.c.layout)
    hermitian = isinstance(op, Herk)
    call = routine(prefix(dtype) + ("herk" if hermitian else "syrk"))
    uplo = triangle(op.lower, form_c.transposed)
    trans = letter("N" if form_a.transposed ^ op.transpose else "C" if hermitian else "T")
    n, k = integer(form_c.rows), integer(form_a.rows if op.transpose else form_a.cols)
    lda, ldc = integer(form_a.ld), integer(form_c.ld)
    pack = number(dtype.real if hermitian else dtype)
    read_alpha, read_beta = reader(op.alpha), reader(op.beta)
    view_c, empty = viewer(op.c.layout), op.a.size == 0

    def work(a: int, c: int, alpha: Any, beta: Any) -> None:
        alpha = read_alpha(alpha)
        call(uplo, trans, n, k, pack(alpha), a, lda, pack(read_beta(beta)), c, ldc)
        if hermitian and (empty or alpha == 0):  # with a beta of 1, BLAS leaves c as it is
            np.fill_diagonal(view_c(c).imag, 0)

    return work


@plans(Her2k, Syr2k)
def rank_2k(op: Syr2k | Her2k) -> Plan:
    """Called with ``(a, b, c, alpha, beta)``.

    For a Hermitian product in row-major matrices, BLAS sees the conjugate.
    """
    dtype, hermitian = op.a.dtype, isinstance(op, Her2k)
    form_a, form_b, form_c = required(op.a.layout), required(op.b.layout), required(op.c.layout)
    call = routine(prefix(dtype) + ("her2k" if hermitian else "syr2k"))
    uplo = triangle(op.lower, form_c.transposed)
    trans = letter("N" if form_a.transposed ^ op.transpose else "C" if hermitian else "T")
    n, k = integer(form_c.rows), integer(form_a.rows if op.transpose else form_a.cols)
    lda, ldb, ldc = integer(form_a.ld), integer(form_b.ld), integer(form_c.ld)
    pack, scale = number(dtype), number(dtype.real if hermitian else dtype)
    read_alpha, read_beta = reader(op.alpha), reader(op.beta)
    swapped = hermitian and not form_c.transposed

    def work(a: int, b: int, c: int, alpha: Any, beta: Any) -> None:
        first, second = ((b, ldb), (a, lda)) if swapped else ((a, lda), (b, ldb))
        call(uplo, trans, n, k, pack(read_alpha(alpha)), *first, *second, scale(read_beta(beta)), c, ldc)

    return work


def triangle(lower: bool, transposed: bool) -> Any:
    """The triangle in the order that BLAS sees: the other one for a row-major array."""
    return letter("L" if lower == transposed else "U")


@plans(Hemm, Symm)
def symmetric(op: Symm | Hemm) -> Plan:
    """Called with ``(a, b, out, c, alpha, beta)``."""
    dtype, out_layout = op.a.dtype, layout_of_out(op)
    form_a, form_b, form_out = required(op.a.layout), required(op.b.layout), required(out_layout)
    call = routine(prefix(dtype) + ("hemm" if isinstance(op, Hemm) else "symm"))
    side = letter("L" if op.left == form_out.transposed else "R")
    uplo = triangle(op.lower, form_a.transposed)
    m, n = integer(form_out.rows), integer(form_out.cols)
    if not form_out.transposed:
        m, n = n, m
    lda, ldb, ldc = integer(form_a.ld), integer(form_b.ld), integer(form_out.ld)
    addend = start_from(out_layout, None if op.c is None else op.c.layout)
    pack, read_alpha, read_beta = number(dtype), reader(op.alpha), reader(op.beta)

    def work(a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        factor = read_beta(beta)
        addend(out, c, factor)
        call(side, uplo, m, n, pack(read_alpha(alpha)), a, lda, b, ldb, pack(factor), out, ldc)

    return work


@plans(Trmm, Trsm)
def triangular(op: Trsm | Trmm) -> Plan:
    """Called with ``(a, b, alpha)``."""
    dtype = op.a.dtype
    form_a, form_b = required(op.a.layout), required(op.b.layout)
    call = routine(prefix(dtype) + ("trsm" if isinstance(op, Trsm) else "trmm"))
    side = letter("L" if op.left == form_b.transposed else "R")
    uplo = triangle(op.lower, form_a.transposed)
    flipped = form_a.transposed ^ op.transpose ^ form_b.transposed
    trans = letter(("C" if op.conj else "T") if flipped else "N")
    diag = letter("U" if op.unit_diagonal else "N")
    m, n = integer(form_b.rows), integer(form_b.cols)
    if not form_b.transposed:
        m, n = n, m
    lda, ldb = integer(form_a.ld), integer(form_b.ld)
    pack, read_alpha = number(dtype), reader(op.alpha)

    def work(a: int, b: int, alpha: Any) -> None:
        call(side, uplo, trans, diag, m, n, pack(read_alpha(alpha)), a, lda, b, ldb)

    return work
