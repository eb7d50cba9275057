"""Plans of ops that make a sparse matrix: its entries are found, then written."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from callboard.backends.cpu.sparse.matrices import arrays_of
from callboard.backends.cpu.stream import CpuStream
from callboard.backends.cpu.views import viewer
from callboard.core.dtype import DTYPES, as_dtype
from callboard.core.layout import layout_of
from callboard.core.library import Extents
from callboard.core.op import info_of
from callboard.core.operand import operands_of
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import no_room

__all__ = ["Found"]

Array = np.ndarray[Any, Any]
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
