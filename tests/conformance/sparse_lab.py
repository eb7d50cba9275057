"""Sparse matrices for the conformance suite: drawn, put on a device, and compared as dense ones."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from callboard.core.dtype import DTYPES
from callboard.core.operand import operands_of
from callboard.kernel.sparse import CooRef, CscRef, CsrRef

VALUES = ("f16", "bf16", "f32", "f64", "c64", "c128")
FORMATS: dict[str, Any] = {"csr": CsrRef, "csc": CscRef, "coo": CooRef}


def drawn(seed: int, shape: tuple[int, int], dtype: str, density: float = 0.3) -> np.ndarray[Any, Any]:
    """A dense matrix with that share of entries, rounded to the dtype."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype in ("c64", "c128") else 0)
    return np.where(rng.random(shape) < density, values, 0).astype(DTYPES[dtype].np)


def vector(seed: int, shape: Any, dtype: str) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed + 1000)
    values = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype in ("c64", "c128") else 0)
    return values.astype(DTYPES[dtype].np)


def parts(dense: np.ndarray[Any, Any], form: str, index: str) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of the format, made by NumPy alone."""
    kind = DTYPES[index].np
    if form == "csc":
        return parts(dense.T, "csr", index)
    rows, cols = np.nonzero(dense)
    values = dense[rows, cols]
    if form == "coo":
        return {"values": values, "rows": rows.astype(kind), "cols": cols.astype(kind)}
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=dense.shape[0]))]).astype(kind)
    return {"values": values, "indices": cols.astype(kind), "indptr": indptr}


def put(session: Any, dense: np.ndarray[Any, Any], form: str = "csr", index: str = "i32") -> Any:
    """The matrix on the device."""
    shape = tuple(map(int, dense.shape))
    return FORMATS[form](**{n: session.put(a) for n, a in parts(dense, form, index).items()}, shape=shape)


def dense_of(session: Any, matrix: Any) -> np.ndarray[Any, Any]:
    """What a sparse matrix on the device holds, in f64 or c128, duplicates added up."""
    arrays = [session.get(part) for part in operands_of(matrix).values()]
    values = arrays[0].astype(np.complex128 if arrays[0].dtype.kind == "c" else np.float64)
    if isinstance(matrix, CooRef):
        return sp.coo_matrix((values, (arrays[1], arrays[2])), shape=matrix.shape).toarray()
    make = sp.csr_matrix if isinstance(matrix, CsrRef) else sp.csc_matrix
    return make((values, arrays[1], arrays[2]), shape=matrix.shape).toarray()


def wide(array: Any) -> Any:
    """In f64 or c128."""
    array = np.asarray(array)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
