"""Plans of eigenvalues of symmetric and Hermitian matrices."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.solver.cholesky import triangle
from callboard.backends.cpu.solver.lapack import Array, Work, check_finite, lapack, name_of, outputs, staged, tag_of
from callboard.backends.cpu.stream import CpuStream
from callboard.backends.cpu.views import viewer
from callboard.core.dtype import DType, as_dtype
from callboard.core.layout import OpenLayout, layout_of
from callboard.core.library import Extents, plans
from callboard.kernel.solver import (
    Syevd,
    SyevdValues,
    SyevdxIndex,
    SyevdxRange,
    Sygvd,
    SygvdValues,
)
from callboard.kernel.solver.failures import generalised, too_many, unconverged, unconverged_off_diagonals

__all__ = [
    "EigenRange",
    "heevd",
    "syevd",
    "syevd_values",
    "syevdx_index",
    "sygvd",
    "sygvd_values",
]

Plan = Callable[..., None]


def heevd(dtype: DType, vectors: bool, lower: bool, a: Array, w: Array) -> int:
    """Eigenvalues into ``w``, vectors in place of ``a``. ``info``."""
    n = len(a)
    if not n:
        return 0
    real = (Work(dtype.real.np),) if dtype.is_complex else ()
    name, job = name_of(dtype, "syevd", "heevd"), "V" if vectors else "N"
    return lapack(name, job, triangle(lower), n, a, n, w, Work(dtype.np), *real, Work(np.int32))


@plans(Syevd)
def syevd(op: Syevd) -> Plan:
    """Called with ``(a, w, v)``."""
    dtype, tag, stage, lower = op.a.dtype, tag_of(op), staged(op.a), op.lower
    view_w, view_v = outputs(op, "w", "v")

    def work(a: int, w: int, v: int) -> None:
        matrix = stage(a)
        check_finite(tag, matrix)
        values = np.empty(len(matrix), dtype.real.np)
        info = heevd(dtype, True, lower, matrix, values)
        if info:
            raise unconverged(tag, info)
        view_w(w)[...], view_v(v)[...] = values, matrix

    return work


@plans(SyevdValues)
def syevd_values(op: SyevdValues) -> Plan:
    """Called with ``(a, w)``."""
    dtype, tag, stage, lower = op.a.dtype, tag_of(op), staged(op.a), op.lower
    (view_w,) = outputs(op, "w")

    def work(a: int, w: int) -> None:
        matrix = stage(a)
        check_finite(tag, matrix)
        values = np.empty(len(matrix), dtype.real.np)
        info = heevd(dtype, False, lower, matrix, values)
        if info:
            raise unconverged_off_diagonals(tag, info)
        view_w(w)[...] = values

    return work


def _heevr(dtype: DType, lower: bool, a: Array, which: str, low: Any, high: Any, first: int, last: int) -> Any:
    """Eigenvalues and vectors of a part of the spectrum, and ``info``; positions count from 1."""
    n = len(a)
    real = dtype.real.np
    found, columns = np.zeros(1, np.int32), n if which == "V" else last - first + 1
    values, vectors = np.empty(n, real), np.empty((n, columns), dtype.np, order="F")
    bounds = np.array([low, high, 0], real)  # and the tolerance
    support = np.empty(2 * max(1, n), np.int32)
    works = (Work(dtype.np), *((Work(real),) if dtype.is_complex else ()), Work(np.int32))
    name = name_of(dtype, "syevr", "heevr")
    info = lapack(
        name,
        *("V", which, triangle(lower), n, a, n, bounds[:1], bounds[1:2], first, last, bounds[2:], found),
        *(values, vectors, n, support, *works),
    )
    count = int(found[0])
    return values[:count], vectors[:, :count], info


@plans(SyevdxIndex)
def syevdx_index(op: SyevdxIndex) -> Plan:
    """Called with ``(a, w, v)``."""
    dtype, tag, stage, lower = op.a.dtype, tag_of(op), staged(op.a), op.lower
    view_w, view_v = outputs(op, "w", "v")
    first, count = op.start + 1, op.infer()["w"].size

    def work(a: int, w: int, v: int) -> None:
        matrix = stage(a)
        check_finite(tag, matrix)
        if count:
            values, vectors, info = _heevr(dtype, lower, matrix, "I", 0, 0, first, first + count - 1)
            if info:
                raise unconverged(tag, info)
            view_w(w)[...], view_v(v)[...] = values, vectors

    return work


@plans(SyevdxRange, sizes=True)
class EigenRange:
    """The plan of a range by value: into given arrays, or sized first and then copied."""

    def __init__(self, op: SyevdxRange) -> None:
        self._dtype, self._tag, self._stage, self._lower = op.a.dtype, tag_of(op), staged(op.a), op.lower
        self._low, self._high = op.low, op.high
        self._layouts = {name: layout for name, layout in op.infer().items() if not isinstance(layout, OpenLayout)}
        self._layouts |= {name: x.layout for name in ("w", "v", "found") if (x := getattr(op, name)) is not None}
        self._solved: tuple[Array, Array] | None = None

    def query_size(self, stream: CpuStream, a: int, w: int | None, v: int | None, found: int | None) -> Extents:
        """The extents of ``w`` and ``v``."""
        with np.errstate(all="ignore"):
            self._solved = values, vectors = self._solve(a)
        return [values.shape, vectors.shape]

    def __call__(self, a: int, w: int, v: int, found: int) -> None:
        (values, vectors), self._solved = self._solved or self._solve(a), None
        real, kind = as_dtype(values.dtype), self._dtype
        out_w = viewer(self._layouts.get("w") or layout_of(real, values.shape))(w)
        out_v = viewer(self._layouts.get("v") or layout_of(kind, vectors.shape))(v)
        count = len(values)
        if count > len(out_w):
            raise too_many(self._tag, count, len(out_w))
        out_w[count:], out_v[:, count:] = np.nan, np.nan
        out_w[:count], out_v[:, :count] = values, vectors
        viewer(self._layouts["found"])(found)[...] = count

    def _solve(self, a: int) -> tuple[Array, Array]:
        matrix = self._stage(a)
        check_finite(self._tag, matrix)
        if not matrix.size or not self._low < self._high:
            return np.empty(0, self._dtype.real.np), np.empty((len(matrix), 0), self._dtype.np)
        values, vectors, info = _heevr(self._dtype, self._lower, matrix, "V", self._low, self._high, 1, 1)
        if info:
            raise unconverged(self._tag, info)
        return values, vectors


def _hegvd(op: Sygvd | SygvdValues, vectors: bool) -> Callable[[int, int], tuple[Array, Array]]:
    """From the addresses of ``a`` and ``b`` to the eigenvalues and, if wanted, the vectors."""
    dtype, tag, stage_a, stage_b = op.a.dtype, tag_of(op), staged(op.a), staged(op.b)
    n, itype, letter, job = op.a.shape[0], op.itype, triangle(op.lower), "V" if vectors else "N"
    name = name_of(dtype, "sygvd", "hegvd")
    explain = generalised(n, unconverged if vectors else unconverged_off_diagonals)
    works = (Work(dtype.np), *((Work(dtype.real.np),) if dtype.is_complex else ()), Work(np.int32))

    def solve(a: int, b: int) -> tuple[Array, Array]:
        left, right = stage_a(a), stage_b(b)
        check_finite(tag, left, right)
        values = np.empty(n, dtype.real.np)
        info = lapack(name, itype, job, letter, n, left, n, right, n, values, *works) if n else 0
        if info:
            raise explain(tag, info)
        return values, left

    return solve


@plans(Sygvd)
def sygvd(op: Sygvd) -> Plan:
    """Called with ``(a, b, w, v)``."""
    solve = _hegvd(op, True)
    view_w, view_v = outputs(op, "w", "v")

    def work(a: int, b: int, w: int, v: int) -> None:
        view_w(w)[...], view_v(v)[...] = solve(a, b)

    return work


@plans(SygvdValues)
def sygvd_values(op: SygvdValues) -> Plan:
    """Called with ``(a, b, w)``."""
    solve = _hegvd(op, False)
    (view_w,) = outputs(op, "w")

    def work(a: int, b: int, w: int) -> None:
        view_w(w)[...], _ = solve(a, b)

    return work
