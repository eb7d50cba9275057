"""``CpuBlas``: which plan serves which message."""

from collections.abc import Callable
from typing import Any

from callboard.backends.cpu.blas import batched, level1, level2, level3
from callboard.backends.cpu.blas.routines import INT_MAX, routine
from callboard.backends.cpu.stream import CpuStream
from callboard.core.backend import AccelDevice, AccelStream
from callboard.core.library import Library, launches, prepares
from callboard.core.op import Op, info_of
from callboard.kernel import blas

__all__ = ["CpuBlas"]

Plan = Callable[..., None]
Check = Callable[[], None]

PLANS: dict[type[Op[Any, Any]], Callable[[Any], Plan]] = {
    blas.Asum: level1.reduce,
    blas.Axpy: level1.axpy,
    blas.Copy: level1.copy,
    blas.Dot: level1.dot,
    blas.Dotc: level1.dot,
    blas.Dotu: level1.dot,
    blas.Geam: level3.geam,
    blas.Gemm: level3.gemm,
    blas.GemmBatched: batched.gemm_batched,
    blas.GemmGrouped: batched.gemm_grouped,
    blas.GemmStridedBatched: batched.gemm_strided_batched,
    blas.Gemv: level2.gemv,
    blas.Ger: level2.rank_1,
    blas.Gerc: level2.rank_1,
    blas.Geru: level2.rank_1,
    blas.Hemm: level3.symmetric,
    blas.Herk: level3.rank_k,
    blas.Iamax: level1.reduce,
    blas.Iamin: level1.reduce,
    blas.Nrm2: level1.reduce,
    blas.Rot: level1.rot,
    blas.Scal: level1.scal,
    blas.Swap: level1.swap,
    blas.Symm: level3.symmetric,
    blas.Syrk: level3.rank_k,
    blas.Trmm: level3.triangular,
    blas.Trsm: level3.triangular,
}
"""From the message, with placeholders for operands, to the work: a function of what its launch is given."""


def too_large(op: Op[Any, Any]) -> str | None:
    """The routines count in C ints."""
    vectors = PLANS[type(op)].__module__ == level1.__name__
    for field in info_of(type(op)).dynamic:
        value = getattr(op, field.name)
        for operand in value if isinstance(value, tuple) else (value,):
            layout = getattr(operand, "layout", None)
            if layout is None:
                continue
            largest = max((layout.size if vectors else 0, *layout.shape, *map(abs, layout.strides)), default=0)
            if largest > INT_MAX:
                return f"{field.name} is {layout!r}; SciPy's BLAS counts and steps at most {INT_MAX} elements"
    return None


class CpuBlas(Library):
    """Serves :mod:`callboard.kernel.blas` with the BLAS that SciPy brings."""

    name = "blas"

    def __init__(self, device: AccelDevice, stream: AccelStream) -> None:
        super().__init__(device, stream)
        routine("dgemm")  # imports SciPy now and not inside the first op

    @prepares(*PLANS, inline=True)
    def plan(self, op: Op[Any, Any]) -> Plan:
        return PLANS[type(op)](op)

    @launches(blas.Gemm, blas.GemmStridedBatched, blas.GemmBatched, blas.Symm, blas.Hemm, refuses=too_large)
    def product(
        self, stream: CpuStream, plan: Plan, a: Any, b: Any, out: int, c: int | None, alpha: Any, beta: Any
    ) -> Check:
        return stream.run("scipy", plan, a, b, out, c, alpha, beta)

    @launches(blas.GemmGrouped, refuses=too_large)
    def products(self, stream: CpuStream, plan: Plan, a: Any, b: Any, c: Any, alpha: Any, beta: Any) -> Check:
        return stream.run("scipy", plan, a, b, c, alpha, beta)

    @launches(blas.Geam, refuses=too_large)
    def geam(self, stream: CpuStream, plan: Plan, a: int, b: int, out: int, alpha: Any, beta: Any) -> Check:
        return stream.run("scipy", plan, a, b, out, alpha, beta)

    @launches(blas.Syrk, blas.Herk, refuses=too_large)
    def rank_k(self, stream: CpuStream, plan: Plan, a: int, c: int, alpha: Any, beta: Any) -> Check:
        return stream.run("scipy", plan, a, c, alpha, beta)

    @launches(blas.Trsm, blas.Trmm, refuses=too_large)
    def triangular(self, stream: CpuStream, plan: Plan, a: int, b: int, alpha: Any) -> Check:
        return stream.run("scipy", plan, a, b, alpha)

    @launches(blas.Gemv, refuses=too_large)
    def gemv(
        self, stream: CpuStream, plan: Plan, a: int, x: int, out: int, y: int | None, alpha: Any, beta: Any
    ) -> Check:
        return stream.run("scipy", plan, a, x, out, y, alpha, beta)

    @launches(blas.Ger, blas.Geru, blas.Gerc, refuses=too_large)
    def rank_1(self, stream: CpuStream, plan: Plan, x: int, y: int, a: int, alpha: Any) -> Check:
        return stream.run("scipy", plan, x, y, a, alpha)

    @launches(blas.Axpy, refuses=too_large)
    def axpy(self, stream: CpuStream, plan: Plan, x: int, y: int, alpha: Any) -> Check:
        return stream.run("scipy", plan, x, y, alpha)

    @launches(blas.Scal, refuses=too_large)
    def scal(self, stream: CpuStream, plan: Plan, x: int, alpha: Any) -> Check:
        return stream.run("scipy", plan, x, alpha)

    @launches(blas.Swap, refuses=too_large)
    def swap(self, stream: CpuStream, plan: Plan, x: int, y: int) -> Check:
        return stream.run("scipy", plan, x, y)

    @launches(blas.Rot, refuses=too_large)
    def rot(self, stream: CpuStream, plan: Plan, x: int, y: int, c: Any, s: Any) -> Check:
        return stream.run("scipy", plan, x, y, c, s)

    @launches(blas.Dot, blas.Dotu, blas.Dotc, refuses=too_large)
    def dot(self, stream: CpuStream, plan: Plan, x: int, y: int, out: int) -> Check:
        return stream.run("scipy", plan, x, y, out)

    @launches(blas.Copy, blas.Nrm2, blas.Asum, blas.Iamax, blas.Iamin, refuses=too_large)
    def from_one(self, stream: CpuStream, plan: Plan, x: int, out: int) -> Check:
        return stream.run("scipy", plan, x, out)
