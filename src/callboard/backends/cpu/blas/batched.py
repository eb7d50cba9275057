"""Plans of the batched products: one product after the other."""

from collections.abc import Callable
from typing import Any

from callboard.backends.cpu.blas.level3 import layout_of_out
from callboard.backends.cpu.blas.products import Flags, product
from callboard.backends.cpu.blas.scalars import reader
from callboard.core.layout import Layout, layout_of
from callboard.core.library import plans
from callboard.kernel.blas import GemmBatched, GemmGrouped, GemmStridedBatched

__all__ = ["gemm_batched", "gemm_grouped", "gemm_strided_batched"]

Plan = Callable[..., None]


def _flags(op: GemmStridedBatched | GemmBatched | GemmGrouped) -> Flags:
    return Flags(op.transpose_a, op.transpose_b, op.conj_a, op.conj_b)


def _slice(layout: Layout) -> tuple[Layout, int]:
    """Return the layout of one matrix of a stack, and the bytes between matrices (0 if all products share one)."""
    one = layout_of(layout.dtype, layout.shape[1:], layout.strides[1:])
    return one, 0 if layout.shape[0] == 1 else layout.strides[0] * layout.dtype.itemsize


@plans(GemmStridedBatched)
def gemm_strided_batched(op: GemmStridedBatched) -> Plan:
    """Called with ``(a, b, out, c, alpha, beta)``."""
    (one_a, step_a), (one_b, step_b) = _slice(op.a.layout), _slice(op.b.layout)
    out_layout = layout_of_out(op)
    one_out, step_out = _slice(out_layout)
    one_c, step_c = (None, 0) if op.c is None else _slice(op.c.layout)
    batch = out_layout.shape[0] if out_layout.size else 0
    run = product(one_a, one_b, one_out, one_c, _flags(op))
    read_alpha, read_beta = reader(op.alpha), reader(op.beta)

    def work(a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        alpha, beta = read_alpha(alpha), read_beta(beta)
        for i in range(batch):
            at_c = None if c is None else c + i * step_c
            run(a + i * step_a, b + i * step_b, out + i * step_out, at_c, alpha, beta)

    return work


@plans(GemmBatched)
def gemm_batched(op: GemmBatched) -> Plan:
    """Called with ``(a, b, out, c, alpha, beta)`` with tuples of addresses for ``a`` and ``b``."""
    out_layout = layout_of_out(op)
    one_out, step_out = _slice(out_layout)
    one_c, step_c = (None, 0) if op.c is None else _slice(op.c.layout)
    run = product(op.a[0].layout, op.b[0].layout, one_out, one_c, _flags(op))
    read_alpha, read_beta = reader(op.alpha), reader(op.beta)
    empty = out_layout.size == 0

    def work(a: tuple[int, ...], b: tuple[int, ...], out: int, c: int | None, alpha: Any, beta: Any) -> None:
        if empty:
            return
        alpha, beta = read_alpha(alpha), read_beta(beta)
        for i, (at_a, at_b) in enumerate(zip(a, b, strict=True)):
            run(at_a, at_b, out + i * step_out, None if c is None else c + i * step_c, alpha, beta)

    return work


@plans(GemmGrouped)
def gemm_grouped(op: GemmGrouped) -> Plan:
    """Called with ``(a, b, c, alpha, beta)`` with tuples of addresses for ``a``, ``b`` and ``c``."""
    flags = _flags(op)
    runs = [
        product(a.layout, b.layout, c.layout, c.layout, flags) if c.size else None
        for a, b, c in zip(op.a, op.b, op.c, strict=True)
    ]
    read_alpha, read_beta = reader(op.alpha), reader(op.beta)

    def work(a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...], alpha: Any, beta: Any) -> None:
        alpha, beta = read_alpha(alpha), read_beta(beta)
        for run, at_a, at_b, at_c in zip(runs, a, b, c, strict=True):
            if run is not None:
                run(at_a, at_b, at_c, at_c, alpha, beta)

    return work
