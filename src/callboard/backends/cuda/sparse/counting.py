"""Counts of the entries of a result, and their prefix sums."""

import struct

from callboard.backends.cuda.readback import CudaStatus
from callboard.backends.cuda.sparse.cusparse import Cusparse
from callboard.backends.cuda.sparse.kernels import SparseArgs, launcher, scan_blocks
from callboard.kernel.checks import AnyOp
from callboard.kernel.sparse.checks import no_room

__all__ = ["Count", "Scan"]


class Count:
    """An i64 on the device, that kernels of a plan write.

    Attributes:
        address: Address of the number.
    """

    def __init__(self, cusparse: Cusparse) -> None:
        self._cusparse = cusparse
        self._memory = cusparse.device.allocate(8)
        self.address = self._memory.address

    def clear(self) -> None:
        """Make it 0, in the order of the stream."""
        driver = self._cusparse.driver
        driver.check(driver.memset_8(self.address, 0, 8, self._cusparse.stream.native), "cuMemsetD8Async")

    def read(self) -> int:
        """Return the count once the stream has passed; waits on the helper's thread."""
        counted = self._cusparse.device.read_back(self._cusparse.stream, self.address, 8)
        self._cusparse.stream.synchronize()
        (found,) = struct.unpack("<q", counted.take())
        return int(found)

    def tell(self, op: AnyOp, room: int, count: int | None) -> CudaStatus | None:
        """Copy the number to the message's ``count``; the status raises ``ShapeError`` if it exceeds the room."""
        if count is None:
            return None
        cusparse = self._cusparse
        driver = cusparse.driver
        driver.check(driver.memcpy_dtod(count, self.address, 8, cusparse.stream.native), "cuMemcpyDtoDAsync")

        def enough(outcome: bytes) -> None:
            (found,) = struct.unpack("<q", outcome)
            if found > room:
                raise no_room(op, found, room)

        return CudaStatus(self.address, 8, enough)

    def close(self) -> None:
        """Free the memory; nothing uses it any more."""
        self._cusparse.device.release(self._memory)


class Scan:
    """Numbers summed up to pointers, in place: each becomes the sum of all up to it, and the first 0.

    Args:
        cusparse: Handle and stream.
        pointers: Address of the pointers; numbers follow the first.
        n: Count of the numbers.
        index: The dtype of the pointers, ``"i32"`` or ``"i64"``.
        counted: Gets the sum of all.
    """

    def __init__(self, cusparse: Cusparse, pointers: int, n: int, index: str, counted: Count) -> None:
        self._cusparse = cusparse
        self._memory = cusparse.device.allocate(8 * scan_blocks(n))
        args = SparseArgs(major=n, pointers=pointers, count=counted.address, out=self._memory.address)
        self._steps = [launcher(cusparse.device, f"{step}_{index}", n, args) for step in ("sums", "scan")]

    def __call__(self, stream: int) -> None:
        """Enqueue it."""
        for step in self._steps:
            step(stream)

    def close(self) -> None:
        """Free the memory; nothing uses it any more."""
        self._cusparse.device.release(self._memory)
