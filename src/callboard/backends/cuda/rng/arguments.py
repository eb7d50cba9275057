"""Arguments of the kernels in ``data/rng_*.cu``, and plans that own memory."""

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.copies import copier
from callboard.backends.cuda.launching import THREADS, kernel_launcher, linear_grid
from callboard.backends.cuda.plans import nothing
from callboard.core.layout import Layout, layout_of
from callboard.core.library import Extents

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream
    from callboard.core.backend import Memory

__all__ = ["Fill", "FillArgs", "FillPlan", "Words", "launcher"]

Fill = Callable[..., Any]
"""``fill(stream, out, seed, position, *numbers)``: enqueue it; ``out`` has no gaps."""


MOST_BLOCKS = 4096
"""The fastest number of blocks on an H200; the kernels loop over the rest."""

Words = Callable[["CudaStream", int, int, int], None]
"""``words(stream, out, seed, position)``: enqueue the words of all elements."""


class FillArgs(ctypes.Structure):
    """``FillArgs`` of the kernels."""

    _fields_ = (
        ("out", ctypes.c_void_p),
        ("words", ctypes.c_void_p),
        ("table", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("position", ctypes.c_uint64),
        ("a", ctypes.c_double),
        ("b", ctypes.c_double),
        ("top", ctypes.c_double),
        ("size", ctypes.c_int64),
        ("low", ctypes.c_uint64),
        ("span", ctypes.c_uint64),
        ("dtype", ctypes.c_int),
        ("bits", ctypes.c_int),
        ("shift", ctypes.c_int),
    )


def launcher(device: "CudaDevice", source: str, name: str, items: int, args: FillArgs) -> Callable[[int], None]:
    """``run(stream)`` of kernel ``name`` in ``data/<source>.cu`` with the current ``args``; may compile."""
    return kernel_launcher(
        device.driver, device.kernels.get(source, name), min(linear_grid(items), MOST_BLOCKS), (THREADS, 1), args
    )


class FillPlan:
    """A plan that fills one layout, with its scratch memory.

    Args:
        device: The device; its context is current.
        layout: Layout of the array.

    Attributes:
        fill: Function to be set by the maker of the plan; called with an array without gaps, of the layout's dtype and
            size.
        reach: Function to be set if a fill must be prepared for its seed and position before it is enqueued.
        captures: True if it can be recorded in a graph.
    """

    def __init__(self, device: "CudaDevice", layout: Layout) -> None:
        self.device = device
        self.fill: Fill = nothing
        self.reach: Callable[[int, int], None] = _reached
        self.captures = True
        self._memory: list[Memory] = []
        self._scatter: Callable[[int, int, int], None] | None = None
        if not layout.contiguous:
            dense = layout_of(layout.dtype, layout.shape)
            self._scatter = copier(device.driver, device.kernels, dense, layout)
            self._dense = self.allocate(dense.nbytes)

    def allocate(self, nbytes: int) -> int:
        """Device memory that lives as long as the plan."""
        memory = self.device.allocate(nbytes)
        self._memory.append(memory)
        return memory.address

    def __call__(self, stream: "CudaStream", out: int, seed: int, position: int, *numbers: Any) -> Any:
        """Enqueue it: one launch, two for an array with gaps; returns the result of ``fill``."""
        if self._scatter is None:
            return self.fill(stream, out, seed, position, *numbers)
        answer = self.fill(stream, self._dense, seed, position, *numbers)
        self._scatter(stream.native, self._dense, out)
        return answer

    def query_size(self, stream: "CudaStream", *dynamic: Any) -> Extents:
        """Prepare the fill for its seed and position; its output is given."""
        _, seed, position, *_ = dynamic
        self.reach(seed, position)
        return ()

    def close(self) -> None:
        """Free the memory; the stream has passed its users."""
        for memory in self._memory:
            self.device.release(memory)
        self._memory.clear()


def _reached(seed: int, position: int) -> None:
    """Any place can be filled from at once."""
