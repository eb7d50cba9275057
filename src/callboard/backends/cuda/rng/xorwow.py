"""XORWOW on the device: every lane is brought to where a fill begins, and its words become elements in registers."""

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from callboard.backends.cuda.launching import THREADS, kernel_launcher
from callboard.backends.cuda.rng.arguments import FillArgs
from callboard.kernel.rng.xorwow import JUMP, LANES, power

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream
    from callboard.core.backend import Memory

__all__ = ["Xorwow"]

ROWS = 52
"""Matrices of 1, 2, 4 ... rows: to the last one that a position can name."""
SEGMENTS = 32
"""Parts of a fill that are computed side by side, at most: enough to fill an H200."""
LEAST = 5
"""Base 2 logarithm of a part's least rows: with fewer, bringing lanes to their places takes longer than the parts."""
WARP = 32
STATE = 6 * 4
"""Bytes."""


class Xorwow:
    """State shared by all XORWOW fills: skip-ahead matrices, and the states of lanes while a fill runs.

    Args:
        device: The device; its context is current.
        stream: Stream on which matrices are copied and all fills are enqueued, one after the other.
    """

    def __init__(self, device: "CudaDevice", stream: "CudaStream") -> None:
        self._device = device
        self._stream = stream
        self._matrices: Memory | None = None
        self._states: Memory | None = None

    def fill(
        self, source: str, name: str, step: int, args: FillArgs, *, seeded: bool
    ) -> "Callable[[CudaStream, int, int, int], None]":
        """``run(stream, out, seed, position)``: enqueue a fill of ``args.count`` elements without gaps.

        Args:
            source: ``data/<source>.cu`` with the kernel.
            name: Name of the distribution in the source.
            step: Words an element.
            args: The parameters of the distribution; the rest is set here.
            seeded: True for the order ``seeded``.
        """
        device, kernels = self._device, self._device.kernels
        rows = -(-(LANES - 1 + args.count * step) // LANES)  # at most, wherever it begins
        bits = max(LEAST, (-(-rows // SEGMENTS) - 1).bit_length())
        segments = -(-rows >> bits)
        args.table, args.words = self._tables()
        args.size, args.bits, args.shift = 1 << bits, bits, seeded

        def launcher(source: str, name: str, threads: int) -> Callable[[int], None]:
            return kernel_launcher(device.driver, kernels.get(source, name), threads // THREADS, (THREADS, 1), args)

        begin = launcher("rng_words", "xorwow_begin", LANES * WARP)
        spread = launcher("rng_words", "xorwow_spread", LANES * WARP * (segments - 1)) if segments > 1 else None
        make = launcher(source, f"xorwow_{name}", segments * LANES // step)

        def run(stream: "CudaStream", out: int, seed: int, position: int) -> None:
            args.out, args.seed, args.position = out, seed, position
            begin(stream.native)
            if spread is not None:
                spread(stream.native)
            make(stream.native)

        return run

    def _tables(self) -> tuple[int, int]:
        """Addresses of the matrices and the states."""
        if self._states is None:
            self._states = self._device.allocate(SEGMENTS * LANES * STATE)
        if self._matrices is None:
            lanes = LANES.bit_length() - 1
            table = np.stack([power(i) for i in (*range(ROWS), *range(JUMP, JUMP + lanes))])
            matrices = self._device.allocate(table.nbytes)
            try:
                image = ctypes.create_string_buffer(table.tobytes(), table.nbytes)
                code = self._device.driver.memcpy_htod(
                    matrices.address, ctypes.addressof(image), table.nbytes, self._stream.native
                )
                self._device.driver.check(code, "cuMemcpyHtoDAsync")
                self._stream.synchronize()  # before the image is freed
            except BaseException:  # Ctrl-C, too: nothing else returns the memory
                self._device.release(matrices)
                raise
            self._matrices = matrices
        return self._matrices.address, self._states.address

    def close(self) -> None:
        """Release everything; nothing uses it."""
        for memory in (self._matrices, self._states):
            if memory is not None:
                self._device.release(memory)
        self._matrices = self._states = None
