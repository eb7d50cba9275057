"""A cuBLAS handle: the one place that knows ``nvmath.bindings.cublas``.

NVIDIA calls those bindings experimental, so everything that is theirs (the module, its exception, the names of its
functions) stays in here and in the tables beside the calls.
"""

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.blas.scalars import SLOT, SLOTS, constant_offset, constants
from callboard.core.dtype import DType
from callboard.core.errors import AccelError, BackendUnavailable, LibraryError, OutOfMemory

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream
    from callboard.core.backend import Memory

__all__ = ["DEVICE", "HOST", "Cublas", "Run", "load_cublas"]

HOST, DEVICE = 0, 1
"""Pointer modes: where cuBLAS finds factors and leaves results."""
WORKSPACE = 32 << 20
"""Bytes; NVIDIA's recommendation for Hopper. One's own makes results repeatable and lets a graph capture it."""
MIN_SCRATCH = 64 << 10
ALLOC_FAILED, NOT_INITIALIZED = 3, 1
"""``cublasStatus_t``."""

Run = Callable[..., None]


def load_cublas() -> Any:
    """NVIDIA's binding of cuBLAS.

    Raises:
        BackendUnavailable: It is not installed.
    """
    try:
        from nvmath.bindings import cublas
    except ImportError as e:
        raise BackendUnavailable(f'cuBLAS cannot be used: {e}; pip install "callboard[cuda13]"') from e
    return cublas


class Cublas:
    """A handle with its stream, workspace and factors on the device.

    Args:
        device: Whose context is current.
        stream: Where it enqueues.
        library: Stands in for NVIDIA's binding.

    Attributes:
        library: The binding.
        handle: The ``cublasHandle_t``.
        stream: Where the handle enqueues now.
        mode: :data:`HOST` or :data:`DEVICE`.

    Raises:
        BackendUnavailable: The package or libcublas is missing.
        OutOfMemory: No room for handle or workspace.
        LibraryError: cuBLAS refuses.
    """

    def __init__(self, device: "CudaDevice", stream: "CudaStream", library: Any = None) -> None:
        self.library = load_cublas() if library is None else library
        self.failure: type[Exception] = self.library.cuBLASError
        self.device = device
        self.driver = device.driver
        self.stream = stream
        self.mode = HOST
        self._memory: list[Memory] = []
        self._scratch = (0, 0)
        try:
            self.handle = int(self.library.create())
        except self.failure as e:
            error = self.error(e, "cublasCreate")
            if status_of(e) == NOT_INITIALIZED and device.memory_info()[0] < 2 * WORKSPACE:
                error = OutOfMemory(str(error))  # what it says when there is no room
            raise error from None
        except Exception as e:  # pathfinder's and nvmath's own, when libcublas or a symbol is missing
            raise BackendUnavailable(f'libcublas cannot be loaded: {e}; pip install "callboard[cuda13]"') from e
        try:
            self._workspace = self.allocate(WORKSPACE)
            self._constants = self.allocate(SLOT * SLOTS)
            image = constants()
            code = self.driver.memcpy_htod(self._constants, image, len(image), stream.native)
            self.driver.check(code, "cuMemcpyHtoDAsync")
            stream.synchronize()  # before the image is gone: where the device reaches all memory, it is not staged
            self.bind(stream)
        except AccelError:
            self.close()
            raise

    def function(self, name: str, *extents: int) -> Callable[..., Any]:
        """The function of this name; its 64-bit form where one of the extents needs it."""
        wide = any(not -(2**31) < n < 2**31 for n in extents)
        found: Callable[..., Any] = getattr(self.library, f"{name}_64" if wide else name)
        return found

    def allocate(self, nbytes: int) -> int:
        """Device memory that lives as long as the handle."""
        memory = self.device.allocate(nbytes)
        self._memory.append(memory)
        return memory.address

    def scratch(self, nbytes: int) -> int:
        """Device memory for one op: the next op on the stream may be given the same.

        What earlier callers were given stays valid when more is needed.
        """
        if nbytes > self._scratch[1]:
            size = max(2 * nbytes, MIN_SCRATCH)
            self._scratch = (self.allocate(size), size)
        return self._scratch[0]

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
        """``run(*arguments)`` as ``launch(stream, *arguments)``: on that stream, and with errors of ours."""
        failure = self.failure

        def launch(stream: "CudaStream", *arguments: Any) -> None:
            if stream is not self.stream:
                self.bind(stream)
            try:
                run(*arguments)
            except failure as e:
                raise self.error(e, call) from None

        return launch

    def error(self, error: Exception, call: str) -> AccelError:
        """What an exception of the binding means."""
        status = status_of(error)
        if status == ALLOC_FAILED:
            return OutOfMemory(f"{call}: {error}")
        return LibraryError(f"{call}: {error}", "cublas", status)

    # -- factors on the device -----------------------------------------------------------------------------------------

    def zero(self) -> int:
        """Address of a 0 of any type."""
        return self._constants

    def one(self, dtype: DType) -> int:
        """Address of a 1."""
        return self._constants + constant_offset(dtype)

    def slot_writer(self, slot: int, pack: Callable[[Any], bytes]) -> Callable[[Any], int]:
        """A function that writes a number into a slot on the device, in stream order, and gives the slot's address.

        The number travels in the command itself (a memset), so there is no host buffer to keep alive. All users of
        the slot are enqueued on one stream.
        """
        address = self._constants + SLOT * (SLOTS - 1 - slot)
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
                self.library.destroy(handle)
            except self.failure as e:
                raise self.error(e, "cublasDestroy") from None
            finally:
                for memory in self._memory:
                    self.device.release(memory)
                self._memory.clear()


def status_of(error: Exception) -> int:
    """The ``cublasStatus_t`` that an exception of the binding carries."""
    return int(getattr(error, "status", 0))
