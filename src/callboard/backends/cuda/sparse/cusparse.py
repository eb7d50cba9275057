"""A cuSPARSE handle: the only module that uses ``nvmath.bindings.cusparse``, besides the names of its functions."""

from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.backends.cuda.blas.scalars import SLOTS
from callboard.backends.cuda.handle import SLOT, Handle
from callboard.backends.cuda.vendor import load_binding
from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import AccelError

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["CODES", "INDEX_CODES", "Cusparse", "compute_dtype", "load_cusparse"]

CODES = {"f16": 2, "bf16": 14, "f32": 0, "f64": 1, "c64": 4, "c128": 5}
"""``cudaDataType`` of values."""
INDEX_CODES = {"i32": 2, "i64": 3}
"""``cusparseIndexType_t``."""
ALLOC_FAILED, INSUFFICIENT_RESOURCES = 2, 11
"""``cusparseStatus_t``."""


def load_cusparse() -> Any:
    """NVIDIA's binding of cuSPARSE.

    Raises:
        BackendUnavailable: It is not installed.
    """
    return load_binding("cusparse", "cuSPARSE")


def compute_dtype(dtype: DType) -> DType:
    """The dtype of sums and factors: f32 for the halves."""
    return DTYPES["f32"] if dtype.itemsize == 2 else dtype


class Cusparse(Handle):
    """A handle that enqueues on one stream at a time, with device memory for factors and scratch.

    Used on one thread at a time. Ops on different streams share that memory, so they must not run beside each other.

    Args:
        device: The device; its context is current.
        stream: The stream it enqueues on until it is bound to another.

    Attributes:
        library: The binding.
        handle: The ``cusparseHandle_t``.
        mode: Pointer mode of factors: 0 on the host, 1 on the device.

    Raises:
        BackendUnavailable: The package or libcusparse is missing.
        OutOfMemory, LibraryError
    """

    name = "cusparse"
    no_room = (ALLOC_FAILED, INSUFFICIENT_RESOURCES)

    def __init__(self, device: "CudaDevice", stream: "CudaStream") -> None:
        library = load_cusparse()
        super().__init__(device, stream, library, library.cuSPARSEError)
        self.mode = 0
        self._zeros = np.zeros(2)
        try:
            self.call("set_stream", stream.native)
            self.slots = self.allocate(SLOT * SLOTS)
        except AccelError:
            self.close()
            raise

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the handle, with callboard's errors."""
        return self.checked(name, getattr(self.library, name), self.handle, *arguments)

    def make(self, name: str, *arguments: Any) -> Any:
        """Call a function that needs no handle."""
        return self.checked(name, getattr(self.library, name), *arguments)

    def bind(self, stream: "CudaStream") -> None:
        """Enqueue on this stream from now on."""
        if stream is not self.stream:
            self.call("set_stream", stream.native)
            self.stream = stream

    def point(self, mode: int) -> None:
        """Say where factors are."""
        self.call("set_pointer_mode", mode)
        self.mode = mode

    def question(self, host: bool = False) -> int:
        """Prepare for a size query, which does not read factors: returns placeholders for them.

        Args:
            host: True if the function takes factors on the host only.
        """
        mode = 0 if host else 1
        if self.mode != mode:
            self.point(mode)
        return self._zeros.ctypes.data if host else self.slots
