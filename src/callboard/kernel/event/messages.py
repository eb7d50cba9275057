"""The messages of events. The application numbers them; the host has an event of the backend's for each number."""

from typing import Any, ClassVar

import msgspec

from callboard.core.op import Fence, Op, Outputs
from callboard.core.operand import In, InOut, Whole
from callboard.kernel.event.actor import EventActor

__all__ = ["Destroy", "Elapsed", "GetIpcHandle", "IpcEventHandle", "OpenIpcHandle", "Record", "Wait"]


class IpcEventHandle(msgspec.Struct, frozen=True, kw_only=True):
    """Names an event for other processes of this machine (``dev.event.open``). Send it as bytes.

    Attributes:
        device: UUID of the device.
        generation: Generation of the context that owns it. After that context is lost, opening the handle fails.
        pid, started: The process of the context, and when it was started (clock ticks since boot; 0 if unknown).
        handle: The backend's own handle.
    """

    device: str
    generation: int
    pid: int
    started: int
    handle: bytes

    def as_bytes(self) -> bytes:
        """To send to another process."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def from_bytes(data: bytes) -> "IpcEventHandle":
        """The inverse of :meth:`as_bytes`.

        Raises:
            ValueError: The bytes are not a handle.
        """
        try:
            return msgspec.msgpack.decode(data, type=IpcEventHandle)
        except msgspec.DecodeError as e:
            raise ValueError(f"these {len(data)} bytes are not an IpcEventHandle: {e}") from e


class Record(Op[EventActor, None], tag="event.record"):
    """Have the event stand for ops called before: it is reached when they are done.

    Args:
        event: Number of the event; one that has been recorded stands for this call from now on.
        after: The ops that write these arrays; all ops called before if it is empty.
        barrier: Ops called later begin when it is reached, too; ``after`` is empty.
        timing: The event keeps the time at which it is reached.
        blocking: Threads that wait for it in the driver sleep instead of spinning.
        interprocess: Other processes can open it; without ``timing``.
    """

    returns: ClassVar[tuple[str, ...]] = ()

    event: Whole
    after: tuple[In, ...] = ()
    barrier: bool = False
    timing: bool = True
    blocking: bool = False
    interprocess: bool = False

    @property
    def fence(self) -> Fence | None:
        return "between" if self.barrier else None if self.after else "behind"

    def infer(self) -> Outputs:
        return {}


class Wait(Op[EventActor, Any], tag="event.wait"):
    """Have ops called later begin when the event is reached.

    Args:
        event: Number of a recorded or opened event.
        before: Ops that use these arrays; all ops called later if it is empty.
    """

    returns: ClassVar[tuple[str, ...]] = ("before",)

    event: Whole
    before: tuple[InOut, ...] = ()

    @property
    def fence(self) -> Fence | None:
        return None if self.before else "between"

    def infer(self) -> Outputs:
        return {}


class Elapsed(Op[EventActor, float], tag="event.elapsed"):
    """Seconds on the device's clock between two recorded events; negative where ``end`` was reached first.

    Args:
        start, end: Numbers of events with ``timing``.
    """

    returns: ClassVar[tuple[str, ...]] = ()
    answers: ClassVar[Any] = float

    start: Whole
    end: Whole

    def infer(self) -> Outputs:
        return {}


class GetIpcHandle(Op[EventActor, IpcEventHandle], tag="event.get_ipc_handle"):
    """The handle by which another process opens the event, which must have been recorded.

    Args:
        event: Number of an event made with ``interprocess``.
    """

    returns: ClassVar[tuple[str, ...]] = ()
    answers: ClassVar[Any] = IpcEventHandle

    event: Whole

    @property
    def fence(self) -> Fence | None:
        return "aside"  # the other process is to have the handle before the event is reached

    def infer(self) -> Outputs:
        return {}


class OpenIpcHandle(Op[EventActor, None], tag="event.open_ipc_handle"):
    """Open an event of another process under a number.

    Args:
        event: The number.
        handle: An :class:`IpcEventHandle`, as its bytes in hexadecimal.
    """

    returns: ClassVar[tuple[str, ...]] = ()

    event: Whole
    handle: str

    def infer(self) -> Outputs:
        return {}


class Destroy(Op[EventActor, None], tag="event.destroy"):
    """Destroy an event; does nothing if no event has this number.

    Args:
        event: The number.
    """

    returns: ClassVar[tuple[str, ...]] = ()

    event: Whole

    def infer(self) -> Outputs:
        return {}
