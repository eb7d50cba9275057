"""Plans of the batched ops: one item after the other."""

from collections.abc import Callable

import numpy as np

from callboard.backends.cpu.solver.cholesky import potrf, potrs
from callboard.backends.cpu.solver.eigen import heevd
from callboard.backends.cpu.solver.lapack import Array, check_finite, checker, outputs, tag_of
from callboard.backends.cpu.solver.lu import getrf, getrs, rows_of_pivots
from callboard.backends.cpu.solver.qr import gels, householder
from callboard.backends.cpu.solver.svd import gesdd
from callboard.backends.cpu.views import viewer
from callboard.core.library import plans
from callboard.kernel.solver import (
    GelsBatched,
    GeqrfBatched,
    GesvdjBatched,
    GesvdjValuesBatched,
    GetrfBatched,
    GetrsBatched,
    PotrfBatched,
    PotrsBatched,
    SyevBatched,
)
from callboard.kernel.solver.failures import (
    Explain,
    deficient,
    first_of,
    indefinite,
    singular,
    unconverged,
    unconverged_off_diagonals,
)

__all__ = [
    "gels_batched",
    "geqrf_batched",
    "gesvdj_batched",
    "gesvdj_values_batched",
    "getrf_batched",
    "getrs_batched",
    "potrf_batched",
    "potrs_batched",
    "syev_batched",
]

Plan = Callable[..., None]


class Infos:
    """The ``info`` values of the items of a batch."""

    def __init__(self, tag: str, batch: int, explain: Explain) -> None:
        self._tag = tag
        self._batch = batch
        self._explain = explain
        self._failed: list[tuple[int, int]] = []

    def add(self, item: int, info: int) -> None:
        if info:
            self._failed.append((item, info))

    def check(self) -> None:
        """Raise the error of the first failing item."""
        if self._failed:
            item, info = self._failed[0]
            raise first_of(self._explain(self._tag, info), item, len(self._failed), self._batch)


def _item(array: Array) -> Array:
    return np.array(array, order="F")


@plans(GetrfBatched)
def getrf_batched(op: GetrfBatched) -> Plan:
    """Called with ``(a, lu, pivots)``."""
    dtype, tag, view_a = op.a.dtype, tag_of(op), viewer(op.a.layout)
    view_lu, view_pivots = outputs(op, "lu", "pivots")
    check = checker(op)

    def work(a: int, lu: int, pivots: int) -> None:
        stack, out, out_pivots = view_a(a), view_lu(lu), view_pivots(pivots)
        check(stack)
        infos = Infos(tag, len(stack), singular)
        for i, matrix in enumerate(stack):
            factors = _item(matrix)
            rows, info = getrf(dtype, factors)
            infos.add(i, info)
            out[i], out_pivots[i] = factors, rows - 1
        infos.check()

    return work


@plans(GetrsBatched)
def getrs_batched(op: GetrsBatched) -> Plan:
    """Called with ``(lu, pivots, b, x)``."""
    dtype, tag, n = op.lu.dtype, tag_of(op), op.lu.shape[1]
    view_lu, view_pivots, view_b = viewer(op.lu.layout), viewer(op.pivots.layout), viewer(op.b.layout)
    (view_x,) = outputs(op, "x")
    transpose = op.transpose
    check = checker(op)

    def work(lu: int, pivots: int, b: int, x: int) -> None:
        stack, right, out = view_lu(lu), view_b(b), view_x(x)
        check(stack, right)
        rows = rows_of_pivots(tag, view_pivots(pivots), n)
        for i, matrix in enumerate(stack):
            found = _item(right[i])
            getrs(dtype, transpose, _item(matrix), np.ascontiguousarray(rows[i]), found)
            out[i] = found

    return work


@plans(PotrfBatched)
def potrf_batched(op: PotrfBatched) -> Plan:
    """Called with ``(a, out)``."""
    dtype, tag, view_a, lower = op.a.dtype, tag_of(op), viewer(op.a.layout), op.lower
    (view_out,) = outputs(op, "out")
    keep = np.tril if lower else np.triu

    def work(a: int, out: int) -> None:
        stack, factors = view_a(a), view_out(out)
        check_finite(tag, stack)
        infos = Infos(tag, len(stack), indefinite)
        for i, matrix in enumerate(stack):
            factor = _item(matrix)
            infos.add(i, potrf(dtype, lower, factor))
            factors[i] = keep(factor)
        infos.check()

    return work


@plans(PotrsBatched)
def potrs_batched(op: PotrsBatched) -> Plan:
    """Called with ``(factor, b, x)``."""
    dtype, tag, lower = op.factor.dtype, tag_of(op), op.lower
    view_factor, view_b = viewer(op.factor.layout), viewer(op.b.layout)
    (view_x,) = outputs(op, "x")

    def work(factor: int, b: int, x: int) -> None:
        stack, right, out = view_factor(factor), view_b(b), view_x(x)
        check_finite(tag, stack, right)
        for i, matrix in enumerate(stack):
            found = _item(right[i])
            potrs(dtype, lower, _item(matrix), found)
            out[i] = found

    return work


@plans(GeqrfBatched)
def geqrf_batched(op: GeqrfBatched) -> Plan:
    """Called with ``(a, h, tau)``."""
    dtype, view_a = op.a.dtype, viewer(op.a.layout)
    view_h, view_tau = outputs(op, "h", "tau")
    check = checker(op)

    def work(a: int, h: int, tau: int) -> None:
        stack, out, out_tau = view_a(a), view_h(h), view_tau(tau)
        check(stack)
        for i, matrix in enumerate(stack):
            factors = _item(matrix)
            out_tau[i] = householder(dtype, factors)
            out[i] = factors

    return work


@plans(GelsBatched)
def gels_batched(op: GelsBatched) -> Plan:
    """Called with ``(a, b, x)``."""
    dtype, tag, view_a, view_b = op.a.dtype, tag_of(op), viewer(op.a.layout), viewer(op.b.layout)
    (view_x,) = outputs(op, "x")

    def work(a: int, b: int, x: int) -> None:
        stack, right, out = view_a(a), view_b(b), view_x(x)
        check_finite(tag, stack, right)
        infos = Infos(tag, len(stack), deficient)
        for i, matrix in enumerate(stack):
            out[i], info = gels(dtype, _item(matrix), _item(right[i]))
            infos.add(i, info)
        infos.check()

    return work


@plans(GesvdjBatched)
def gesvdj_batched(op: GesvdjBatched) -> Plan:
    """Called with ``(a, u, s, vt)``; by divide and conquer."""
    dtype, tag, view_a = op.a.dtype, tag_of(op), viewer(op.a.layout)
    view_u, view_s, view_vt = outputs(op, "u", "s", "vt")

    def work(a: int, u: int, s: int, vt: int) -> None:
        stack, out_u, out_s, out_vt = view_a(a), view_u(u), view_s(s), view_vt(vt)
        check_finite(tag, stack)
        infos = Infos(tag, len(stack), unconverged_off_diagonals)
        for i, matrix in enumerate(stack):
            left, right = _item(out_u[i]), _item(out_vt[i])
            values = np.empty(out_s.shape[1:], dtype.real.np)
            if matrix.size:
                infos.add(i, gesdd(dtype, "S", _item(matrix), values, left, right))
                out_u[i], out_s[i], out_vt[i] = left, values, right
        infos.check()

    return work


@plans(GesvdjValuesBatched)
def gesvdj_values_batched(op: GesvdjValuesBatched) -> Plan:
    """Called with ``(a, s)``; by divide and conquer."""
    dtype, tag, view_a = op.a.dtype, tag_of(op), viewer(op.a.layout)
    (view_s,) = outputs(op, "s")
    none = np.empty((0, 0), dtype.np)

    def work(a: int, s: int) -> None:
        stack, out = view_a(a), view_s(s)
        check_finite(tag, stack)
        infos = Infos(tag, len(stack), unconverged_off_diagonals)
        for i, matrix in enumerate(stack):
            values = np.empty(out.shape[1:], dtype.real.np)
            if matrix.size:
                infos.add(i, gesdd(dtype, "N", _item(matrix), values, none, none))
                out[i] = values
        infos.check()

    return work


@plans(SyevBatched)
def syev_batched(op: SyevBatched) -> Plan:
    """Called with ``(a, w, v)``."""
    dtype, tag, view_a, lower = op.a.dtype, tag_of(op), viewer(op.a.layout), op.lower
    view_w, view_v = outputs(op, "w", "v")

    def work(a: int, w: int, v: int) -> None:
        stack, out_w, out_v = view_a(a), view_w(w), view_v(v)
        check_finite(tag, stack)
        infos = Infos(tag, len(stack), unconverged)
        for i, matrix in enumerate(stack):
            vectors, values = _item(matrix), np.empty(len(matrix), dtype.real.np)
            infos.add(i, heevd(dtype, True, lower, vectors, values))
            out_w[i], out_v[i] = values, vectors
        infos.check()

    return work
