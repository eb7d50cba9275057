"""``GpuSparseStructureActor``: a sparse matrix that changes, with its products, on a device."""

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from callboard.core.errors import ContextLost, ShapeError
from callboard.core.ref.handle import GpuRef
from callboard.device.client.handle import Device
from callboard.kernel.sparse.formats import CsrRef
from callboard.realtime.base.asking import Asked
from callboard.realtime.base.checks import count
from callboard.realtime.base.live import fetched, lent
from callboard.realtime.sparse import messages
from callboard.realtime.sparse.entries import Change, Entries

__all__ = ["GpuSparseStructureActor", "SparseFormat", "SparseStats"]

SparseFormat = Literal["bsr", "coo", "csc", "csr", "dia", "dok", "lil"]
"""SciPy's formats."""
ATTEMPTS = 3
"""Contexts that a product may lose before it fails."""


class SparseStats(NamedTuple):
    """Figures of a sparse structure.

    Attributes:
        rows, cols: Extents.
        nnz: Entries.
        uploads: Times that the matrix was put on the device: whenever its pattern changed, and after a loss.
        updates: Times that only its values were.
    """

    rows: int
    cols: int
    nnz: int
    uploads: int
    updates: int


class GpuSparseStructureActor(Asked):
    """A sparse matrix whose entries change between products. The host keeps them: a lost device costs no entry.

    ::

        graph = cb.GpuSparseStructureActor(gpu, 3, 3)
        graph.set_entries([0, 1, 2], [1, 2, 0], [1.0, 2.0, 3.0])
        y = await graph.spmv(np.ones(3, "f4"))
        graph.update([0], [1], [0.5])

    Args:
        device: Open.
        rows, cols: Extents.
        dtype: Of values and vectors: f4, f8, c8 or c16.

    Class attributes:
        SetEntries, SpMv, SparseStatsOf: The messages that :meth:`ask` takes.

    Raises:
        TypeError, ValueError: An argument does not fit.
    """

    SetEntries: ClassVar = messages.SetEntries
    SpMv: ClassVar = messages.SpMv
    SparseStatsOf: ClassVar = messages.SparseStatsOf

    def __init__(self, device: Device, rows: int, cols: int, dtype: Any = "f4") -> None:
        super().__init__(device)
        shape = count("rows", rows, most=(1 << 31) - 1), count("cols", cols, most=(1 << 31) - 1)
        kind = np.dtype(dtype)
        if kind.str[1:] not in ("f4", "f8", "c8", "c16"):
            raise ValueError(f"dtype is {kind}; use f4, f8, c8 or c16")
        self._entries = Entries(shape, kind)
        self._matrix: CsrRef | None = None
        self._of = (-1, -1)  # the generation and the pattern of what is on the device
        self._changed = False
        self._uploads = self._updates = 0

    # -- entries -------------------------------------------------------------------------------------------------------

    def set_entries(self, rows: Any, cols: Any, values: Any) -> int:
        """Replace all entries, and return their number. Values for one place are added.

        Args:
            rows, cols: Places, integers ``[n]``.
            values: ``[n]``.

        Raises:
            ShapeError: A place outside of the matrix, which nothing changes then; lengths that differ.
            TypeError: Indices that are no integers.
        """
        self._entries.replace(rows, cols, values)
        return len(self._entries.keys)

    def set_matrix(self, matrix: Any) -> int:
        """Replace all entries by those of a SciPy matrix of any format (CSR, CSC, COO, BSR, DIA, …); their number.

        Blocks of BSR become single entries, zeros in them included.

        Raises:
            ShapeError: It has other extents.
            TypeError: It is no sparse matrix; its values are none of this dtype.
        """
        if not scipy.sparse.issparse(matrix):
            raise TypeError(f"matrix is {type(matrix).__name__}; pass one of SciPy: scipy.sparse.csr_array(matrix)")
        if matrix.shape != self._entries.shape:
            raise ShapeError(f"matrix has shape {list(matrix.shape)}; this one is {list(self._entries.shape)}")
        found = scipy.sparse.coo_array(matrix)
        return self.set_entries(found.row, found.col, found.data)

    def to_scipy(self, format: SparseFormat = "csr", **how: Any) -> Any:
        """A copy of the entries as a :mod:`scipy.sparse` array on the host.

        Args:
            format: Of the array.
            how: Passed to SciPy's conversion: ``blocksize=(2, 2)`` of ``"bsr"``.
        """
        if format not in get_args(SparseFormat):
            raise ValueError(f"format is {format!r}; use one of {', '.join(map(repr, get_args(SparseFormat)))}")
        indptr, indices, values = self._entries.csr()
        found = scipy.sparse.csr_array((values.copy(), indices, indptr), self._entries.shape)
        return getattr(found, f"to{format}")(**how)

    def update(self, rows: Any, cols: Any, values: Any, how: Change = "set") -> int:
        """Change entries, and return how many there are then. Where all places exist, only values go to the device.

        Args:
            how: ``"set"``: the last value for a place counts; ``"add"``: to what is there.
        """
        self._entries.change(rows, cols, values, how)
        self._changed = True
        return len(self._entries.keys)

    def remove(self, rows: Any, cols: Any) -> int:
        """Remove the entries at these places, and return how many there were."""
        return self._entries.remove(rows, cols)

    # -- products ------------------------------------------------------------------------------------------------------

    async def spmv(self, x: Any, *, transpose: bool = False) -> NDArray[Any]:
        """The product with a vector of the host, ``a @ x`` or ``a.T @ x``.

        Raises:
            ShapeError: ``x`` has another length.
        """
        return await self._product(self._operand(x, 1, transpose), transpose)

    async def spmm(self, x: Any, *, transpose: bool = False) -> NDArray[Any]:
        """The product with a matrix of the host, ``a @ x`` or ``a.T @ x``."""
        return await self._product(self._operand(x, 2, transpose), transpose)

    async def spgemm(self, other: "GpuSparseStructureActor") -> Any:
        """The product with another sparse matrix on the same device, as a :mod:`scipy.sparse` array."""
        if getattr(other, "_device", None) is not self._device:
            raise TypeError(f"other is {other!r:.80}; pass a GpuSparseStructureActor on {self._device.name}")
        if other._entries.shape[0] != self._entries.shape[1]:
            raise ShapeError(f"other has {other._entries.shape[0]} rows; this has {self._entries.shape[1]} columns")

        async def run() -> Any:
            found = await self._device.sparse.sp_gemm(self.matrix(), other.matrix())
            return await self._device.sparse.to_scipy(found)

        return await self._again(run)

    def matrix(self) -> CsrRef:
        """The matrix on the device as it is now, an operand of ``device.sparse``; it is put there if it has changed."""
        now = self._device.generation, self._entries.version
        if self._matrix is None or now != self._of:
            indptr, indices, values = self._entries.csr()
            put = self._device.put
            self._matrix = CsrRef(
                indptr=put(indptr), indices=put(indices), values=put(values), shape=self._entries.shape
            )
            self._of, self._uploads = now, self._uploads + 1
        elif self._changed:
            old = self._matrix
            fresh = self._device.put(self._entries.values)
            self._matrix = CsrRef(indptr=old.indptr, indices=old.indices, values=fresh, shape=old.shape)
            self._updates += 1
        self._changed = False
        return self._matrix

    def stats(self) -> SparseStats:
        """Figures now."""
        return SparseStats(*self._entries.shape, len(self._entries.keys), self._uploads, self._updates)

    # -- messages ------------------------------------------------------------------------------------------------------

    @messages.SetEntries.handles
    async def _on_set(self, m: messages.SetEntries) -> int:
        return self.set_entries(m.rows, m.cols, m.values)

    @messages.SpMv.handles
    async def _on_spmv(self, m: messages.SpMv) -> Any:
        return await self.spmv(m.x, transpose=m.transpose)

    @messages.SparseStatsOf.handles
    async def _on_stats(self, m: messages.SparseStatsOf) -> SparseStats:
        return self.stats()

    def _operand(self, x: Any, axes: int, transpose: bool) -> NDArray[Any]:
        array, dtype = np.asarray(x), self._entries.values.dtype
        length = self._entries.shape[0 if transpose else 1]
        if array.ndim != axes or array.shape[0] != length:
            expected = f"[{length}]" if axes == 1 else f"[{length}, n]"
            raise ShapeError(f"x has shape {list(array.shape)}; expected {expected}")
        if not np.can_cast(array.dtype, dtype, "same_kind"):
            raise TypeError(f"x has dtype {array.dtype}; this matrix is {dtype}")
        return np.array(array, dtype, order="C")  # the caller may write to its own

    async def _product(self, x: NDArray[Any], transpose: bool) -> NDArray[Any]:
        async def run() -> Any:
            sparse = self._device.sparse
            product: Callable[..., GpuRef] = sparse.sp_mv if x.ndim == 1 else sparse.sp_mm
            return await fetched(self._device, product(self.matrix(), lent(self._device, x), transpose=transpose))

        return np.asarray(await self._again(run))

    async def _again(self, run: Callable[[], Awaitable[Any]]) -> Any:
        for attempt in range(ATTEMPTS):
            try:
                return await run()
            except ContextLost:
                self._matrix = None
                if attempt == ATTEMPTS - 1:
                    raise
                await self._device.ready()
        raise AssertionError
