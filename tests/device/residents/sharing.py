"""``SharingBackend``: the CPU with memory that other processes can open, as those of a GPU can; found by entry point.

A block that is released while another process has it open is an error of the process that releases it.
"""

import ctypes
import fcntl
import mmap
import os
from typing import ClassVar, NamedTuple

from callboard.backends.cpu.device import CpuBackend, CpuDevice
from callboard.core.backend import DeviceInfo, Memory
from callboard.core.errors import OutOfMemory

__all__ = ["LIMIT", "SharingBackend", "backend"]

LIMIT = "SHARING_LIMIT"
"""Variable of the environment: bytes that a device has."""


class Mapped(NamedTuple):
    descriptor: int
    memory: mmap.mmap
    address: int


def mapped(descriptor: int, nbytes: int) -> Mapped:
    memory = mmap.mmap(descriptor, nbytes)
    exported = ctypes.c_char.from_buffer(memory)
    address = ctypes.addressof(exported)
    del exported  # the memory can be closed
    return Mapped(descriptor, memory, address)


class SharingDevice(CpuDevice):
    """Opened blocks are locked: shared by those who have opened them, exclusively by who releases one."""

    def __init__(self, info: DeviceInfo) -> None:
        super().__init__(info)
        self._attached: dict[int, Mapped] = {}
        self._left = int(os.environ.get(LIMIT, "0")) or 1 << 34

    def allocate(self, nbytes: int) -> Memory:
        size = max(nbytes, mmap.PAGESIZE)
        if size > self._left:
            raise OutOfMemory(f"{nbytes} bytes; {self._left} are free")
        self._left -= size
        descriptor = os.memfd_create(f"block-{os.getpid()}")
        os.ftruncate(descriptor, size)
        block = mapped(descriptor, size)
        return Memory(block.address, nbytes, block)

    def release(self, memory: Memory) -> None:
        block = memory.owner
        assert isinstance(block, Mapped)
        fcntl.flock(block.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        memory.owner = None
        self._left += len(block.memory)
        os.close(block.descriptor)

    def share(self, memory: Memory) -> bytes:
        block = memory.owner
        assert isinstance(block, Mapped)
        inode = os.fstat(block.descriptor).st_ino
        return f"/proc/{os.getpid()}/fd/{block.descriptor} {len(block.memory)} {inode}".encode()

    def attach(self, handle: bytes) -> int:
        path, size, inode = handle.split()
        block = mapped(os.open(path, os.O_RDWR), int(size))
        assert os.fstat(block.descriptor).st_ino == int(inode), "another block has taken its place"
        fcntl.flock(block.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self._attached[block.address] = block
        return block.address

    def detach(self, address: int) -> None:
        block = self._attached.pop(address)
        os.close(block.descriptor)
        block.memory.close()


class SharingBackend(CpuBackend):
    """Two devices."""

    name: ClassVar[str] = "sharing"
    isolation: ClassVar[str] = "process"
    shares: ClassVar[bool] = True

    def devices(self) -> list[DeviceInfo]:
        return [DeviceInfo(self.name, i, f"SHARING-{i}", "CPU", 1 << 34) for i in range(2)]

    def open(self, info: DeviceInfo) -> SharingDevice:
        return SharingDevice(info)


backend = SharingBackend()
