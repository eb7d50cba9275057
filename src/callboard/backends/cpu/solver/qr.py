"""Plans of QR and least squares."""

from collections.abc import Callable

import numpy as np

from callboard.backends.cpu.solver.lapack import (
    Array,
    Work,
    check_finite,
    checker,
    lapack,
    name_of,
    outputs,
    staged,
    tag_of,
)
from callboard.core.dtype import DType
from callboard.core.library import plans
from callboard.kernel.solver import Geqrf, LeastSquares, Orgqr, Ormqr, Qr
from callboard.kernel.solver.failures import deficient

__all__ = ["gels", "geqrf", "householder", "least_squares", "orgqr", "ormqr", "qr"]

Plan = Callable[..., None]


def householder(dtype: DType, a: Array) -> Array:
    """Factor ``a`` in place; ``tau``."""
    m, n = a.shape
    tau = np.zeros(min(m, n), dtype.np)
    if a.size:
        lapack(name_of(dtype, "geqrf"), m, n, a, m, tau, Work(dtype.np))
    return tau


def _columns_of_q(dtype: DType, h: Array, tau: Array, columns: int) -> Array:
    m, k = h.shape[0], len(tau)
    q = np.zeros((m, columns), dtype.np, order="F")
    q[:, :k] = h[:, :k]
    if q.size:
        lapack(name_of(dtype, "orgqr", "ungqr"), m, columns, k, q, m, tau, Work(dtype.np))
    return q


def gels(dtype: DType, a: Array, b: Array) -> tuple[Array, int]:
    """``x`` and ``info``; destroys its operands."""
    (m, n), columns = a.shape, b.shape[1]
    both = np.zeros((max(m, n, 1), columns), dtype.np, order="F")
    both[:m] = b
    info = 0
    if not (m and n and columns):
        both[...] = 0
    elif not a.any():
        info = 1  # LAPACK returns 0 there, without checking the diagonal
    else:
        info = lapack(name_of(dtype, "gels"), "N", m, n, columns, a, m, both, len(both), Work(dtype.np))
    return both[:n], info


@plans(Qr)
def qr(op: Qr) -> Plan:
    """Called with ``(a, q, r)``."""
    dtype, stage = op.a.dtype, staged(op.a)
    view_q, view_r = outputs(op, "q", "r")
    check = checker(op)

    def work(a: int, q: int, r: int) -> None:
        h = stage(a)
        check(h)
        tau = householder(dtype, h)
        out_q, out_r = view_q(q), view_r(r)
        out_r[...] = np.triu(h)[: out_r.shape[0]]
        out_q[...] = _columns_of_q(dtype, h, tau, out_q.shape[1])

    return work


@plans(Geqrf)
def geqrf(op: Geqrf) -> Plan:
    """Called with ``(a, h, tau)``."""
    dtype, tag, stage = op.a.dtype, tag_of(op), staged(op.a)
    view_h, view_tau = outputs(op, "h", "tau")

    def work(a: int, h: int, tau: int) -> None:
        factors = stage(a)
        check_finite(tag, factors)
        view_tau(tau)[...] = householder(dtype, factors)
        view_h(h)[...] = factors

    return work


@plans(Orgqr)
def orgqr(op: Orgqr) -> Plan:
    """Called with ``(h, tau, q)``."""
    dtype, tag, stage_h, stage_tau = op.h.dtype, tag_of(op), staged(op.h), staged(op.tau)
    (view_q,) = outputs(op, "q")

    def work(h: int, tau: int, q: int) -> None:
        factors, factor = stage_h(h), stage_tau(tau)
        check_finite(tag, factors, factor)
        out = view_q(q)
        out[...] = _columns_of_q(dtype, factors, factor.ravel(), out.shape[1])

    return work


@plans(Ormqr)
def ormqr(op: Ormqr) -> Plan:
    """Called with ``(h, tau, c, out)``."""
    dtype, tag, stage_h, stage_tau, stage_c = op.h.dtype, tag_of(op), staged(op.h), staged(op.tau), staged(op.c)
    (view_out,) = outputs(op, "out")
    side = "L" if op.side == "left" else "R"
    turned = ("C" if dtype.is_complex else "T") if op.transpose else "N"
    name = name_of(dtype, "ormqr", "unmqr")
    (m, k), (rows, cols) = (op.h.shape[0], op.tau.size), op.c.shape

    def work(h: int, tau: int, c: int, out: int) -> None:
        factors, factor, product = stage_h(h), stage_tau(tau), stage_c(c)
        check_finite(tag, factors, factor, product)
        if k and product.size:
            lapack(name, side, turned, rows, cols, k, factors, m, factor, product, rows, Work(dtype.np))
        view_out(out)[...] = product

    return work


@plans(LeastSquares)
def least_squares(op: LeastSquares) -> Plan:
    """Called with ``(a, b, x)``."""
    dtype, tag, stage_a, stage_b = op.a.dtype, tag_of(op), staged(op.a), staged(op.b)
    (view_x,) = outputs(op, "x")

    def work(a: int, b: int, x: int) -> None:
        left, right = stage_a(a), stage_b(b)
        check_finite(tag, left, right)
        found, info = gels(dtype, left, right)
        if info:
            raise deficient(tag, info)
        out = view_x(x)
        out[...] = found.reshape(out.shape)

    return work
