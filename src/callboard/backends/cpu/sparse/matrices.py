"""Sparse matrices over memory that is known by its addresses, as SciPy's."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.views import viewer
from callboard.core.dtype import DType
from callboard.core.operand import operands_of
from callboard.kernel.sparse import CooRef, CsrRef, SparseRef

__all__ = ["Arrays", "arrays_of", "matrix_of", "work_dtype"]

Arrays = Callable[[Sequence[int]], "list[np.ndarray[Any, Any]]"]


def arrays_of(matrix: SparseRef) -> Arrays:
    """A function from the addresses of a matrix's parts to its arrays."""
    views = [viewer(part.layout) for part in operands_of(matrix).values()]
    return lambda addresses: [view(address) for view, address in zip(views, addresses, strict=True)]


def work_dtype(dtype: DType) -> "np.dtype[Any]":
    """What is computed in: f32 for halves, which SciPy has none of."""
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype.np


def matrix_of(matrix: SparseRef) -> Callable[[Sequence[int]], Any]:
    """A function from addresses to a SciPy matrix over the arrays, with values in the dtype to work in.

    Its arrays are set and not handed to a constructor, which would look at every index, and copy those of 64 bits.
    """
    import scipy.sparse as sp

    arrays = arrays_of(matrix)
    work, shape = work_dtype(matrix.values.dtype), matrix.shape
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
