"""Checks of the contents of a sparse matrix."""

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from callboard.backends.cuda.readback import CudaStatus
from callboard.backends.cuda.sparse.blocks import CheckingPadded
from callboard.backends.cuda.sparse.cusparse import Cusparse
from callboard.backends.cuda.sparse.kernels import SparseArgs, launcher
from callboard.core.errors import ShapeError
from callboard.core.library import plans
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import faults_text, index_of

if TYPE_CHECKING:
    from callboard.backends.cuda.sparse.library import CudaSparse
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Checking"]


@plans(sparse.Check)
class Checking:
    """A plan of ``Check``: faults are counted on the device and reported when the stream has passed."""

    def __init__(self, library: "CudaSparse", op: sparse.Check) -> None:
        self._cusparse = cusparse = library.cusparse
        self._op = op
        self._memory = cusparse.device.allocate(32)
        faults = self._memory.address
        padded = isinstance(op.a, sparse.BlockedEllRef)
        self._count = CheckingPadded(cusparse, op, faults) if padded else CheckingPointers(cusparse, op, faults)

    def __call__(self, stream: "CudaStream", a: Sequence[int]) -> CudaStatus:
        """Enqueue it and return a status that raises ``ShapeError``."""
        cusparse = self._cusparse
        driver, native = cusparse.driver, stream.native
        driver.check(driver.memset_8(self._memory.address, 0, 32, native), "cuMemsetD8Async")
        self._count(native, a)
        return CudaStatus(self._memory.address, 20, self._check)

    def _check(self, outcome: bytes) -> None:
        text = faults_text(self._op.a, struct.unpack("<5I", outcome), self._op.duplicates)
        if text:
            raise ShapeError(f"sparse.check: a: {text}")

    def close(self) -> None:
        """Free the memory; nothing uses it any more."""
        self._cusparse.device.release(self._memory)


class CheckingPointers:
    """Counts the faults of a matrix with pointers or coordinates at an address; blocks count as entries."""

    def __init__(self, cusparse: Cusparse, op: sparse.Check, faults: int) -> None:
        a = op.a
        rows, cols = a.shape
        if isinstance(a, sparse.BsrRef):
            down, across = a.block
            rows, cols = rows // down, cols // across
        entries, by_cols = a.values.shape[0], isinstance(a, sparse.CscRef)
        args = self._args = SparseArgs(entries=entries, ordered=op.ordered, coordinates=isinstance(a, sparse.CooRef))
        args.major, args.minor = (cols, rows) if by_cols else (rows, cols)
        args.faults, args.least = faults, op.duplicates == "refuse"
        self._run = launcher(cusparse.device, f"check_{index_of(a).name}", max(entries, args.major + 1), args)

    def __call__(self, stream: int, parts: Sequence[int]) -> None:
        """Enqueue it."""
        args = self._args
        args.first, args.second = (parts[2], parts[1]) if args.coordinates else (parts[1], parts[2])
        self._run(stream)
