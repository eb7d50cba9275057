"""A cuBLAS handle: with the tables of names beside the calls the only code that uses ``nvmath.bindings.cublas``."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.blas.scalars import SLOTS_AT, constant_offset, constants
from callboard.backends.cuda.handle import Handle
from callboard.backends.cuda.vendor import load_binding
from callboard.core.dtype import DType
from callboard.core.errors import AccelError, LibraryError, OutOfMemory

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["DEVICE", "HOST", "Cublas", "Run", "load_cublas"]

HOST, DEVICE = 0, 1
"""Pointer modes: where cuBLAS finds factors and leaves results."""
WORKSPACE = 32 << 20
"""Workspace bytes; NVIDIA's recommendation for Hopper. A workspace of its own makes results repeatable and lets a graph
capture the handle."""
ALLOC_FAILED, NOT_INITIALIZED = 3, 1
"""``cublasStatus_t``."""

Run = Callable[..., None]


def load_cublas() -> Any:
    """NVIDIA's binding of cuBLAS.

    Raises:
        BackendUnavailable: It is not installed.
    """
    return load_binding("cublas", "cuBLAS")


class Cublas(Handle):
    """A handle with its stream, workspace and factors on the device.

    Args:
        device: The device; its context is current.
        stream: The stream it enqueues on.
        library: Stands in for NVIDIA's binding.

    Attributes:
        library: The binding.
        handle: The ``cublasHandle_t``.
        stream: The stream the handle enqueues on now.
        mode: :data:`HOST` or :data:`DEVICE`.

    Raises:
        BackendUnavailable: The package or libcublas is missing.
        OutOfMemory: No room for handle or workspace.
        LibraryError: cuBLAS refuses.
    """

    name = "cublas"
    no_room = (ALLOC_FAILED,)

    def __init__(self, device: "CudaDevice", stream: "CudaStream", library: Any = None) -> None:
        if library is None:
            library = load_cublas()
        self.mode = HOST
        try:
            super().__init__(device, stream, library, library.cuBLASError)
        except LibraryError as e:
            if e.code == NOT_INITIALIZED and device.memory_info()[0] < 2 * WORKSPACE:
                raise OutOfMemory(str(e)) from None  # its status when there is no room
            raise
        try:
            self._workspace = self.allocate(WORKSPACE)
            image = constants()
            self._constants = self.allocate(len(image))
            self.slots = self._constants + SLOTS_AT
            code = self.driver.memcpy_htod(self._constants, image, len(image), stream.native)
            self.driver.check(code, "cuMemcpyHtoDAsync")
            stream.synchronize()  # before the image is freed: if the device can access all memory, it is not staged
            self.bind(stream)
        except AccelError:
            self.close()
            raise

    def function(self, name: str, *extents: int) -> Callable[..., Any]:
        """The function of this name; its 64-bit form if one of the extents needs it."""
        wide = any(not -(2**31) < n < 2**31 for n in extents)
        found: Callable[..., Any] = getattr(self.library, f"{name}_64" if wide else name)
        return found

    # -- state of the handle -------------------------------------------------------------------------------------------

    def bind(self, stream: "CudaStream") -> None:
        """Enqueue on this stream from now on."""
        try:
            self.library.set_stream(self.handle, stream.native)
            # Setting a stream drops the workspace.
            self.library.set_workspace(self.handle, self._workspace, WORKSPACE)
        except self.failure as e:
            raise self.error(e, "cublasSetStream") from None
        self.stream = stream

    def point(self, mode: int) -> None:
        """Set the pointer mode."""
        self.library.set_pointer_mode(self.handle, mode)
        self.mode = mode

    def guarded(self, run: Run, call: str) -> Run:
        """``run(*arguments)`` as ``launch(stream, *arguments)``: on that stream, and with callboard's errors."""
        failure = self.failure

        def launch(stream: "CudaStream", *arguments: Any) -> None:
            if stream is not self.stream:
                self.bind(stream)
            try:
                run(*arguments)
            except failure as e:
                raise self.error(e, call) from None

        return launch

    # -- factors on the device -----------------------------------------------------------------------------------------

    def zero(self) -> int:
        """Address of a 0 of any type."""
        return self._constants

    def one(self, dtype: DType) -> int:
        """Address of a 1."""
        return self._constants + constant_offset(dtype)
