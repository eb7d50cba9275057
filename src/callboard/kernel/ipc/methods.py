"""The methods of ``dev.ipc`` that take and give handles."""

from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.core.reply import Reply
from callboard.kernel.api import Api
from callboard.kernel.ipc.messages import GetMemHandle, IpcMemHandle, OpenMemHandle

__all__ = ["Methods"]


class Methods(Api[Mode]):
    """Memory shared with other processes."""

    __slots__ = ()

    covers = frozenset({"get_mem_handle", "open_mem_handle"})

    def export(self, x: GpuRef[Mode]) -> Reply[IpcMemHandle]:
        """The handle of an array for other processes; it comes when the ops that write the array are done.

        The memory lives on after the array is freed, as long as another process has it open and this context lives.

        Args:
            x: Row-major; its memory was made by :meth:`empty`.

        Raises:
            ShapeError: It has gaps.
            UnsupportedOp: It is of other memory; with the reply.
        """
        reply: Reply[IpcMemHandle] = self._submit(GetMemHandle(x=x))
        return reply

    def open(self, handle: IpcMemHandle | bytes) -> GpuRef[Mode]:
        """The array that a handle of another process names, without a copy.

        Writes of either side are visible to the other; order them by events (``dev.event``). It is closed when the ref
        and its views are freed. When the exporting context is lost, the memory is no longer valid: drop the ref, and do
        not use it.

        Args:
            handle: Handle that :meth:`export` returned, or its bytes.

        Raises:
            ValueError: The bytes are not a handle.
            TypeError: Neither.
            GpuRefStale: The exporting context is lost, or has freed it; raised by the reply.
        """
        if isinstance(handle, bytes):
            handle = IpcMemHandle.from_bytes(handle)
        if not isinstance(handle, IpcMemHandle):
            raise TypeError(f"open: handle is {type(handle).__name__}; pass an IpcMemHandle (await dev.ipc.export(x))")
        ref: GpuRef[Mode] = self._submit(OpenMemHandle(handle=handle.as_bytes().hex()))
        return ref
