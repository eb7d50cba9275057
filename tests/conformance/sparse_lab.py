"""Sparse matrices for the conformance suite: drawn, put on a device, and compared as dense ones."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from callboard.core.dtype import DTYPES
from callboard.core.operand import operands_of
from callboard.kernel.sparse import BlockedEllRef, BsrRef, CooRef, CscRef, CsrRef

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


def blocky(
    seed: int, grid: tuple[int, int], block: tuple[int, int], dtype: str, density: float = 0.4
) -> np.ndarray[Any, Any]:
    """A dense matrix of blocks, that share of which have entries; some entries in them are 0."""
    rng = np.random.default_rng(seed + 77)
    shape = (grid[0] * block[0], grid[1] * block[1])
    pattern = np.kron(rng.random(grid) < density, np.ones(block, bool)).reshape(shape)
    return np.where(pattern, drawn(seed, shape, dtype, 0.8), 0).astype(DTYPES[dtype].np)


def block_parts(
    dense: np.ndarray[Any, Any], form: str, block: tuple[int, int], index: str, spare: int = 0
) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a format of blocks, made by loops; a blocked-ELL matrix with so many more blocks in a row."""
    (down, across), kind = block, DTYPES[index].np
    height, width = dense.shape[0] // down, dense.shape[1] // across
    lines: list[list[tuple[int, np.ndarray[Any, Any]]]] = [[] for _ in range(height)]
    for i in range(height):
        for j in range(width):
            piece = dense[i * down : (i + 1) * down, j * across : (j + 1) * across]
            if (piece != 0).any():
                lines[i].append((j, piece))
    if form == "bsr":
        found = [piece for line in lines for _, piece in line]
        return {
            "values": np.array(found, dense.dtype).reshape(-1, down, across),
            "indices": np.array([j for line in lines for j, _ in line], kind),
            "indptr": np.concatenate([[0], np.cumsum([len(line) for line in lines])]).astype(kind),
        }
    most = max(map(len, lines), default=0) + spare
    values, indices = np.zeros((dense.shape[0], most * across), dense.dtype), np.full((height, most), -1, kind)
    for i, line in enumerate(lines):
        for at, (j, piece) in enumerate(line):
            indices[i, at] = j
            values[i * down : (i + 1) * down, at * across : (at + 1) * across] = piece
    return {"values": values, "indices": indices}


def put_blocks(
    session: Any, dense: np.ndarray[Any, Any], form: str, block: tuple[int, int], index: str = "i32", spare: int = 0
) -> Any:
    """The matrix on the device, as blocks."""
    arrays = {n: session.put(a) for n, a in block_parts(dense, form, block, index, spare).items()}
    shape: Any = tuple(map(int, dense.shape))
    return BsrRef(**arrays, shape=shape) if form == "bsr" else BlockedEllRef(**arrays, block=block[0], shape=shape)


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
