"""Entries in order, each place once: what other ops expect of a matrix."""

from typing import Annotated

from callboard.core.layout import Upto
from callboard.core.op import CompoundOutputs, Op
from callboard.core.operand import Out, Role
from callboard.kernel.sparse.actor import SparseActor
from callboard.kernel.sparse.checks import checked, index_of
from callboard.kernel.sparse.formats import CooRef, CscRef, CsrRef
from callboard.kernel.sparse.host import Duplicates
from callboard.kernel.sparse.results import result_of

__all__ = ["Sort"]


class Sort(Op[SparseActor, CsrRef | CscRef | CooRef], tag="sparse.sort"):
    """The same matrix with its indices sorted: by row and column (by column and row, of a ``CscRef``).

    Args:
        a: Indices in any order within their row or column, rows of a ``CooRef`` too; values in f16, bf16, f32, f64, c64
            or c128.
        duplicates: Of entries that are stored more than once: ``"keep"`` all, in the order that they had; ``"sum"``
            them, in that order, halves in f32; or ``"refuse"``: the op fails with ``ShapeError`` that says how many
            there are.
        out: A matrix of the same format, shape and number of entries; a new one when None. With ``duplicates="sum"``
            the number is known when the result is awaited, or with ``count``: then ``out`` must have room, and what is
            left of it stays as it was. If there is no room, the op fails and says how much would do.
        count: 0-d i64, with ``duplicates="sum"``: the number of entries.
    """

    a: CsrRef | CscRef | CooRef
    duplicates: Duplicates = "keep"
    out: Annotated[CsrRef | CscRef | CooRef, Role.OUT] | None = None
    count: Out | None = None

    def infer(self) -> CompoundOutputs:
        shape = checked(self, "a", self.a)
        entries = Upto(self.a.nnz) if self.duplicates == "sum" else self.a.nnz
        kinds = (self.a.values.dtype.name, index_of(self.a).name)
        return result_of(self, type(self.a), self.out, self.count, entries, shape, kinds)
