"""Makes the actor's stream the current one of the packages that user code has loaded, on the actor's thread."""

import sys
from typing import Any

from callboard.core.backend import AccelStream

__all__ = ["Currents"]


class Currents:
    """Makes a stream current in each package, once per package. Imports no package.

    Args:
        stream: The actor's stream.
        ordinal: Ordinal of the device in this process; None on a CPU, which has no current stream.
    """

    def __init__(self, stream: AccelStream, ordinal: int | None) -> None:
        self._stream = stream
        self._ordinal = ordinal
        self._kept: dict[str, Any] = {}  # the packages' stream objects, which must outlive their use
        self._seen = 0  # modules when all packages among them were found current

    def make(self) -> None:
        """Make the stream current in packages loaded since the last call. Runs before user code, on its thread."""
        if self._ordinal is None or len(sys.modules) == self._seen:
            return
        seen = len(sys.modules)
        for package, current in (("torch", _torch), ("cupy", _cupy), ("warp", _warp)):
            module = sys.modules.get(package)
            if module is None or package in self._kept:
                continue
            if _is_complete(module):
                self._kept[package] = current(module, self._stream.native, self._ordinal)
            else:
                seen = 0
        self._seen = seen


class _Stream:
    """A stream with the ``__cuda_stream__`` protocol of cuda.core."""

    def __init__(self, native: int) -> None:
        self._native = native

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._native


def _is_complete(module: Any) -> bool:
    """True if the import is complete (another thread may still be running it)."""
    return not getattr(getattr(module, "__spec__", None), "_initializing", False)


def _torch(torch: Any, stream: int, ordinal: int) -> Any:
    if not torch.cuda.is_available():  # a build for CPUs
        return None
    torch.cuda.set_device(ordinal)
    external = torch.cuda.ExternalStream(stream, device=ordinal)
    torch.cuda.set_stream(external)
    return external


def _cupy(cupy: Any, stream: int, ordinal: int) -> Any:
    cupy.cuda.Device(ordinal).use()
    if hasattr(cupy.cuda.Stream, "from_external"):  # since 14, where the other is deprecated
        external = cupy.cuda.Stream.from_external(_Stream(stream))
    else:
        external = cupy.cuda.ExternalStream(stream, ordinal)
    external.use()
    return external


def _warp(warp: Any, stream: int, ordinal: int) -> Any:
    if not hasattr(warp, "set_stream"):  # another package of that name
        return None
    device = warp.get_device(f"cuda:{ordinal}")
    external = warp.Stream(device, cuda_stream=stream)
    warp.set_stream(external, device)
    return external
