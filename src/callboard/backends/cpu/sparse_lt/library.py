"""``CpuSparseLt``: which work serves which message."""

from typing import Any

import numpy as np

from callboard.backends.cpu.sparse_lt.compressed import pack, reader
from callboard.backends.cpu.sparse_lt.products import Plan, product
from callboard.backends.cpu.sparse_lt.pruning import is_structured, strips, tiles
from callboard.backends.cpu.stream import CpuStream
from callboard.backends.cpu.views import viewer
from callboard.core.backend import Status
from callboard.core.dtype import DTYPES
from callboard.core.layout import Layout, layout_of
from callboard.core.library import Library, launches, prepares
from callboard.core.operand import Operand
from callboard.kernel.sparse_lt import Check, Compress, Decompress, Linear, Matmul, Prune
from callboard.kernel.sparse_lt.checks import not_structured
from callboard.kernel.sparse_lt.structured import compressed_bytes, group_of

__all__ = ["CpuSparseLt"]


class CpuSparseLt(Library):
    """Serves :mod:`callboard.kernel.sparse_lt` with NumPy, which multiplies the zeros, too."""

    name = "sparse_lt"
    max_plans = 1024

    @prepares(Prune, inline=True)
    def plan_prune(self, op: Prune) -> Plan:
        view, write = viewer(op.x.layout), viewer(_given(op.out, op.infer()["out"]))
        group, choose = group_of(op.x.dtype), strips if op.algorithm == "strip" else tiles

        def work(x: int, out: int) -> None:
            array = view(x)
            write(out)[...] = np.where(choose(array, group), array, array.dtype.type(0))

        return work

    @launches(Prune)
    def prune(self, stream: CpuStream, plan: Plan, x: int, out: int) -> Status:
        return stream.run("numpy", plan, x, out)

    @prepares(Check, inline=True)
    def plan_check(self, op: Check) -> Plan:
        view, write, group = viewer(op.x.layout), viewer(layout_of(DTYPES["i32"], ())), group_of(op.x.dtype)

        def work(x: int, out: int) -> None:
            write(out)[...] = not is_structured(view(x), group)

        return work

    @launches(Check)
    def check(self, stream: CpuStream, plan: Plan, x: int, out: int) -> Status:
        return stream.run("numpy", plan, x, out)

    @prepares(Compress, inline=True)
    def plan_compress(self, op: Compress) -> Plan:
        layout, group = op.x.layout, group_of(op.x.dtype)
        view = viewer(layout)
        write = viewer(layout_of(DTYPES["u8"], (compressed_bytes(layout.dtype, layout.shape),)))

        def work(x: int, out: tuple[int]) -> None:
            array = view(x)
            if not is_structured(array, group):
                raise not_structured("sparse_lt.compress", layout)
            packed, data = pack(array, layout.dtype), write(out[0])
            data[: packed.size], data[packed.size :] = packed, 0

        return work

    @launches(Compress)
    def compress(self, stream: CpuStream, plan: Plan, x: int, out: tuple[int]) -> Status:
        return stream.run("numpy", plan, x, out)

    @prepares(Decompress, inline=True)
    def plan_decompress(self, op: Decompress) -> Plan:
        read, write = reader(op.a), viewer(_given(op.out, op.infer()["out"]))

        def work(a: tuple[int], out: int) -> None:
            write(out)[...] = read(a[0])

        return work

    @launches(Decompress)
    def decompress(self, stream: CpuStream, plan: Plan, a: tuple[int], out: int) -> Status:
        return stream.run("numpy", plan, a, out)

    @prepares(Matmul, Linear, inline=True)
    def plan_product(self, op: "Matmul | Linear") -> Plan:
        return product(op)

    @launches(Matmul)
    def matmul(
        self,
        stream: CpuStream,
        plan: Plan,
        out: int,
        c: int | None,
        bias: int | None,
        alpha: Any,
        beta: Any,
        a: tuple[int],
        b: int,
    ) -> Status:
        return stream.run("numpy", plan, a[0], b, out, c, bias, alpha, beta)

    @launches(Linear)
    def linear(
        self,
        stream: CpuStream,
        plan: Plan,
        out: int,
        c: int | None,
        bias: int | None,
        alpha: Any,
        beta: Any,
        x: int,
        w: tuple[int],
    ) -> Status:
        return stream.run("numpy", plan, w[0], x, out, c, bias, alpha, beta)


def _given(out: Operand | None, made: Layout) -> Layout:
    return made if out is None else out.layout
