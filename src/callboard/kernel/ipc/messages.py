"""The messages of shared memory."""

from typing import Any, ClassVar

import msgspec

from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.layout import layout_of
from callboard.core.op import Op, Origin, Outputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.ipc.actor import IpcActor

__all__ = ["Empty", "GetMemHandle", "IpcMemHandle", "OpenMemHandle"]


class IpcMemHandle(msgspec.Struct, frozen=True, kw_only=True):
    """Names an array for other processes of this machine (``dev.ipc.open``). Send it as bytes.

    Attributes:
        device: UUID of the device.
        generation: Generation of the context that owns it. After that context is lost, opening the handle fails.
        pid, started: The process of the context, and when it was started (clock ticks since boot; 0 if unknown).
        handle: The backend's own handle of the allocation.
        lease: Path of the lease file that importers lock while they have the allocation open.
        nbytes, offset: Bytes of the allocation, and offset of the array in it.
        dtype, shape: The dtype and shape of the array, which is row-major.
    """

    device: str
    generation: int
    pid: int
    started: int
    handle: bytes
    lease: str
    nbytes: int
    offset: int
    dtype: str
    shape: tuple[int, ...]

    def as_bytes(self) -> bytes:
        """To send to another process."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def from_bytes(data: bytes) -> "IpcMemHandle":
        """The inverse of :meth:`as_bytes`.

        Raises:
            ValueError: The bytes are not a handle.
        """
        try:
            handle = msgspec.msgpack.decode(data, type=IpcMemHandle)
            if not 0 <= handle.offset <= handle.offset + handle.nbytes_of_array <= handle.nbytes:
                raise ValueError("the array is not inside the allocation")
        except (msgspec.DecodeError, ValueError, TypeError) as e:
            raise ValueError(f"these {len(data)} bytes are not an IpcMemHandle: {e}") from e
        return handle

    @property
    def nbytes_of_array(self) -> int:
        """Bytes of the array."""
        return layout_of(as_dtype(self.dtype), self.shape).nbytes


class Empty(Op[IpcActor, GpuRef], tag="ipc.empty"):
    """A new array that other processes can open, not initialised.

    Args:
        shape: Extents, each >= 0.
        dtype: The dtype of the elements.
        out: Left None.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"out"})

    shape: tuple[int, ...]
    dtype: DTypeLike = "f32"
    out: Out | None = None

    @property
    def memory(self) -> Origin | None:
        return "shared"

    def infer(self) -> Outputs:
        if any(n < 0 for n in self.shape):
            raise ShapeError(f"ipc.empty: shape {self.shape}: extents are >= 0")
        if self.out is not None:
            raise ShapeError("ipc.empty: out is given; it makes a new array")
        return {"out": layout_of(as_dtype(self.dtype), self.shape)}


class GetMemHandle(Op[IpcActor, IpcMemHandle], tag="ipc.get_mem_handle"):
    """The handle by which another process opens an array.

    It is available when the ops that write the array have finished.

    Args:
        x: Row-major; :class:`Empty` has made its memory.
    """

    returns: ClassVar[tuple[str, ...]] = ()
    answers: ClassVar[Any] = IpcMemHandle

    x: In

    def infer(self) -> Outputs:
        if not self.x.layout.contiguous:
            raise ShapeError(f"ipc.get_mem_handle: x is {self.x.layout!r}; it must be contiguous")
        return {}


class OpenMemHandle(Op[IpcActor, GpuRef], tag="ipc.open_mem_handle"):
    """An array that another process has exported.

    Args:
        handle: An :class:`IpcMemHandle`, as its bytes in hexadecimal.
        out: Left None.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"out"})

    handle: str
    out: Out | None = None

    @property
    def memory(self) -> Origin | None:
        return "opened"

    def infer(self) -> Outputs:
        if self.out is not None:
            raise ShapeError("ipc.open_mem_handle: out is given; it names an array of another process")
        try:
            handle = IpcMemHandle.from_bytes(bytes.fromhex(self.handle))
        except ValueError as e:
            raise ShapeError(f"ipc.open_mem_handle: {e}") from None
        return {"out": layout_of(as_dtype(handle.dtype), handle.shape)}
