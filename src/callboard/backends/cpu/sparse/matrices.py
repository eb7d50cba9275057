"""Sparse matrices over memory that is known by its addresses, as arrays and as SciPy's."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.views import viewer
from callboard.core.dtype import DType, as_dtype
from callboard.core.operand import operands_of
from callboard.kernel.sparse import AnyRef, BlockedEllRef, BsrRef, CooRef, CsrRef, SparseRef

__all__ = ["Arrays", "arrays_of", "blocks_of", "coordinates", "matrix_of", "pointers", "scatter", "work_dtype"]

Array = np.ndarray[Any, Any]
Arrays = Callable[[Sequence[int]], "list[Array]"]


def arrays_of(matrix: AnyRef) -> Arrays:
    """A function from the addresses of a matrix's parts to its arrays."""
    views = [viewer(part.layout) for part in operands_of(matrix).values()]
    return lambda addresses: [view(address) for view, address in zip(views, addresses, strict=True)]


def coordinates(a: SparseRef, arrays: "list[Array]") -> "tuple[Array, Array, Array]":
    """Values, rows and columns of each entry."""
    values, first, second = arrays
    if isinstance(a, CooRef):
        return values, first, second
    major = np.repeat(np.arange(second.size - 1, dtype=first.dtype), np.diff(second))
    return (values, major, first) if isinstance(a, CsrRef) else (values, first, major)


def blocks_of(a: AnyRef, arrays: "list[Array]") -> "tuple[Array, Array, Array]":
    """The blocks, and the block row and block column of each; without padding."""
    if isinstance(a, BlockedEllRef):
        values, indices = arrays
        height, most = indices.shape
        stored = indices >= 0
        blocks = values.reshape(height, a.block, most, a.block).swapaxes(1, 2)[stored]
        return blocks, np.nonzero(stored)[0], indices[stored]
    values, indices, indptr = arrays
    return values, np.repeat(np.arange(indptr.size - 1), np.diff(indptr)), indices


def scatter(target: Array, places: "tuple[Array, ...]", values: Array) -> None:
    """Write entries over zeros; those of one place are added up in their order, halves in f32."""
    target[places] = values
    taken = np.zeros(target.shape, bool)
    taken[places] = True
    if np.count_nonzero(taken) < values.size:
        sums = np.zeros(target.shape, work_dtype(as_dtype(values.dtype)))
        np.add.at(sums, places, values.astype(sums.dtype, copy=False))
        target[taken] = sums[taken]


def pointers(major: Array, extent: int, index: "np.dtype[Any]") -> Array:
    """The offset of each row (or column) in sorted indices."""
    found = np.zeros(extent + 1, index)
    np.cumsum(np.bincount(major, minlength=extent), out=found[1:])
    return found


def work_dtype(dtype: DType) -> "np.dtype[Any]":
    """The compute dtype: f32 for halves, which SciPy does not support."""
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype.np


def matrix_of(matrix: AnyRef, arrays: Arrays) -> Callable[[Sequence[int]], Any]:
    """A function from addresses to a SciPy matrix over the arrays, with values in the dtype to work in.

    Its arrays, which have been checked, are set as attributes: a constructor would check every index again, and copy
    indices of 64 bits.
    """
    import scipy.sparse as sp

    work, shape = work_dtype(matrix.values.dtype), matrix.shape
    if isinstance(matrix, BsrRef | BlockedEllRef):
        block = matrix.block if isinstance(matrix, BsrRef) else (matrix.block, matrix.block)

        def make_blocks(addresses: Sequence[int]) -> Any:
            blocks, rows, cols = blocks_of(matrix, arrays(addresses))
            made = sp.bsr_array(shape, blocksize=block, dtype=work)
            made.data, made.indices = blocks.astype(work, copy=False), cols
            made.indptr = pointers(rows, shape[0] // block[0], cols.dtype)
            return made

        return make_blocks
    coordinates = isinstance(matrix, CooRef)
    form: Any = sp.coo_array if coordinates else sp.csr_array if isinstance(matrix, CsrRef) else sp.csc_array

    def make(addresses: Sequence[int]) -> Any:
        values, first, second = arrays(addresses)
        made = form(shape, dtype=work)
        made.data = values.astype(work, copy=False)
        if coordinates:
            made.coords = (first, second)
        else:
            made.indices, made.indptr = first, second
        return made

    return make
