"""The methods of ``dev.sparse`` from and to :mod:`scipy.sparse`.

The arrays of a matrix are not checked at the call. Where they hold no matrix (an index out of range, pointers that
fall), an op on the CPU fails with ``ShapeError`` when it is awaited. On CUDA only ``dev.sparse.check`` reads them: any
other op has undefined results then, and may poison the context, which is replaced. Check arrays of unknown origin
first.
"""

from collections.abc import Awaitable
from typing import Any

from callboard.core.mode import Mode
from callboard.core.operand import operands_of
from callboard.core.reply import Reply
from callboard.kernel.api import Api
from callboard.kernel.sparse.formats import BsrRef, CooRef, CscRef, CsrRef, Index
from callboard.kernel.sparse.host import FORMS, Duplicates, host_parts, scipy_matrix

__all__ = ["Methods"]


class Methods(Api[Mode]):
    """Sparse matrices from and to SciPy.

    Indices out of range are refused by every op on the CPU. On CUDA only ``check`` detects them; in other ops they are
    undefined behaviour and may poison the context.
    """

    __slots__ = ()

    def from_scipy(self, matrix: Any, index: Index = "i32", duplicates: Duplicates = "sum") -> Any:
        """A :mod:`scipy.sparse` matrix on the device, as a ``CsrRef``, ``CscRef``, ``CooRef`` or ``BsrRef``.

        Args:
            matrix: Matrix in CSR, CSC, COO or BSR form; it is checked, and its indices are sorted.
            index: dtype of the indices, i32 or i64.
            duplicates: Treatment of entries (blocks, in BSR form) that occur more than once: ``"sum"`` them, ``"keep"``
                all, or ``"refuse"``. Kept duplicates are adjacent and add up in products, in :meth:`to_dense` and in
                :meth:`convert` to blocks; solves accept no matrix with duplicates.

        Raises:
            TypeError: No such matrix.
            ShapeError: Indices out of range, or too large for ``index``; duplicates that are refused.
        """
        form, arrays, shape = host_parts(matrix, index, duplicates)
        return form(**{name: self._put(array) for name, array in arrays.items()}, shape=shape)

    def to_scipy(self, matrix: CsrRef | CscRef | CooRef | BsrRef) -> Any:
        """The matrix as a :mod:`scipy.sparse` array in the same format; halves become f32.

        On a :mod:`callboard.sync` device this is the array itself, otherwise an awaitable.

        Raises:
            TypeError: A ``BlockedEllRef``, which SciPy has no form for.
        """
        if type(matrix) not in FORMS.values():
            raise TypeError(
                f"to_scipy: SciPy has no form for a {type(matrix).__name__}; dev.sparse.convert it to 'bsr'"
            )
        gets = [ref.get() for ref in operands_of(matrix).values()]
        if isinstance(gets[0], Reply):
            return _fetched(matrix, gets)
        return scipy_matrix(matrix, gets)


async def _fetched(matrix: CsrRef | CscRef | CooRef | BsrRef, replies: list[Awaitable[Any]]) -> Any:
    return scipy_matrix(matrix, [await reply for reply in replies])
