"""A cuSPARSE handle: the one place that knows ``nvmath.bindings.cusparse``, besides the names of its functions."""

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.backends.cuda.blas.scalars import SLOT, SLOTS
from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import AccelError, BackendUnavailable, LibraryError, OutOfMemory

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream
    from callboard.core.backend import Memory

__all__ = ["CODES", "INDEX_CODES", "Cusparse", "compute_dtype", "load_cusparse"]

CODES = {"f16": 2, "bf16": 14, "f32": 0, "f64": 1, "c64": 4, "c128": 5}
"""``cudaDataType`` of values."""
INDEX_CODES = {"i32": 2, "i64": 3}
"""``cusparseIndexType_t``."""
MIN_SCRATCH = 64 << 10
ALLOC_FAILED, INSUFFICIENT_RESOURCES = 2, 11
"""``cusparseStatus_t``."""


def load_cusparse() -> Any:
    """NVIDIA's binding of cuSPARSE.

    Raises:
        BackendUnavailable: It is not installed.
    """
    try:
        from nvmath.bindings import cusparse
    except ImportError as e:
        raise BackendUnavailable(f'cuSPARSE cannot be used: {e}; pip install "callboard[cuda13]"') from e
    return cusparse


def compute_dtype(dtype: DType) -> DType:
    """What sums are kept in, and factors come in: f32 for the halves."""
    return DTYPES["f32"] if dtype.itemsize == 2 else dtype


class Cusparse:
    """A handle that enqueues on one stream, with device memory for factors and scratch.

    Used on one thread at a time.

    Args:
        device: Whose context is current.
        stream: Where it enqueues.

    Attributes:
        library: The binding.
        handle: The ``cusparseHandle_t``.
        mode: Where factors are: 0 on the host, 1 on the device.

    Raises:
        BackendUnavailable: The package or libcusparse is missing.
        OutOfMemory, LibraryError
    """

    def __init__(self, device: "CudaDevice", stream: "CudaStream") -> None:
        self.library = load_cusparse()
        self.failure: type[Exception] = self.library.cuSPARSEError
        self.device = device
        self.driver = device.driver
        self.stream = stream
        self.mode = 0
        self._memory: list[Memory] = []
        self._scratch = (0, 0)
        self._zeros = np.zeros(2)
        try:
            self.handle = int(self.library.create())
        except self.failure as e:
            raise self.error(e, "cusparseCreate") from None
        except Exception as e:  # pathfinder's and nvmath's own, when libcusparse or a symbol is missing
            raise BackendUnavailable(f'libcusparse cannot be loaded: {e}; pip install "callboard[cuda13]"') from e
        try:
            self.call("set_stream", stream.native)
            self._slots = self.allocate(SLOT * SLOTS)
        except AccelError:
            self.close()
            raise

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the handle, with errors of ours."""
        try:
            return getattr(self.library, name)(self.handle, *arguments)
        except self.failure as e:
            raise self.error(e, name) from None

    def make(self, name: str, *arguments: Any) -> Any:
        """Call a function that needs no handle."""
        try:
            return getattr(self.library, name)(*arguments)
        except self.failure as e:
            raise self.error(e, name) from None

    def allocate(self, nbytes: int) -> int:
        """Device memory that lives as long as the handle."""
        memory = self.device.allocate(nbytes)
        self._memory.append(memory)
        return memory.address

    def scratch(self, nbytes: int) -> int:
        """Device memory for one op; the next op on the stream may be given the same.

        What earlier callers were given stays valid when more is needed.
        """
        if nbytes > self._scratch[1]:
            size = max(2 * nbytes, MIN_SCRATCH)
            self._scratch = (self.allocate(size), size)
        return self._scratch[0]

    def point(self, mode: int) -> None:
        """Say where factors are."""
        self.call("set_pointer_mode", mode)
        self.mode = mode

    def question(self, host: bool = False) -> int:
        """Get ready to ask for sizes, for which factors are not looked at: something to pass for them.

        Args:
            host: Where the function takes factors of the host only.
        """
        mode = 0 if host else 1
        if self.mode != mode:
            self.point(mode)
        return self._zeros.ctypes.data if host else self._slots

    def slot_writer(self, slot: int, pack: Callable[[Any], bytes]) -> Callable[[Any], int]:
        """A function that writes a number into a slot on the device, in stream order, and gives the slot's address."""
        address = self._slots + SLOT * slot
        memset, check = self.driver.memset_32, self.driver.check

        def write(value: Any) -> int:
            for at, (word,) in enumerate(struct.iter_unpack("<I", pack(value))):
                check(memset(address + 4 * at, word, 1, self.stream.native), "cuMemsetD32Async")
            return address

        return write

    def error(self, error: Exception, call: str) -> AccelError:
        """What an exception of the binding means."""
        status = int(getattr(error, "status", 0))
        if status in (ALLOC_FAILED, INSUFFICIENT_RESOURCES):
            return OutOfMemory(f"{call}: {error}")
        return LibraryError(f"{call}: {error}", "cusparse", status)

    def close(self) -> None:
        """Destroy the handle; all its work is done."""
        if self.handle:
            handle, self.handle = self.handle, 0
            try:
                self.library.destroy(handle)
            except self.failure as e:
                raise self.error(e, "cusparseDestroy") from None
            finally:
                for memory in self._memory:
                    self.device.release(memory)
                self._memory.clear()
