"""Sparse matrices as values: their arrays on a device, and their shape.

:class:`CsrRef`, :class:`CscRef` and :class:`CooRef` store entries, :class:`BsrRef` and :class:`BlockedEllRef` dense
blocks of them. Indices are counted from 0, in i32 or i64; entries that are not stored are 0. The contents of the arrays
must follow the format, which a call cannot verify: :class:`callboard.kernel.sparse.Check` checks them on the device,
and ``dev.sparse.from_scipy`` on the host. On the CPU every op checks them, and fails with a ``ShapeError`` like that of
``Check``. On CUDA no other op checks, as in every sparse library for GPUs: indices out of range are undefined behaviour
there, may read or write memory of other arrays, or poison the context, which is then replaced.

An entry or a block that is stored more than once counts as the sum in products and, if its duplicates are adjacent, in
conversions to dense arrays or blocks. ``Sddmm`` gives each of them the whole product; solves accept no such matrix.
"""

from typing import Annotated, Any, Literal

from callboard.core.dtype import DTypeLike
from callboard.core.operand import Role, StructOperand
from callboard.core.ref import GpuRef
from callboard.kernel.sparse.operators import SparseOperators

__all__ = ["INDEX_LIMIT", "AnyRef", "BlockedEllRef", "BsrRef", "CooRef", "CscRef", "CsrRef", "Index", "SparseRef"]

Part = Annotated[GpuRef[Any], Role.IN]

Index = Annotated[DTypeLike, Literal["i32", "i64"]]
"""The dtype of indices."""
INDEX_LIMIT = {"i32": 2**31 - 1, "i64": 2**63 - 1}
"""The largest number that an index can be."""


class CsrRef(SparseOperators, StructOperand, tag="csr"):
    """Compressed sparse rows (``CsrMatrix``).

    Attributes:
        values: ``[nnz]``; row by row.
        indices: ``[nnz]``, i32 or i64: the column of each value; each at most once in a row.
        indptr: ``[rows + 1]``, same dtype: where each row begins in ``values``; from 0 to ``nnz``, never falling.
        shape: ``(rows, columns)``.
    """

    values: Part
    indices: Part
    indptr: Part
    shape: tuple[int, int]

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self.values.size

    @property
    def T(self) -> "CscRef":  # noqa: N802 - NumPy's name
        """The transpose: the same arrays, read as columns."""
        return CscRef(self.values, self.indices, self.indptr, (self.shape[1], self.shape[0]))


class CscRef(SparseOperators, StructOperand, tag="csc"):
    """Compressed sparse columns.

    Attributes:
        values: ``[nnz]``; column by column.
        indices: ``[nnz]``, i32 or i64: the row of each value; each at most once in a column.
        indptr: ``[columns + 1]``, same dtype: where each column begins in ``values``.
        shape: ``(rows, columns)``.
    """

    values: Part
    indices: Part
    indptr: Part
    shape: tuple[int, int]

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self.values.size

    @property
    def T(self) -> CsrRef:  # noqa: N802 - NumPy's name
        """The transpose: the same arrays, read as rows."""
        return CsrRef(self.values, self.indices, self.indptr, (self.shape[1], self.shape[0]))


class CooRef(SparseOperators, StructOperand, tag="coo"):
    """Coordinates of each entry, sorted by row.

    Attributes:
        values: ``[nnz]``.
        rows: ``[nnz]``, i32 or i64, never falling.
        cols: ``[nnz]``, same dtype.
        shape: ``(rows, columns)``.
    """

    values: Part
    rows: Part
    cols: Part
    shape: tuple[int, int]

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self.values.size


class BsrRef(SparseOperators, StructOperand, tag="bsr"):
    """Block compressed rows: dense blocks of one extent where the matrix has entries (``SparseMatrix::Bsr``).

    Attributes:
        values: ``[blocks, r, c]``, block row by block row, each block row-major, as ``scipy.sparse.bsr_array.data``.
        indices: ``[blocks]``, i32 or i64: the block column of each; each at most once in a block row.
        indptr: ``[rows / r + 1]``, same dtype: where each block row begins in ``indices``.
        shape: ``(rows, columns)``, which r and c divide.
    """

    values: Part
    indices: Part
    indptr: Part
    shape: tuple[int, int]

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        _, rows, cols = self.values.shape
        return rows, cols

    @property
    def nnz(self) -> int:
        """Number of stored entries, the zeros in blocks included."""
        return self.values.size


class BlockedEllRef(SparseOperators, StructOperand, tag="blocked_ell"):
    """Blocked ELLPACK: in each block row the same number of square blocks, some of them padding.

    Attributes:
        values: ``[rows, width]``: the blocks of a block row side by side; those of padding are not read.
        indices: ``[rows / block, width / block]``, i32 or i64: the block column of each, at most once in a block row;
            -1 for padding.
        block: Rows and columns of a block; divides rows, columns and width.
        shape: ``(rows, columns)``.
        padded: False: no index is -1. On CUDA, cuSPARSE's product on tensor cores is used then; it multiplies padding.
    """

    values: Part
    indices: Part
    block: int
    shape: tuple[int, int]
    padded: bool = True

    @property
    def nnz(self) -> int:
        """Number of stored entries, zeros in blocks and padding included."""
        return self.values.size


SparseRef = CsrRef | CscRef | CooRef
"""The formats that store entries."""
AnyRef = SparseRef | BsrRef | BlockedEllRef
