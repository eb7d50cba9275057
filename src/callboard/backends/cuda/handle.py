"""A vendor's handle that enqueues on one stream, with memory on the device that lives as long."""

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.vendor import Vendor

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream
    from callboard.core.backend import Memory

__all__ = ["SLOT", "Handle"]

SLOT = 16
"""Bytes: room for a number of any dtype."""
MIN_SCRATCH = 64 << 10


class Handle(Vendor):
    """A handle of a library. Used on one thread at a time, unless its class documents otherwise.

    Args:
        device: The device; its context is current.
        stream: The stream it enqueues on.
        library: The binding.
        failure: Exception class of the binding.

    Attributes:
        handle: Handle in the library's API; 0 when it is destroyed.
        stream: The stream it enqueues on now.
        slots: Address of numbers on the device, :data:`SLOT` bytes each; its class allocates them.

    Raises:
        BackendUnavailable: The library is missing.
        OutOfMemory, LibraryError: It makes no handle.
    """

    def __init__(self, device: "CudaDevice", stream: "CudaStream", library: Any, failure: type[Exception]) -> None:
        super().__init__(library, failure)
        self.device = device
        self.driver = device.driver
        self.stream = stream
        self.slots = 0
        self._memory: list[Memory] = []
        self._scratch = (0, 0)
        self.handle = self.make_handle(f"{self.name}Create", library.create)

    def allocate(self, nbytes: int) -> int:
        """Device memory that lives as long as the handle."""
        memory = self.device.allocate(nbytes)
        self._memory.append(memory)
        return memory.address

    def scratch(self, nbytes: int) -> int:
        """Device memory for one op; the next op on the stream may be given the same.

        Memory returned earlier stays valid when more is needed.
        """
        if nbytes > self._scratch[1]:
            size = max(2 * nbytes, MIN_SCRATCH)
            self._scratch = (self.allocate(size), size)
        return self._scratch[0]

    def slot_writer(self, slot: int, pack: Callable[[Any], bytes]) -> Callable[[Any], int]:
        """A function that writes a number into a slot on the device, in stream order, and gives the slot's address.

        The number travels in the command itself (a memset), so there is no host buffer to keep alive. All users of
        the slot are enqueued on one stream.
        """
        address = self.slots + SLOT * slot
        memset, check = self.driver.memset_32, self.driver.check

        def write(value: Any) -> int:
            native = self.stream.native
            for at, (word,) in enumerate(struct.iter_unpack("<I", pack(value))):
                check(memset(address + 4 * at, word, 1, native), "cuMemsetD32Async")
            return address

        return write

    def close(self) -> None:
        """Destroy the handle; all its work is done."""
        if self.handle:
            handle, self.handle = self.handle, 0
            try:
                self.checked(f"{self.name}Destroy", self.library.destroy, handle)
            finally:
                for memory in self._memory:
                    self.device.release(memory)
                self._memory.clear()
