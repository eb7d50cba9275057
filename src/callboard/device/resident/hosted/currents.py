"""The actor's stream as the current one of the packages that users' code has loaded, on the actor's thread."""

import sys
from typing import Any

from callboard.core.backend import AccelStream

__all__ = ["Currents"]


class Currents:
    """Makes a stream current, package by package, once each.

    Looks only at packages that are loaded: nobody waits for an import that he did not ask for.

    Args:
        stream: The actor's.
        ordinal: Of the device among those that this process sees; None on a CPU, where nothing is current.
    """

    def __init__(self, stream: AccelStream, ordinal: int | None) -> None:
        self._stream = stream
        self._ordinal = ordinal
        self._kept: dict[str, Any] = {}  # the packages' stream objects, which must outlive their use

    def make(self) -> None:
        """Before users' code runs; on the actor's thread."""
        if self._ordinal is None:
            return
        for package, current in (("torch", _torch), ("cupy", _cupy), ("warp", _warp)):
            module = sys.modules.get(package)
            if module is not None and package not in self._kept and _is_complete(module):
                self._kept[package] = current(module, self._stream.native, self._ordinal)


class _Stream:
    """A stream by the protocol of cuda.core."""

    def __init__(self, native: int) -> None:
        self._native = native

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._native


def _is_complete(module: Any) -> bool:
    """Whether the import has ended (another thread may be in the middle of it)."""
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
