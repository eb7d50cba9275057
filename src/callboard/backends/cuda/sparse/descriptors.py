"""cuSPARSE's descriptors of matrices, and their storage order."""

from collections.abc import Sequence

from callboard.backends.cuda.sparse.cusparse import CODES, INDEX_CODES, Cusparse
from callboard.core.layout import Layout
from callboard.core.operand import operands_of
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import index_of, leading

__all__ = ["COLS", "ROWS", "Matrix", "by_rows", "dense", "own"]

ROWS, COLS = 2, 1
"""``cusparseOrder_t``."""


class Matrix:
    """A descriptor of a sparse matrix, made over memory that does not matter.

    Descriptors of block matrices cannot be given other arrays: when the arrays change, a new descriptor, a few words of
    host memory, replaces the old one. cuSPARSE reads a descriptor when it is called, not when its kernels run.

    Args:
        maker: Handle with which it is made.
        a: The matrix.
        dummy: An address on the device.

    Attributes:
        descriptor: The ``cusparseSpMatDescr_t``.
    """

    def __init__(self, maker: Cusparse, a: "sparse.AnyRef", dummy: int) -> None:
        self._cusparse = maker
        self._a = a
        self._parts: tuple[int, ...] = (dummy,) * len(operands_of(a))
        self.descriptor = self._made()

    def point(self, parts: Sequence[int]) -> None:
        """Give it its arrays, if it has others: their addresses, in the order of the class."""
        if self._parts == (parts := tuple(parts)):
            return
        library, made = self._cusparse.library, self.descriptor
        if isinstance(self._a, sparse.CooRef):
            library.coo_set_pointers(made, parts[1], parts[2], parts[0])
        elif isinstance(self._a, sparse.CsrRef):
            library.csr_set_pointers(made, parts[2], parts[1], parts[0])
        elif isinstance(self._a, sparse.CscRef):
            library.csc_set_pointers(made, parts[2], parts[1], parts[0])
        self._parts = parts
        if isinstance(self._a, sparse.BsrRef | sparse.BlockedEllRef):
            self.close()
            self.descriptor = self._made()

    def close(self) -> None:
        """Destroy it; nothing uses it any more."""
        if self.descriptor:
            descriptor, self.descriptor = self.descriptor, 0
            self._cusparse.make("destroy_sp_mat", descriptor)

    def _made(self) -> int:
        a, parts = self._a, self._parts
        value, index = CODES[a.values.dtype.name], INDEX_CODES[index_of(a).name]
        (rows, cols), make = a.shape, self._cusparse.make
        if isinstance(a, sparse.CooRef):
            made = make("create_coo", rows, cols, a.nnz, parts[1], parts[2], parts[0], index, 0, value)
        elif isinstance(a, sparse.BlockedEllRef):
            width = a.values.shape[1]
            made = make("create_blocked_ell", rows, cols, a.block, width, parts[1], parts[0], index, 0, value)
        elif isinstance(a, sparse.BsrRef):
            blocks, down, across = a.values.shape
            extents = (rows // down, cols // across, blocks, down, across)
            made = make("create_bsr", *extents, parts[2], parts[1], parts[0], index, index, 0, value, ROWS)
        else:
            name = "create_csr" if isinstance(a, sparse.CsrRef) else "create_csc"
            made = make(name, rows, cols, a.nnz, parts[2], parts[1], parts[0], index, index, 0, value)
        return int(made)


def by_rows(layout: Layout) -> bool:
    """True if a matrix is row-major."""
    found = leading(layout)
    assert found is not None
    return found[0]


def dense(maker: Cusparse, layout: Layout, rows: int, dummy: int, row_major: bool) -> tuple[int, int]:
    """A descriptor in the wanted order, and the operation that makes it the matrix again."""
    found = leading(layout)
    assert found is not None
    is_rows, step = found
    cols, value = layout.shape[1], CODES[layout.dtype.name]
    step = max(step, cols if is_rows else rows)
    if is_rows == row_major:
        return maker.make("create_dn_mat", rows, cols, step, dummy, value, ROWS if is_rows else COLS), 0
    return maker.make("create_dn_mat", cols, rows, step, dummy, value, ROWS if row_major else COLS), 1


def own(maker: Cusparse, layout: Layout, dummy: int) -> int:
    """A descriptor in the order that the matrix has."""
    found = leading(layout)
    assert found is not None
    is_rows, step = found
    order = ROWS if is_rows else COLS
    return int(maker.make("create_dn_mat", *layout.shape, step, dummy, CODES[layout.dtype.name], order))
