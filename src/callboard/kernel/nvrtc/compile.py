"""``Compile`` and ``Inspect``: the compiled form of a source, and the resource usage of a kernel."""

from typing import Literal, NamedTuple

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import BoundedExtent, layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import Out
from callboard.core.ref import GpuRef
from callboard.kernel.nvrtc.actor import NvrtcActor
from callboard.kernel.nvrtc.source import Source

__all__ = ["INSPECTED", "MAX_IMAGE", "Compile", "Inspect", "KernelAttributes", "Occupancy", "inspected"]

MAX_IMAGE = 1 << 30
"""Bytes of a compiled source."""


class Compile(Op[NvrtcActor, GpuRef], tag="nvrtc.compile"):
    """Compile a source; answers a :class:`~callboard.kernel.nvrtc.source.Compiled`, encoded.

    Compiles on a separate thread; other ops continue, and several sources are compiled at once. ``dev.nvrtc.compile``
    decodes the answer.

    Args:
        source: The text and how it is compiled.
        form: ``"binary"``: the form that this device loads; ``"ptx"``; or ``"ltoir"``.
        out: Left out: a new array of u8.
    """

    source: Source
    form: Literal["binary", "ptx", "ltoir"] = "binary"
    out: Out | None = None

    def infer(self) -> Outputs:
        if self.out is not None:
            raise ShapeError("nvrtc.compile: out is given, but only the compiler determines its length: leave it out")
        return {"out": layout_of(DTYPES["u8"], (BoundedExtent(MAX_IMAGE),))}


class KernelAttributes(NamedTuple):
    """The resource usage of a compiled kernel.

    Attributes:
        max_threads: Threads that a block may have.
        shared_bytes: Shared memory of a block that the kernel declares itself.
        const_bytes: Constant memory.
        local_bytes: Local memory of a thread: registers that were spilled, and arrays.
        registers: Registers of a thread.
        ptx_version: Architecture of the PTX that it was compiled from, 90 for 9.0.
        binary_version: Architecture of the binary.
        max_dynamic_shared_bytes: Dynamic shared memory that a block may ask for now.
    """

    max_threads: int
    shared_bytes: int
    const_bytes: int
    local_bytes: int
    registers: int
    ptx_version: int
    binary_version: int
    max_dynamic_shared_bytes: int


class Occupancy(NamedTuple):
    """The occupancy of the device with blocks of one size.

    Attributes:
        blocks: Blocks that are resident on a multiprocessor at once.
        multiprocessors: Multiprocessors of the device.
        occupancy: Part of the threads that a multiprocessor can hold, 0 to 1.
        suggested_block: Threads of a block that give the highest occupancy.
        suggested_grid: Blocks of that size that fill the device.
    """

    blocks: int
    multiprocessors: int
    occupancy: float
    suggested_block: int
    suggested_grid: int


INSPECTED = len(KernelAttributes._fields) + 6
"""Numbers that :class:`Inspect` answers."""


class Inspected(Op[NvrtcActor, GpuRef]):
    """Attributes of a kernel, and how well blocks of one size fill the device, as i64 numbers.

    Args:
        source: The text and how it is compiled.
        name: Name of the kernel.
        threads: Threads of a block.
        shared: Bytes of dynamic shared memory of a block.
        out: i64; a new array when None.
    """

    name: str
    threads: int = 256
    shared: int = 0
    out: Out | None = None

    def infer(self) -> Outputs:
        return {"out": layout_of(DTYPES["i64"], (INSPECTED,))}


class Inspect(Inspected, tag="nvrtc.inspect"):
    """Attributes of a kernel, and how well blocks of one size fill the device, as i64 numbers.

    Args:
        source: The text and how it is compiled.
        name: Name of the kernel.
        threads: Threads of a block.
        shared: Bytes of dynamic shared memory of a block.
        out: i64; a new array when None.
    """

    source: Source


def inspected(numbers: list[int]) -> tuple[KernelAttributes, Occupancy]:
    """Decode the numbers of :class:`Inspect`."""
    count = len(KernelAttributes._fields)
    blocks, multiprocessors, threads, most, block, grid = numbers[count:]
    return KernelAttributes(*numbers[:count]), Occupancy(blocks, multiprocessors, blocks * threads / most, block, grid)
