"""Plans that enqueue work in the workspace of their library: their memory, their outcome, their call.

A plan takes spans of the workspace while it is made, and they are laid out once all sizes are known.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.backends.cuda.copies import copier
from callboard.backends.cuda.readback import CudaStatus
from callboard.backends.cuda.workspace import HasWorkspace, Room
from callboard.core.layout import Layout, layout_of

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Outcome", "PlanMemory", "Span", "Work", "nothing"]

ALIGNMENT = 256
Bring = Callable[[int, int], int]
"""``bring(stream, at)``: enqueue a row-major copy if needed, and return the row-major address."""


def nothing(*arguments: Any) -> None:
    """Enqueue nothing: there are no elements."""


class Span:
    """Device memory as ``cuda.compute`` takes it.

    Attributes:
        ptr: Address of the memory; set before each launch, or when the plan's memory is laid out.
        dtype: The dtype of its elements.
        nbytes: Size in bytes, if it is part of the plan's memory.
    """

    __slots__ = ("dtype", "nbytes", "ptr")

    def __init__(self, dtype: Any, nbytes: int = 0) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.nbytes = nbytes
        self.ptr = ALIGNMENT  # builds take a null pointer for a missing array (cuda-cccl 1.2.1)

    def data_ptr(self) -> int:
        """The address; the first thing that ``cuda.compute`` asks an array for."""
        return self.ptr

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.nbytes // self.dtype.itemsize,),
            "typestr": self.dtype.str,
            "data": (self.ptr, False),
            "strides": None,
            "version": 3,
        }


class PlanMemory:
    """Spans of a library's workspace for one plan; their contents last for one call.

    Args:
        library: The library, whose ops follow each other on one stream.
    """

    def __init__(self, library: HasWorkspace) -> None:
        self.device = library.device
        self._workspace = library.workspace
        self._spans: list[tuple[int, Span]] = []
        self._nbytes = 0
        self._room: Room | None = None

    def take(self, nbytes: int, dtype: Any = np.uint8) -> Span:
        """Reserve ``nbytes`` bytes; the span has an address after :meth:`settle`."""
        span = Span(dtype, nbytes)
        self._spans.append((self._nbytes, span))
        self._nbytes += -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        return span

    def take_items(self, count: int, dtype: Any) -> Span:
        """Reserve ``count`` elements."""
        return self.take(count * np.dtype(dtype).itemsize, dtype)

    def brought(self, layout: Layout) -> Bring:
        """Return the step that makes an operand row-major: a copy if it is not."""
        if layout.contiguous:
            return lambda native, at: at
        span = self.take(layout.nbytes)
        copy = copier(self.device.driver, self.device.kernels, layout, layout_of(layout.dtype, layout.shape))

        def bring(native: int, at: int) -> int:
            copy(native, at, span.ptr)
            return span.ptr

        return bring

    def delivered(self, layout: Layout) -> "Delivery":
        """Return the delivery of a result: a row-major buffer, and the copy to its final location."""
        return Delivery(self, layout)

    def work(self, run: Callable[..., Any], outcome: "Outcome | None" = None) -> "Work":
        """Lay out the spans, and return the plan ``run(native stream, *dynamic)``; an outcome is its status.

        Raises:
            OutOfMemory
        """
        return Work(self, run, outcome)

    def settle(self) -> None:
        """Lay out the spans.

        Raises:
            OutOfMemory
        """
        if not self._nbytes:
            return
        self._room = self._workspace.lease(self._nbytes)
        for offset, span in self._spans:
            span.ptr = self._room.memory.address + offset

    def close(self) -> None:
        """Release it; nothing uses it any more."""
        if self._room is not None:
            room, self._room = self._room, None
            self._workspace.leave(room)


class Delivery:
    """A result on its way to an array of any strides."""

    def __init__(self, memory: PlanMemory, layout: Layout) -> None:
        self._span = None if layout.contiguous else memory.take(layout.nbytes)
        device, dense = memory.device, layout_of(layout.dtype, layout.shape)
        self._copy = None if layout.contiguous else copier(device.driver, device.kernels, dense, layout)
        self._fetch = None if layout.contiguous else copier(device.driver, device.kernels, layout, dense)

    def target(self, at: int) -> int:
        """The row-major address to write to."""
        return at if self._span is None else self._span.ptr

    def kept(self, native: int, at: int) -> int:
        """The same, if only a part is written: the rest keeps the contents of the array."""
        if self._fetch is not None and self._span is not None:
            self._fetch(native, at, self._span.ptr)
        return self.target(at)

    def finish(self, native: int, at: int) -> None:
        """Enqueue the copy to its place, if there is one."""
        if self._copy is not None and self._span is not None:
            self._copy(native, self._span.ptr, at)


class Outcome:
    """Words on the device that the kernels of a plan write: zeros before each launch, a status after it.

    Args:
        device: The device.
        nbytes: Size of the words.
        check: Raises the error for the words.
    """

    def __init__(self, device: "CudaDevice", nbytes: int, check: Callable[[bytes], object]) -> None:
        self._device, self._nbytes = device, nbytes
        self._memory = device.allocate(nbytes)
        self.address = self._memory.address
        self.status = CudaStatus(self.address, nbytes, check)

    def clear(self, native: int) -> None:
        """Enqueue that nothing is wrong."""
        driver = self._device.driver
        driver.check(driver.memset_8(self.address, 0, self._nbytes, native), "cuMemsetD8Async")

    def close(self) -> None:
        """Release it."""
        self._device.release(self._memory)


class Work:
    """A plan: ``run(native stream, *dynamic)`` in the memory of the plan.

    Its work is enqueued in sequence on the stream of the launch, and can be recorded in a graph: the memory keeps its
    address until the plan is closed.
    """

    def __init__(self, memory: PlanMemory, run: Callable[..., Any], outcome: Outcome | None) -> None:
        memory.settle()
        self._memory, self._run, self._outcome = memory, run, outcome

    def __call__(self, stream: "CudaStream", *dynamic: Any) -> CudaStatus | None:
        """Enqueue it."""
        if self._outcome is None:
            self._run(stream.native, *dynamic)
            return None
        self._outcome.clear(stream.native)
        self._run(stream.native, *dynamic)
        return self._outcome.status

    def close(self) -> None:
        """Free the memory; nothing uses it any more."""
        self._memory.close()
        if self._outcome is not None:
            self._outcome.close()
