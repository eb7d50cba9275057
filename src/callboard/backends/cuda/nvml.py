"""GPU information from NVML, without creating a context or loading the CUDA driver."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p, create_string_buffer
from typing import Any, NamedTuple

from callboard.core.errors import BackendUnavailable

__all__ = ["Gpu", "Nvml", "gpus", "opened"]

NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
_TOLERATED = (NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND)


class Gpu(NamedTuple):
    """A GPU, or a MIG slice of one.

    Attributes:
        uuid: ``"GPU-…"`` or ``"MIG-…"``.
        name: Product name.
        total_bytes: Memory.
        compute_capability: ``(major, minor)``.
        slices: MIG devices of the GPU, if MIG is on; then only these can be used.
    """

    uuid: str
    name: str
    total_bytes: int
    compute_capability: tuple[int, int]
    slices: "tuple[Gpu, ...] | None" = None


class _Memory(ctypes.Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class Nvml:
    """An initialised NVML.

    Args:
        library: ``libnvidia-ml``, or something that has its functions.
    """

    def __init__(self, library: Any) -> None:
        self._library = library

    def gpus(self) -> list[Gpu]:
        """All GPUs that this process may see, in the order of their PCI addresses."""
        count = c_uint()
        self._call("nvmlDeviceGetCount_v2", byref(count))
        found = []
        for index in range(count.value):
            handle = c_void_p()
            status = self.status("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle))
            if status == 0:
                found.append(self._gpu(handle))
            elif status not in _TOLERATED:  # another user's GPU in a container is not ours to fail on
                raise self._error(status, "nvmlDeviceGetHandleByIndex")
        return found

    def _gpu(self, handle: c_void_p) -> Gpu:
        major, minor = c_int(), c_int()
        self._call("nvmlDeviceGetCudaComputeCapability", handle, byref(major), byref(minor))
        capability = (major.value, minor.value)
        return self._described(handle, capability)._replace(slices=self._slices(handle, capability))

    def _described(self, handle: c_void_p, capability: tuple[int, int]) -> Gpu:
        memory = _Memory()
        if self.status("nvmlDeviceGetMemoryInfo", handle, byref(memory)) != 0:
            memory.total = 0  # GPUs that share their memory with the CPU do not report it
        uuid = self._text("nvmlDeviceGetUUID", handle)
        return Gpu(uuid, self._text("nvmlDeviceGetName", handle), memory.total, capability)

    def _slices(self, handle: c_void_p, capability: tuple[int, int]) -> tuple[Gpu, ...] | None:
        current, pending, most = c_uint(), c_uint(), c_uint()
        if self.status("nvmlDeviceGetMigMode", handle, byref(current), byref(pending)) != 0 or not current.value:
            return None
        self._call("nvmlDeviceGetMaxMigDeviceCount", handle, byref(most))
        found = []
        for index in range(most.value):
            part = c_void_p()
            if self.status("nvmlDeviceGetMigDeviceHandleByIndex", handle, c_uint(index), byref(part)) == 0:
                found.append(self._described(part, capability))
        return tuple(found)

    def device(self, uuid: str) -> c_void_p | None:
        """The handle of a device, None if it cannot be had."""
        handle = c_void_p()
        status = self.status("nvmlDeviceGetHandleByUUID", c_char_p(uuid.encode()), byref(handle))
        return handle if status == 0 else None

    def number(self, name: str, *arguments: Any) -> int | None:
        """Return the last output argument of a query; None if it fails."""
        value = c_uint()
        return value.value if self.status(name, *arguments, byref(value)) == 0 else None

    def _text(self, name: str, handle: c_void_p) -> str:
        buffer = create_string_buffer(96)
        self._call(name, handle, buffer, c_uint(len(buffer)))
        return buffer.value.decode(errors="replace")

    def _call(self, name: str, *arguments: Any) -> None:
        status = self.status(name, *arguments)
        if status:
            raise self._error(status, name)

    def status(self, name: str, *arguments: Any) -> int:
        """Call a function and return its status; ``NOT_SUPPORTED`` if the library lacks the function."""
        function = getattr(self._library, name, None)
        return NOT_SUPPORTED if function is None else int(function(*arguments))

    def _error(self, status: int, call: str) -> BackendUnavailable:
        return BackendUnavailable(f"NVML, {call}: {_message(self._library, status)} ({status})")


def _message(library: Any, status: int) -> str:
    function = getattr(library, "nvmlErrorString", None)
    if function is None:
        return "error"
    function.restype = c_char_p
    text: bytes | None = function(c_int(status))
    return (text or b"error").decode(errors="replace")


@contextmanager
def opened(library: Any = None) -> Iterator[Nvml]:
    """An initialised NVML.

    Args:
        library: Stands in for ``libnvidia-ml.so.1``.

    Raises:
        BackendUnavailable: There is no driver, or it does not answer.
    """
    if library is None:
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as e:
            raise BackendUnavailable(f"no NVIDIA driver: {e}; install the driver of this machine's GPU") from e
    status = int(library.nvmlInit_v2())
    if status:
        raise BackendUnavailable(
            f"the NVIDIA driver does not answer: {_message(library, status)} ({status}); "
            f"check the output of nvidia-smi, then reinstall or reload the driver"
        )
    try:
        yield Nvml(library)
    finally:
        library.nvmlShutdown()


def gpus(library: Any = None) -> list[Gpu]:
    """The GPUs of this machine, in the order of their PCI addresses.

    Args:
        library: Stands in for ``libnvidia-ml.so.1``.

    Raises:
        BackendUnavailable: There is no driver, or it does not answer.
    """
    with opened(library) as nvml:
        return nvml.gpus()
