"""Sparse matrices of the host: from and to :mod:`scipy.sparse`."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from callboard.core.dtype import DTYPES, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.settings import converted, stored
from callboard.kernel.sparse.checks import VALUES
from callboard.kernel.sparse.formats import INDEX_LIMIT, BsrRef, CooRef, CscRef, CsrRef, Index

__all__ = ["FORMS", "Duplicates", "host_parts", "scipy_matrix"]

Array = np.ndarray[Any, Any]
Duplicates = Literal["keep", "sum", "refuse"]
"""The treatment of entries that are stored more than once."""
FORMS: dict[str, type[Any]] = {"csr": CsrRef, "csc": CscRef, "coo": CooRef, "bsr": BsrRef}
"""The formats that SciPy has, by its names."""


def host_parts(
    matrix: Any, index: Index, duplicates: Duplicates = "sum"
) -> tuple[type[Any], dict[str, Array], tuple[int, int]]:
    """Return the arrays of a :mod:`scipy.sparse` matrix or array in the device's order, checked.

    Indices are sorted, in copies; the matrix is not changed.

    Args:
        matrix: Matrix in CSR, CSC, COO or BSR form.
        index: dtype of the indices, i32 or i64.
        duplicates: Treatment of entries (of blocks, in BSR form) that occur twice: ``"sum"`` them, ``"keep"`` all, or
            ``"refuse"``.

    Returns:
        The class, its arrays by name, and the shape.

    Raises:
        TypeError: Another form or dtype; no such ``index`` or ``duplicates``.
        ShapeError: Not two axes, indices out of range or too large for ``index``, or duplicates that are refused.
    """
    kind = getattr(matrix, "format", None)
    if kind not in FORMS:
        raise TypeError(f"from_scipy: {type(matrix).__name__}; pass a scipy.sparse matrix in CSR, CSC, COO or BSR form")
    try:
        kept, duplicates = converted("index", index, stored(Index)), converted("duplicates", duplicates, Duplicates)
    except TypeError as e:
        raise TypeError(f"from_scipy: {e}") from None
    if matrix.ndim != 2:
        raise ShapeError(f"from_scipy: the matrix has {matrix.ndim} axes; pass one with 2")
    if as_dtype(matrix.dtype) not in VALUES:
        names = ", ".join(dtype.name for dtype in VALUES)
        raise TypeError(
            f"from_scipy: the matrix holds {matrix.dtype}; pass one of {names} (for example matrix.astype('f8'))"
        )
    if max(*matrix.shape, matrix.nnz) > INDEX_LIMIT[kept]:
        raise ShapeError(f"from_scipy: shape {matrix.shape} with {matrix.nnz} entries is too large for {kept} indices")
    shape = (int(matrix.shape[0]), int(matrix.shape[1]))
    values, major, minor = _entries(matrix, kind)
    extents = shape[::-1] if kind == "csc" else shape
    if kind == "bsr":
        extents = (shape[0] // values.shape[1], shape[1] // values.shape[2])
    _in_range({"coo": "row"}.get(kind, "indptr"), major, extents[0])
    _in_range({"coo": "col"}.get(kind, "indices"), minor, extents[1])
    signed = major.astype(np.int64, copy=False), minor.astype(np.int64, copy=False)
    values, major, minor = _ordered(values, *signed, duplicates)
    dtype = DTYPES[kept].np
    if kind == "coo":
        return CooRef, {"values": values, "rows": major.astype(dtype), "cols": minor.astype(dtype)}, shape
    pointers = np.zeros(extents[0] + 1, dtype)
    np.cumsum(np.bincount(major, minlength=extents[0]), out=pointers[1:])
    return FORMS[kind], {"values": values, "indices": minor.astype(dtype), "indptr": pointers}, shape


def scipy_matrix(matrix: CsrRef | CscRef | CooRef | BsrRef, arrays: Sequence[Array]) -> Any:
    """The :mod:`scipy.sparse` array of these parts; halves, which SciPy has none of, become f32."""
    import scipy.sparse

    values, first, second = arrays
    if values.dtype.itemsize == 2:
        values = values.astype(np.float32)
    if isinstance(matrix, CooRef):
        return scipy.sparse.coo_array((values, (first, second)), shape=matrix.shape)
    make: Any = {CsrRef: scipy.sparse.csr_array, CscRef: scipy.sparse.csc_array, BsrRef: scipy.sparse.bsr_array}[
        type(matrix)
    ]
    return make((values, first, second), shape=matrix.shape)


def _entries(matrix: Any, kind: str) -> tuple[Array, Array, Array]:
    """Values (blocks), and the row and column of each (the column and row, of a CSC matrix)."""
    if kind == "coo":
        return matrix.data, matrix.row, matrix.col
    pointers = matrix.indptr
    if pointers[0] != 0 or pointers[-1] != matrix.indices.size or (pointers[1:] < pointers[:-1]).any():
        raise ShapeError("from_scipy: indptr must rise from 0 to the number of entries")
    pointers = pointers.astype(np.int64)
    return matrix.data, np.repeat(np.arange(pointers.size - 1), np.diff(pointers)), matrix.indices


def _ordered(values: Array, major: Array, minor: Array, duplicates: Duplicates) -> tuple[Array, Array, Array]:
    """Sorted by both; entries of one place in the order that they had."""
    down, right = np.diff(major), np.diff(minor)
    if not ((down > 0) | ((down == 0) & (right >= 0))).all():
        order = np.lexsort((minor, major))
        values, major, minor = values[order], major[order], minor[order]
        down, right = np.diff(major), np.diff(minor)
    begins = np.ones(major.size, bool)
    begins[1:] = (down != 0) | (right != 0)
    if duplicates == "keep" or begins.all():
        return values, major, minor
    if duplicates == "refuse":
        raise ShapeError(
            f"from_scipy: {major.size - begins.sum()} entries occur more than once; pass duplicates='sum' or 'keep'"
        )
    return np.add.reduceat(values, np.flatnonzero(begins), axis=0), major[begins], minor[begins]


def _in_range(name: str, indices: Array, extent: int) -> None:
    if indices.size and not (int(indices.min()) >= 0 and int(indices.max()) < extent):
        raise ShapeError(f"from_scipy: {name} holds {indices.min()} to {indices.max()}; the extent is {extent}")
