"""Sparse matrices as values: their arrays on a device, and their shape.

Indices are counted from 0, in i32 or i64; entries that are not stored are 0. What the arrays must hold follows from the
format and cannot be seen in a call: :class:`callboard.kernel.sparse.Check` looks at it on the device, and
``dev.sparse.from_scipy`` on the host. Indices out of range are undefined behaviour elsewhere, as in every sparse
library: on CUDA they may read or write memory of others, or poison the context.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.operand import Compound, Role
from callboard.core.ref import GpuRef

__all__ = ["CooRef", "CscRef", "CsrRef", "SparseRef", "host_parts", "scipy_matrix"]

Part = Annotated[GpuRef[Any], Role.IN]

INDEX_LIMIT = {"i32": 2**31 - 1, "i64": 2**63 - 1}


class CsrRef(Compound, tag="csr"):
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


class CscRef(Compound, tag="csc"):
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


class CooRef(Compound, tag="coo"):
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


SparseRef = CsrRef | CscRef | CooRef


def host_parts(matrix: Any, index: str) -> tuple[type[Any], dict[str, "np.ndarray[Any, Any]"], tuple[int, int]]:
    """The arrays of a :mod:`scipy.sparse` matrix or array in the order that a device wants, checked.

    Entries that occur twice are added up and indices are sorted, in copies; the matrix is not changed.

    Returns:
        The class, its arrays by name, and the shape.

    Raises:
        TypeError: No CSR, CSC or COO matrix.
        ShapeError: Not two axes, or indices out of range or too large for ``index``.
    """
    kind = getattr(matrix, "format", None)
    if kind not in ("csr", "csc", "coo"):
        raise TypeError(f"from_scipy: {type(matrix).__name__}; pass a scipy.sparse matrix in CSR, CSC or COO form")
    if matrix.ndim != 2:
        raise ShapeError(f"from_scipy: the matrix has {matrix.ndim} axes; pass one with 2")
    limit = INDEX_LIMIT[index]
    if max(*matrix.shape, matrix.nnz) > limit:
        raise ShapeError(f"from_scipy: shape {matrix.shape} with {matrix.nnz} entries is too large for {index} indices")
    rows, cols = (int(n) for n in matrix.shape)
    dtype = DTYPES[index].np
    if kind == "coo":
        _in_range("row", matrix.row, rows)
        _in_range("col", matrix.col, cols)
        exact = matrix.tocsr()  # adds up duplicates
        exact.sort_indices()
        flat = exact.tocoo()
        return (
            CooRef,
            {"values": flat.data, "rows": flat.row.astype(dtype), "cols": flat.col.astype(dtype)},
            (rows, cols),
        )
    _in_range("indices", matrix.indices, cols if kind == "csr" else rows)
    pointers = matrix.indptr
    if pointers[0] != 0 or pointers[-1] != matrix.indices.size or (np.diff(pointers) < 0).any():
        raise ShapeError("from_scipy: indptr must rise from 0 to the number of entries")
    exact = matrix.copy()
    exact.sum_duplicates()
    arrays = {"values": exact.data, "indices": exact.indices.astype(dtype), "indptr": exact.indptr.astype(dtype)}
    return CsrRef if kind == "csr" else CscRef, arrays, (rows, cols)


def scipy_matrix(matrix: SparseRef, arrays: "Sequence[np.ndarray[Any, Any]]") -> Any:
    """The :mod:`scipy.sparse` array of these parts; halves, which SciPy has none of, become f32."""
    import scipy.sparse

    values, first, second = arrays
    if values.dtype.itemsize == 2:
        values = values.astype(np.float32)
    if isinstance(matrix, CooRef):
        return scipy.sparse.coo_array((values, (first, second)), shape=matrix.shape)
    make = scipy.sparse.csr_array if isinstance(matrix, CsrRef) else scipy.sparse.csc_array
    return make((values, first, second), shape=matrix.shape)


def _in_range(name: str, indices: "np.ndarray[Any, Any]", extent: int) -> None:
    if indices.size and not (int(indices.min()) >= 0 and int(indices.max()) < extent):
        raise ShapeError(f"from_scipy: {name} holds {indices.min()} to {indices.max()}; the extent is {extent}")
