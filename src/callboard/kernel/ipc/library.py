"""``IpcLibrary``: base of the backends' libraries of shared memory, over :meth:`AccelDevice.exported`."""

import os
from typing import Any

from callboard.core.backend import AccelStream, Memory, Status
from callboard.core.errors import UnsupportedOp
from callboard.core.library import Library, launches, prepares
from callboard.kernel.ipc.messages import Empty, GetMemHandle, OpenMemHandle
from callboard.kernel.ipc.sharing import ExportLease, process_started

__all__ = ["IpcLibrary", "Shared"]


class Shared:
    """The owner of an allocation shared with other processes.

    Attributes:
        memory: The backend's own.
        lease: Lease that importing processes hold while they have the allocation open.
        handle: The backend's handle, once it was exported.
    """

    __slots__ = ("handle", "lease", "memory")

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.lease = ExportLease()
        self.handle: bytes | None = None


class IpcLibrary(Library):
    """Serves :mod:`callboard.kernel.ipc`; the host makes and opens the memory."""

    name = "ipc"

    @launches(Empty)
    def empty(self, stream: AccelStream, plan: Empty, out: int) -> None:
        """Do nothing: the host has allocated it."""

    @launches(OpenMemHandle)
    def open_mem_handle(self, stream: AccelStream, plan: OpenMemHandle, out: int) -> None:
        """Do nothing: the host has opened it."""

    @prepares(GetMemHandle, inline=True)
    def plan_get_mem_handle(self, op: GetMemHandle) -> GetMemHandle:
        return op

    @launches(GetMemHandle, captures=False)
    def get_mem_handle(self, stream: AccelStream, plan: GetMemHandle, x: int) -> "Exported":
        memory = self._holding(x)
        assert isinstance(memory.owner, Shared)
        if memory.owner.handle is None:
            memory.owner.handle = self.device.exported(memory)
        pid = os.getpid()
        return Exported(
            {
                "device": self.device.info.uuid,
                "generation": self.device.generation,
                "pid": pid,
                "started": process_started(pid),
                "handle": memory.owner.handle,
                "lease": memory.owner.lease.path,
                "nbytes": memory.nbytes,
                "offset": x - memory.address,
                "dtype": plan.x.dtype.name,
                "shape": list(plan.x.shape),
            }
        )

    def _holding(self, address: int) -> Memory:
        for memory in self.device.shared:
            if memory.address <= address < memory.address + max(memory.nbytes, 1):
                return memory
        raise UnsupportedOp("the array's memory cannot be shared; make it with dev.ipc.empty, and copy to it")


class Exported(Status):
    """The status of an export: the handle, available when the stream has passed the ops that write the array."""

    __slots__ = ("_handle",)

    def __init__(self, handle: dict[str, Any]) -> None:
        self._handle = handle

    def check(self, outcome: bytes) -> None:
        pass

    def answer(self) -> dict[str, Any]:
        return self._handle
