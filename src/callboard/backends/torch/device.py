"""``TorchDevice``: blocks of memory that are tensors, found again by their addresses."""

import ctypes
import threading
from bisect import bisect_right, insort
from itertools import count
from typing import Any

from callboard.backends.torch.stream import AcceleratorStream
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.backend import AccelDevice, AccelStream, DeviceInfo, Memory, Readback
from callboard.core.backend.machine import memory
from callboard.core.backend.workers import WorkerStream
from callboard.core.errors import ContextPoisoned, LibraryError, OutOfMemory

__all__ = ["TorchDevice"]

ALIGNMENT = 256
LARGE = 256 << 20
"""Blocks of host memory of at least this size are compared with what is free: Linux grants more than there is."""


class TorchReadback(Readback):
    """Bytes that a stream's worker copies."""

    __slots__ = ("_octets", "_taken")

    def __init__(self, octets: Tensor) -> None:
        self._octets: Any = octets
        self._taken: bytes | None = None

    def copy(self) -> None:
        self._taken = bytes(self._octets.cpu().tolist())
        self._octets = None

    def take(self) -> bytes:
        if self._taken is None:
            raise RuntimeError("the stream has not passed the copy, or the bytes have been taken")
        taken, self._taken = self._taken, None
        return taken


class TorchDevice(AccelDevice):
    """A device of PyTorch. The CPU's streams are worker threads; so are those of accelerators, over PyTorch's streams.

    An address is that of a tensor's memory, and names it: Metal gives none, so there it is a number of our own.
    """

    def __init__(self, info: DeviceInfo, kind: str) -> None:
        self.info = info
        self.kind = kind
        self.native = 0 if kind == "cpu" else info.index
        self.torch_device = torch.device(kind) if kind == "cpu" else torch.device(kind, info.index)
        self.managed: list[Memory] = []
        self.shared: list[Memory] = []
        self._ids = count()
        self._streams: list[WorkerStream] = []
        self._lock = threading.RLock()  # other threads look up; a garbage collection inside it may free
        self._starts: list[int] = []
        self._blocks: dict[int, Tensor] = {}
        self._next = 1 << 32
        self.use()

    def stream(self, priority: int = 0) -> WorkerStream:
        """A new worker thread; the priority is ignored."""
        made = WorkerStream(next(self._ids)) if self.kind == "cpu" else AcceleratorStream(next(self._ids), self)
        self._streams.append(made)
        return made

    # -- memory --------------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Memory:
        room = -(-nbytes // 16) * 16
        try:
            if self.kind == "cpu" and nbytes >= LARGE and nbytes > self.memory_info()[0] > 0:
                raise MemoryError
            block = torch.empty(room + ALIGNMENT, dtype=torch.uint8, device=self.torch_device)
        except (MemoryError, RuntimeError) as e:  # of the CPU's allocator, and of the others
            raise OutOfMemory(f"{nbytes} bytes on {self.info.uuid}; {self.memory_info()[0]} are free") from e
        skipped = 0 if self.kind == "mps" else -block.data_ptr() % ALIGNMENT
        octets = block[skipped : skipped + room]
        with self._lock:
            address = octets.data_ptr() if room and self.kind != "mps" else self._next
            if address == self._next:
                self._next += room + ALIGNMENT - room % ALIGNMENT
            insort(self._starts, address)
            self._blocks[address] = octets
        return Memory(address, nbytes, octets)

    def release(self, memory: Memory) -> None:
        with self._lock:
            if self._blocks.pop(memory.address, None) is not None:
                self._starts.remove(memory.address)
        memory.owner = None

    def block_at(self, address: int, nbytes: int) -> tuple[Tensor, int]:
        """The bytes of the block that holds this memory, and the address of the first one.

        Memory that this device did not allocate (adopted, of a resident actor, of another device) is taken as it lies.

        Raises:
            LibraryError: It is such memory, and the device is no CPU: PyTorch makes no tensor at an address there.
        """
        with self._lock:
            at = bisect_right(self._starts, address) - 1
            if at >= 0 and (start := self._starts[at]) + self._blocks[start].numel() >= address + nbytes:
                return self._blocks[start], start
        if self.kind != "cpu":
            raise LibraryError(
                f"{self.info.uuid}: memory that PyTorch's device of callboard did not allocate cannot be read on "
                f"{self.kind!r}; copy it through the host: device.put(await ref.get())",
                "torch",
            )
        return self.host_octets(address, nbytes), address

    def memory_info(self) -> tuple[int, int]:
        if self.kind == "cpu":
            return memory()
        if self.kind == "mps":
            total = torch.mps.recommended_max_memory()
            return total - torch.mps.driver_allocated_memory(), total
        free, total = getattr(torch, self.kind).mem_get_info(self.torch_device)
        return free, total

    def trim(self) -> None:
        if self.kind != "cpu":
            getattr(torch, self.kind).empty_cache()

    def register_host(self, address: int, nbytes: int) -> None:
        pass  # a copy from pageable memory is right, and slower

    def unregister_host(self, address: int) -> None:
        pass

    def host_octets(self, address: int, nbytes: int) -> Tensor:
        """Host memory as a tensor of bytes, which keeps nothing alive."""
        return torch.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype=torch.uint8)

    def read_back(self, stream: AccelStream, address: int, nbytes: int) -> TorchReadback:
        assert isinstance(stream, WorkerStream)
        block, start = self.block_at(address, nbytes)
        readback = TorchReadback(block[address - start : address - start + nbytes])
        stream.submit(readback.copy)
        return readback

    # -- the context ---------------------------------------------------------------------------------------------------

    def probe(self) -> Exception | None:
        if self.kind == "cpu":
            return None  # a process whose memory is spoilt does not live to be asked
        try:
            torch.accelerator.synchronize(self.torch_device)
        except RuntimeError as e:
            return ContextPoisoned(f"{self.info.uuid}: {e}")
        return None

    def use(self) -> None:
        if self.kind != "cpu":
            torch.accelerator.set_device_index(self.info.index)

    def close(self) -> None:
        for stream in self._streams:
            stream.close()
        self._streams.clear()
        with self._lock:
            self._blocks.clear()
            self._starts.clear()
