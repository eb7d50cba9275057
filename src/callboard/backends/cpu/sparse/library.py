"""``CpuSparse``: which work serves which sparse message."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import numpy as np

from callboard.backends.cpu.sparse import blocks, conversions, products, triangular
from callboard.backends.cpu.sparse.checking import check
from callboard.backends.cpu.sparse.matrices import arrays_of
from callboard.backends.cpu.sparse.ordering import sort
from callboard.backends.cpu.sparse.rows import Rows
from callboard.backends.cpu.sparse.sampled import sampled
from callboard.backends.cpu.stream import CpuStream
from callboard.backends.cpu.views import viewer
from callboard.core.backend import AccelDevice, AccelStream, Status
from callboard.core.dtype import DTYPES, as_dtype
from callboard.core.layout import layout_of
from callboard.core.library import Extents, Library, entries
from callboard.core.op import Op, info_of
from callboard.core.operand import operands_of
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import no_room

__all__ = ["CpuSparse"]

Array = np.ndarray[Any, Any]
Plan = Callable[..., None]
Makes = sparse.SpGemm | sparse.FromDense | sparse.Convert | sparse.Transpose | sparse.Sort
"""Ops whose result is a sparse matrix."""


class Found:
    """A plan of an op that makes a sparse matrix: its entries are found, then written.

    Args:
        op: The message.
        entries: Computes the parts of the result from the launch's arguments, without ``out`` and ``count``.
    """

    def __init__(self, op: Makes, entries: Callable[..., list[Array]]):
        self.op = op
        self.entries = entries
        self._names = [field.name for field in info_of(type(op)).dynamic]
        self._parts: list[Array] | None = None  # the result of a size query, for the launch that follows
        self._arrays = None if op.out is None else arrays_of(op.out)

    def query_size(self, stream: CpuStream, *dynamic: Any) -> Extents:
        """Find them; the extents of those parts whose size is theirs."""
        with np.errstate(all="ignore"):  # this thread is none of a stream
            parts = self._parts = self._entries(dynamic)
        names = operands_of(cast(Any, self.op.infer()["out"]))
        return [part.shape for part, name in zip(parts, names, strict=True) if name != "indptr"]

    def __call__(self, *dynamic: Any) -> None:
        """Write them to the arrays of ``out``."""
        given = dict(zip(self._names, dynamic, strict=True))
        out, count = given["out"], given.get("count")
        parts, self._parts = self._parts, None
        if parts is None:
            parts = self._entries(dynamic)
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

    def _entries(self, dynamic: Sequence[Any]) -> list[Array]:
        given = zip(self._names, dynamic, strict=True)
        return self.entries(*(value for name, value in given if name not in ("out", "count")))


PLANS: dict[type[Op[Any, Any]], Callable[["CpuSparse", Any], Plan]] = {
    sparse.SpMv: lambda library, op: products.dense_product(op, library.rows),
    sparse.SpMm: lambda library, op: products.dense_product(op, library.rows),
    sparse.SpSv: lambda _, op: triangular.solve(op),
    sparse.SpSm: lambda _, op: triangular.solve(op),
    sparse.Sddmm: lambda _, op: sampled(op),
    sparse.ToDense: lambda _, op: conversions.to_dense(op),
    sparse.Transpose: lambda _, op: Found(op, blocks.transpose(op)),
    sparse.Check: lambda _, op: check(op),
}
SIZED: dict[type[Op[Any, Any]], Callable[["CpuSparse", Any], Found]] = {
    sparse.SpGemm: lambda _, op: Found(op, products.sparse_product(op)),
    sparse.FromDense: lambda _, op: Found(op, conversions.from_dense(op)),
    sparse.Convert: lambda _, op: Found(op, conversions.convert(op)),
    sparse.Sort: lambda _, op: Found(op, sort(op)),
}
"""Ops whose result has as many entries as are found."""


class CpuSparse(Library):
    """Serves :mod:`callboard.kernel.sparse` with :mod:`scipy.sparse`; halves are computed in f32."""

    name = "sparse"
    rows: Rows
    table: ClassVar = {**entries(PLANS, inline=True), **entries(SIZED, inline=True, sizes=True)}

    def __init__(self, device: AccelDevice, stream: AccelStream) -> None:
        super().__init__(device, stream)
        self.rows = Rows()

    def close(self) -> None:
        self.rows.close()

    def launch(self, stream: CpuStream, plan: Plan, *dynamic: Any) -> Status:
        """Run the plan after the work so far."""
        return stream.run("scipy", plan, *dynamic)
