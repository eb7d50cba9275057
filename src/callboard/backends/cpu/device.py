"""The CPU as a device: the process's own memory, and streams that are threads."""

import ctypes
import os
import platform
from collections.abc import Mapping as MappingOf
from collections.abc import Sequence
from functools import cache
from itertools import combinations, count

import numpy as np

from callboard.backends.cpu import blasthreads
from callboard.backends.cpu.mappings import Mapping, new_mapping, opened_mapping
from callboard.backends.cpu.marks import CpuMark, ForeignMark, SharedMark
from callboard.backends.cpu.recorded import CpuConditionals, RecordingStream
from callboard.backends.cpu.stream import CpuStream
from callboard.core.backend import AccelBackend, AccelDevice, AccelStream, DeviceInfo, Memory, Readback
from callboard.core.backend.machine import memory
from callboard.core.errors import OutOfMemory
from callboard.core.library import Library, LibraryTable
from callboard.core.links import Link
from callboard.kernel.ipc.library import Shared

__all__ = ["CpuBackend", "CpuDevice"]

ALIGNMENT = 256
LARGE = 256 << 20
"""Blocks of at least this many bytes are checked against the free memory: the kernel grants more than there is, and
ends the process when it is touched."""


LIBRARIES = LibraryTable(
    "callboard.backends.cpu",
    array="CpuArray",
    attention="CpuAttention",
    blas="CpuBlas",
    blas_lt="CpuBlasLt",
    collective="CpuCollective",
    cub="CpuCub",
    cutlass="CpuCutlass",
    dnn="CpuDnn",
    elementwise="CpuElementwise",
    engine="CpuEngine",
    event="CpuEventLibrary",
    fft="CpuFft",
    ipc="CpuIpc",
    managed="CpuManaged",
    memory="CpuMemory",
    module="CpuModule",
    nvrtc="CpuNvrtc",
    rng="CpuRng",
    solver="CpuSolver",
    sparse="CpuSparse",
    sparse_lt="CpuSparseLt",
    tensor="CpuTensor",
)


COUNT = "CALLBOARD_CPU_DEVICES"
MOST_DEVICES = 1024


class CpuBackend(AccelBackend):
    """One device, ``CPU-0``; or ``CALLBOARD_CPU_DEVICES`` devices, to try out programs for several GPUs.

    They have memory and threads of their own and are lost one by one; the cores they share.
    """

    name = "cpu"
    isolation = "thread"

    def devices(self) -> list[DeviceInfo]:
        model, total = _model(), memory()[1]
        return [DeviceInfo(self.name, index, f"CPU-{index}", model, total) for index in range(_devices())]

    def environment(self, info: DeviceInfo) -> MappingOf[str, str]:
        return blasthreads.environment()

    def libraries(self) -> MappingOf[str, type[Library]]:
        return LIBRARIES

    def links(self, infos: Sequence[DeviceInfo]) -> list[Link]:
        pairs = combinations([info.uuid for info in infos], 2)
        return [Link(one=one, other=other, kind="shared memory", direct=True) for one, other in pairs]

    def preload(self) -> None:
        list(self.libraries().values())

    def open(self, info: DeviceInfo) -> "CpuDevice":
        blasthreads.watch()
        return CpuDevice(info)


def _devices() -> int:
    wanted = os.environ.get(COUNT) or "1"
    if not wanted.isdecimal() or not 1 <= int(wanted) <= MOST_DEVICES:
        raise ValueError(f"{COUNT} is {wanted!r}; use a number from 1 to {MOST_DEVICES}")
    return int(wanted)


class CpuReadback(Readback):
    """Bytes that a stream's worker copies."""

    __slots__ = ("_address", "_nbytes", "_taken")

    def __init__(self, address: int, nbytes: int) -> None:
        self._address = address
        self._nbytes = nbytes
        self._taken: bytes | None = None

    def copy(self) -> None:
        self._taken = ctypes.string_at(self._address, self._nbytes)

    def take(self) -> bytes:
        if self._taken is None:
            raise RuntimeError("the stream has not passed the copy, or the bytes have been taken")
        taken, self._taken = self._taken, None
        return taken


class CpuDevice(AccelDevice):
    """The process's memory; any number of streams."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self._ids = count()
        self._streams: list[CpuStream] = []
        self.managed: list[Memory] = []
        self.shared: list[Memory] = []

    def stream(self, priority: int = 0) -> CpuStream:
        """A new worker thread; the priority is ignored: threads of a process are scheduled alike."""
        stream = CpuStream(next(self._ids))
        self._streams.append(stream)
        return stream

    def recording_stream(self) -> RecordingStream:
        return RecordingStream(next(self._ids))

    def conditionals(self) -> CpuConditionals:
        return CpuConditionals()

    def allocate(self, nbytes: int) -> Memory:
        try:
            if nbytes >= LARGE and nbytes > memory()[0] > 0:
                raise MemoryError
            block = np.empty(nbytes + ALIGNMENT, np.uint8)
        except MemoryError:
            raise OutOfMemory(f"{nbytes} bytes on {self.info.uuid}; {memory()[0]} are free") from None
        return Memory(-(-block.ctypes.data // ALIGNMENT) * ALIGNMENT, nbytes, block)

    def release(self, memory: Memory) -> None:
        # The owner is let go and not freed: others may hold it, as refs do whose address has been told.
        for special in (self.managed, self.shared):
            if memory in special:
                special.remove(memory)
        owner = memory.owner.memory if isinstance(memory.owner, Shared) else memory.owner
        if isinstance(owner, Mapping):
            owner.close()
        memory.owner = None

    def allocate_managed(self, nbytes: int) -> Memory:
        free = self.memory_info()[0]
        if nbytes > free:
            raise OutOfMemory(f"{nbytes:,} bytes of managed memory on {self.info.uuid}: {free:,} are free")
        block = self.allocate(nbytes)
        self.managed.append(block)
        return block

    def allocate_shared(self, nbytes: int) -> Memory:
        mapping = new_mapping(nbytes)
        memory = Memory(mapping.address, nbytes, Shared(mapping))
        self.shared.append(memory)
        return memory

    def exported(self, memory: Memory) -> bytes:
        assert isinstance(memory.owner, Shared)
        return memory.owner.memory.path.encode()  # type: ignore[no-any-return]

    def open_shared(self, handle: bytes, nbytes: int) -> Memory:
        mapping = opened_mapping(handle.decode(), nbytes)
        return Memory(mapping.address, nbytes, mapping)

    def event(self, *, timing: bool, blocking: bool, interprocess: bool) -> CpuMark:
        return SharedMark() if interprocess else CpuMark()

    def open_event(self, handle: bytes) -> ForeignMark:
        return ForeignMark(handle)

    def memory_info(self) -> tuple[int, int]:
        return memory()

    def trim(self) -> None:
        pass  # released blocks have gone back to the allocator already, and no package keeps a pool of its own

    def register_host(self, address: int, nbytes: int) -> None:
        pass  # copies from host memory are plain memory copies

    def unregister_host(self, address: int) -> None:
        pass

    def read_back(self, stream: AccelStream, address: int, nbytes: int) -> CpuReadback:
        if not isinstance(stream, CpuStream):
            raise TypeError(f"stream is {type(stream).__name__}; a CPU device reads back on its own streams")
        readback = CpuReadback(address, nbytes)
        stream.submit(readback.copy)
        return readback

    def probe(self) -> Exception | None:
        return None  # a process whose memory is spoilt does not live to be asked

    def use(self) -> None:
        pass  # memory and streams are the same from every thread

    def close(self) -> None:
        for stream in self._streams:
            stream.close()
        self._streams.clear()
        for block in (*self.managed, *self.shared):
            self.release(block)


@cache
def _model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
