"""Arrays of addresses on the device, as batched calls take them."""

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

from callboard.backends.cuda.launching import kernel_launcher

if TYPE_CHECKING:
    from callboard.backends.cuda.blas.cublas import Cublas

__all__ = ["AddressArgs", "AddressArray"]

AT_ONCE = 448
"""Addresses of one launch; the arguments of a kernel may take 4 KiB everywhere."""


class AddressArgs(ctypes.Structure):
    """``AddressArgs`` of ``data/blas.cu``."""

    _fields_ = (("out", ctypes.c_void_p), ("count", ctypes.c_int64), ("values", ctypes.c_uint64 * AT_ONCE))


class AddressArray:
    """Addresses on the device, written anew for each call.

    They are passed as the arguments of a kernel. A copy would read host memory when the stream reaches it, on machines
    where the device can access all of it (Grace Hopper; Linux with HMM), and so the data of a later call; a captured
    copy would read it at each replay. On the device, calls of one stream are ordered.

    Attributes:
        address: Address of the first element.
    """

    def __init__(self, cublas: "Cublas", count: int) -> None:
        self._cublas = cublas
        self._args = AddressArgs()
        function = cublas.device.kernels.get("blas", "addresses")
        self._launch = kernel_launcher(cublas.driver, function, 1, (AT_ONCE, 1), self._args)
        self.address = cublas.scratch(8 * count)

    def write(self, addresses: Sequence[int]) -> None:
        """Enqueue it."""
        args, native = self._args, self._cublas.stream.native
        for first in range(0, len(addresses), AT_ONCE):
            part = addresses[first : first + AT_ONCE]
            args.out, args.count = self.address + 8 * first, len(part)
            args.values[: len(part)] = part
            self._launch(native)
