"""Dropout between the layers, by a custom kernel: cuDNN's draws from a state that a lost context would take along."""

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

from callboard.backends.cuda.launching import THREADS, kernel_launcher, linear_grid
from callboard.core.dtype import DType

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Dropping"]

GROUP = 4
"""Words of Philox that a thread makes at once."""


class DropArgs(ctypes.Structure):
    """``DropArgs`` of ``data/dnn_rnn.cu``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "out", "mask")),
        ("count", ctypes.c_int64),
        *((name, ctypes.c_uint64) for name in ("seed", "offset", "below")),
        ("scale", ctypes.c_double),
    )


class Dropping:
    """Dropout between two layers, forward and backward.

    Args:
        device: The device; its context is current.
        dtype: The dtype of the arrays, which have no gaps.
        count: Number of elements.
        share: Share of the elements that becomes 0.
    """

    def __init__(self, device: "CudaDevice", dtype: DType, count: int, share: float) -> None:
        self._count = count
        self._args = DropArgs(count=count, below=round(share * 2**32), scale=1 / (1 - share))

        def launcher(work: str, items: int) -> Callable[[int], None]:
            function = device.kernels.get("dnn_rnn", f"{work}_{dtype.name}")
            return kernel_launcher(device.driver, function, linear_grid(items), (THREADS, 1), self._args)

        self._drop = launcher("drop", count // GROUP + 2)
        self._passed = launcher("passed", count)

    def forward(self, stream: "CudaStream", number: int, x: int, out: int, mask: int, seed: int, offset: int) -> None:
        """Drop from the output of layer ``number``, and keep the mask."""
        args = self._args
        args.x, args.out, args.mask = x, out, mask
        args.seed, args.offset = seed, offset + number * self._count
        self._drop(stream.native)

    def backward(self, stream: "CudaStream", gradient: int, mask: int) -> None:
        """In place."""
        self._args.x = self._args.out = gradient
        self._args.mask = mask
        self._passed(stream.native)
