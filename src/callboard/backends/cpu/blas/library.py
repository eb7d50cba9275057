"""``CpuBlas``: which plan serves which message."""

from collections.abc import Callable
from typing import Any, ClassVar

from callboard.backends.cpu.blas import banded, batched, level1, level2, level3, symmetric, triangular
from callboard.backends.cpu.blas.routines import INT_MAX, routine
from callboard.backends.cpu.stream import CpuStream
from callboard.core.backend import AccelDevice, AccelStream, Status
from callboard.core.library import Entry, Library
from callboard.core.op import Op, info_of
from callboard.kernel import blas

__all__ = ["CpuBlas"]

Plan = Callable[..., None]

PLANS: dict[type[Op[Any, Any]], Callable[[Any], Plan]] = {
    blas.Asum: level1.reduce,
    blas.Axpy: level1.axpy,
    blas.Copy: level1.copy,
    blas.Dot: level1.dot,
    blas.Dotc: level1.dot,
    blas.Dotu: level1.dot,
    blas.Gbmv: banded.gbmv,
    blas.Geam: level3.geam,
    blas.Gemm: level3.gemm,
    blas.GemmBatched: batched.gemm_batched,
    blas.GemmGrouped: batched.gemm_grouped,
    blas.GemmStridedBatched: batched.gemm_strided_batched,
    blas.Gemv: level2.gemv,
    blas.Ger: level2.rank_1,
    blas.Gerc: level2.rank_1,
    blas.Geru: level2.rank_1,
    blas.Hbmv: symmetric.product,
    blas.Hemm: level3.symmetric,
    blas.Hemv: symmetric.product,
    blas.Her: symmetric.rank_1,
    blas.Her2: symmetric.rank_2,
    blas.Her2k: level3.rank_2k,
    blas.Herk: level3.rank_k,
    blas.Hpmv: symmetric.product,
    blas.Hpr: symmetric.rank_1,
    blas.Hpr2: symmetric.rank_2,
    blas.Iamax: level1.reduce,
    blas.Iamin: level1.reduce,
    blas.Nrm2: level1.reduce,
    blas.Rot: level1.rot,
    blas.Sbmv: symmetric.product,
    blas.Scal: level1.scal,
    blas.Spmv: symmetric.product,
    blas.Spr: level2.symmetric_rank_1,
    blas.Spr2: symmetric.rank_2,
    blas.Swap: level1.swap,
    blas.Symm: level3.symmetric,
    blas.Symv: symmetric.product,
    blas.Syr: level2.symmetric_rank_1,
    blas.Syr2: symmetric.rank_2,
    blas.Syr2k: level3.rank_2k,
    blas.Syrk: level3.rank_k,
    blas.Tbmv: triangular.vector,
    blas.Tbsv: triangular.vector,
    blas.Tpmv: triangular.vector,
    blas.Tpsv: triangular.vector,
    blas.Trmm: level3.triangular,
    blas.Trmv: triangular.vector,
    blas.Trsm: level3.triangular,
    blas.Trsv: triangular.vector,
}
"""Maps a message, with placeholders for operands, to its work: a function of the launch arguments."""


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
    table: ClassVar = {op: Entry(lambda _, op: PLANS[type(op)](op), inline=True, refuses=too_large) for op in PLANS}

    def __init__(self, device: AccelDevice, stream: AccelStream) -> None:
        super().__init__(device, stream)
        routine("dgemm")  # imports SciPy now and not inside the first op

    def launch(self, stream: CpuStream, plan: Plan, *dynamic: Any) -> Status:
        """Run the plan after the work so far."""
        return stream.run("scipy", plan, *dynamic)
