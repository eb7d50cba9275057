"""``CpuSparse``: which work serves which sparse message."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from callboard.backends.cpu.sparse import blocks, conversions, products, triangular
from callboard.backends.cpu.sparse.checking import check
from callboard.backends.cpu.sparse.matrices import arrays_of
from callboard.backends.cpu.sparse.ordering import sort
from callboard.backends.cpu.sparse.rows import Rows
from callboard.backends.cpu.sparse.sampled import sampled
from callboard.backends.cpu.stream import CpuStream
from callboard.backends.cpu.views import viewer
from callboard.core.backend import AccelDevice, AccelStream
from callboard.core.dtype import DTYPES, as_dtype
from callboard.core.layout import layout_of
from callboard.core.library import Extents, Library, launches, measures, prepares
from callboard.core.operand import operands_of
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import no_room

__all__ = ["CpuSparse"]

Array = np.ndarray[Any, Any]
Plan = Callable[..., None]
Checked = Callable[[], None]
Makes = sparse.SpGemm | sparse.FromDense | sparse.Convert | sparse.Transpose | sparse.Sort
"""Ops whose result is a sparse matrix."""


class Found:
    """A plan of an op that makes a sparse matrix: its entries are found, then written.

    Args:
        op: The message.
        entries: Gives the parts of the result from what the launch is given.
    """

    def __init__(self, op: Makes, entries: Callable[..., list[Array]]):
        self.op = op
        self.entries = entries
        self.parts: list[Array] | None = None
        """What a measure has found for the launch that follows."""
        self._arrays = None if op.out is None else arrays_of(op.out)

    def measure(self, *operands: Any) -> Extents:
        """Find them; the extents of those parts whose size is theirs."""
        self.parts = self.entries(*operands)
        names = operands_of(cast(Any, self.op.infer()["out"]))
        return [part.shape for part, name in zip(self.parts, names, strict=True) if name != "indptr"]

    def write(self, parts: list[Array] | None, operands: Sequence[Any], out: Sequence[int], count: int | None) -> None:
        """Write them to the arrays at ``out``."""
        parts = self.entries(*operands) if parts is None else parts
        if self._arrays is None:
            for part, address in zip(parts, out, strict=True):
                viewer(layout_of(as_dtype(part.dtype), part.shape))(address)[...] = part
            return
        targets, padded = self._arrays(out), isinstance(self.op.out, sparse.BlockedEllRef)
        found, room = (arrays[1].shape[1] if padded else arrays[0].shape[0] for arrays in (parts, targets))
        if count is not None:
            viewer(layout_of(DTYPES["i64"], ()))(count)[...] = found
        if found > room:
            raise no_room(self.op, found, room)
        for target, part in zip(targets, parts, strict=True):
            if padded:
                target[...] = -1 if part is parts[1] else 0
                target[:, : part.shape[1]] = part
            else:
                target[: part.shape[0]] = part


class CpuSparse(Library):
    """Serves :mod:`callboard.kernel.sparse` with :mod:`scipy.sparse`; halves are computed in f32."""

    name = "sparse"

    def __init__(self, device: AccelDevice, stream: AccelStream) -> None:
        super().__init__(device, stream)
        self._rows = Rows()

    def close(self) -> None:
        self._rows.close()

    # -- products ------------------------------------------------------------------------------------------------------

    @prepares(sparse.SpMv, sparse.SpMm, inline=True)
    def plan_dense_product(self, op: "sparse.SpMv | sparse.SpMm") -> Plan:
        return products.dense_product(op, self._rows)

    @launches(sparse.SpMv)
    def sp_mv(
        self, stream: CpuStream, plan: Plan, a: list[int], x: int, out: int, y: int | None, alpha: Any, beta: Any
    ) -> Checked:
        return stream.run("scipy", plan, a, x, out, y, alpha, beta)

    @launches(sparse.SpMm)
    def sp_mm(
        self, stream: CpuStream, plan: Plan, a: list[int], b: int, out: int, c: int | None, alpha: Any, beta: Any
    ) -> Checked:
        return stream.run("scipy", plan, a, b, out, c, alpha, beta)

    @prepares(sparse.SpGemm, inline=True)
    def plan_sp_gemm(self, op: sparse.SpGemm) -> Found:
        return Found(op, products.sparse_product(op))

    @measures(sparse.SpGemm)
    def measure_sp_gemm(self, plan: Found, a: list[int], b: list[int], out: None, count: None, alpha: Any) -> Extents:
        return plan.measure(a, b, alpha)

    @launches(sparse.SpGemm)
    def sp_gemm(
        self, stream: CpuStream, plan: Found, a: list[int], b: list[int], out: list[int], count: int | None, alpha: Any
    ) -> Checked:
        parts, plan.parts = plan.parts, None
        return stream.run("scipy", plan.write, parts, (a, b, alpha), out, count)

    @prepares(sparse.SpSv, sparse.SpSm, inline=True)
    def plan_solve(self, op: "sparse.SpSv | sparse.SpSm") -> Plan:
        return triangular.solve(op)

    @launches(sparse.SpSv)
    def sp_sv(self, stream: CpuStream, plan: Plan, a: list[int], x: int, out: int, alpha: Any) -> Checked:
        return stream.run("scipy", plan, a, x, out, alpha)

    @launches(sparse.SpSm)
    def sp_sm(self, stream: CpuStream, plan: Plan, a: list[int], b: int, out: int, alpha: Any) -> Checked:
        return stream.run("scipy", plan, a, b, out, alpha)

    @prepares(sparse.Sddmm, inline=True)
    def plan_sddmm(self, op: sparse.Sddmm) -> Plan:
        return sampled(op)

    @launches(sparse.Sddmm)
    def sddmm(
        self, stream: CpuStream, plan: Plan, a: int, b: int, c: list[int], out: int, alpha: Any, beta: Any
    ) -> Checked:
        return stream.run("numpy", plan, a, b, c, out, alpha, beta)

    # -- conversions ---------------------------------------------------------------------------------------------------

    @prepares(sparse.ToDense, inline=True)
    def plan_to_dense(self, op: sparse.ToDense) -> Plan:
        return conversions.to_dense(op)

    @launches(sparse.ToDense)
    def to_dense(self, stream: CpuStream, plan: Plan, a: list[int], out: int) -> Checked:
        return stream.run("numpy", plan, a, out)

    @prepares(sparse.FromDense, inline=True)
    def plan_from_dense(self, op: sparse.FromDense) -> Found:
        return Found(op, conversions.from_dense(op))

    @measures(sparse.FromDense)
    def measure_from_dense(self, plan: Found, dense: int, out: None, count: None) -> Extents:
        return plan.measure(dense)

    @launches(sparse.FromDense)
    def from_dense(self, stream: CpuStream, plan: Found, dense: int, out: list[int], count: int | None) -> Checked:
        parts, plan.parts = plan.parts, None
        return stream.run("numpy", plan.write, parts, (dense,), out, count)

    @prepares(sparse.Convert, inline=True)
    def plan_convert(self, op: sparse.Convert) -> Found:
        return Found(op, conversions.convert(op))

    @measures(sparse.Convert)
    def measure_convert(self, plan: Found, a: list[int], out: None, count: None) -> Extents:
        return plan.measure(a)

    @launches(sparse.Convert)
    def convert(self, stream: CpuStream, plan: Found, a: list[int], out: list[int], count: int | None) -> Checked:
        parts, plan.parts = plan.parts, None
        return stream.run("numpy", plan.write, parts, (a,), out, count)

    @prepares(sparse.Transpose, inline=True)
    def plan_transpose(self, op: sparse.Transpose) -> Found:
        return Found(op, blocks.transpose(op))

    @launches(sparse.Transpose)
    def transpose(self, stream: CpuStream, plan: Found, a: list[int], out: list[int]) -> Checked:
        return stream.run("numpy", plan.write, None, (a,), out, None)

    @prepares(sparse.Sort, inline=True)
    def plan_sort(self, op: sparse.Sort) -> Found:
        return Found(op, sort(op))

    @measures(sparse.Sort)
    def measure_sort(self, plan: Found, a: list[int], out: None, count: None) -> Extents:
        return plan.measure(a)

    @launches(sparse.Sort)
    def sort(self, stream: CpuStream, plan: Found, a: list[int], out: list[int], count: int | None) -> Checked:
        parts, plan.parts = plan.parts, None
        return stream.run("numpy", plan.write, parts, (a,), out, count)

    @prepares(sparse.Check, inline=True)
    def plan_check(self, op: sparse.Check) -> Plan:
        return check(op)

    @launches(sparse.Check)
    def check(self, stream: CpuStream, plan: Plan, a: list[int]) -> Checked:
        return stream.run("numpy", plan, a)
