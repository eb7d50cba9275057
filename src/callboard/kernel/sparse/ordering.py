"""Sorted entries without duplicates, as other ops expect."""

from typing import Annotated, ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import BoundedExtent
from callboard.core.op import Op, StructOutputs
from callboard.core.operand import Out, Role
from callboard.kernel.sparse.actor import SparseActor
from callboard.kernel.sparse.checks import VALUES, checked, index_of
from callboard.kernel.sparse.formats import CooRef, CscRef, CsrRef
from callboard.kernel.sparse.host import Duplicates
from callboard.kernel.sparse.results import result_of

__all__ = ["Sort"]


class Sort(Op[SparseActor, CsrRef | CscRef | CooRef], tag="sparse.sort"):
    """The same matrix, of the same class, with its indices sorted and its duplicates kept, summed or refused.

    Entries are sorted by row and column (by column and row, of a ``CscRef``).

    Args:
        a: Indices in any order within their row or column, rows of a ``CooRef`` too; values in f16, bf16, f32, f64, c64
            or c128.
        duplicates: Treatment of entries that are stored more than once: ``"keep"`` all, in their order; ``"sum"`` them,
            in that order, halves in f32; or ``"refuse"``: the op fails with a ``ShapeError`` that names their number.
        out: Matrix of the same format, shape and number of entries; a new one when None. With ``duplicates="sum"`` the
            number is known when the result is awaited, or given by ``count``: ``out`` must then have room, and the part
            after the last entry is unchanged. If there are more entries, the op fails and the error names the number
            needed.
        count: 0-d i64, with ``duplicates="sum"``: the number of entries.
    """

    dtypes: ClassVar[tuple[DType, ...]] = VALUES

    a: CsrRef | CscRef | CooRef
    duplicates: Duplicates = "keep"
    out: Annotated[CsrRef | CscRef | CooRef, Role.OUT] | None = None
    count: Out | None = None

    def infer(self) -> StructOutputs:
        shape = checked(self, "a", self.a)
        entries = BoundedExtent(self.a.nnz) if self.duplicates == "sum" else self.a.nnz
        kinds = (self.a.values.dtype.name, index_of(self.a).name)
        return result_of(self, type(self.a), self.out, self.count, entries, shape, kinds)
