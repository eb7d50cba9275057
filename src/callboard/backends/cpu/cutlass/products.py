"""Products in the precision of their sums: f64 beside f64, i32 beside i8, else f32."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.blas.products import EXACT_TERMS
from callboard.backends.cpu.blas_lt.products import factor
from callboard.backends.cpu.cutlass.epilogues import Array, finisher
from callboard.backends.cpu.views import viewer
from callboard.core.library import plans
from callboard.kernel.cutlass import Gemm, GroupedGemm, Refit
from callboard.kernel.cutlass.fused import Fused

__all__ = ["gemm", "grouped", "multiply", "refit"]

Plan = Callable[..., None]


def multiply(op: Fused[Any], k: int) -> Callable[[Array, Array], Array]:
    """A function that multiplies matrices of the op's dtype with an inner extent of ``k``."""
    if op.a.dtype.name != "i8":
        wide = op.accumulated.np
        return lambda a, b: np.matmul(a.astype(wide, copy=False), b.astype(wide, copy=False))
    exact: Any = np.float64 if k <= EXACT_TERMS else np.int64  # f64 has a fast product and holds every partial sum
    return lambda a, b: np.matmul(a.astype(exact), b.astype(exact)).astype(np.int64).astype(np.int32)


@plans(Gemm)
def gemm(op: Gemm) -> Plan:
    """Called with the operands and numbers of the message, the scales last."""
    finish, times = finisher(op, op.problem()), multiply(op, op.a.shape[-1])
    view_a, view_b = viewer(op.a.layout), viewer(op.b.layout)
    read_a = factor(op.a.layout, False, op.scale_a, columns=False)
    read_b = factor(op.b.layout, False, op.scale_b, columns=True)

    def work(a: int, b: int, *rest: Any) -> None:
        finish(times(view_a(a), view_b(b)), None, *rest[:-2])

    def scaled(a: int, b: int, *rest: Any) -> None:
        finish(times(read_a(a, rest[-2]), read_b(b, rest[-1])), None, *rest[:-2])

    return work if op.scale_a is None and op.scale_b is None else scaled


@plans(GroupedGemm)
def grouped(op: GroupedGemm) -> Plan:
    """Called with the operands and numbers of the message, the offsets last."""
    problem = op.problem()
    finish, times = finisher(op, problem), multiply(op, op.a.shape[-1])
    view_a, view_b, view_offsets = (viewer(x.layout) for x in (op.a, op.b, op.offsets))
    shape, dtype = problem.result.shape, op.accumulated.np

    def work(a: int, b: int, *rest: Any) -> None:
        rows, matrices = view_a(a), view_b(b)
        starts = np.clip(view_offsets(rest[-1]), 0, len(rows))
        product = np.zeros(shape, dtype)
        groups = np.zeros(len(rows), np.intp)
        for group, (start, stop) in enumerate(itertools.pairwise(starts)):
            if start < stop:
                product[start:stop] = times(rows[start:stop], matrices[group])
                groups[start:stop] = group
        finish(product, groups, *rest[:-1])

    return work


@plans(Refit)
def refit(op: Refit) -> Plan:
    """Called with ``(new, into)``."""
    views = [viewer(one.layout) for one in op.new]

    def work(new: Any, into: Any) -> None:
        for view, source, target in zip(views, new or (), into or (), strict=True):
            view(target)[...] = view(source)

    return work
