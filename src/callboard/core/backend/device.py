"""``AccelDevice``: an open device, which makes streams, events and blocks of memory."""

import abc
from typing import Any, ClassVar

import msgspec

from callboard.core.backend.events import UserEvent
from callboard.core.backend.memory import Memory, Readback
from callboard.core.backend.streams import AccelStream
from callboard.core.errors import UnsupportedOp

__all__ = ["AccelDevice", "DeviceInfo"]


class DeviceInfo(msgspec.Struct, frozen=True, array_like=True):
    """A device as its backend lists it, before anything is opened.

    Attributes:
        backend: Name of the backend.
        index: Position in the backend's list.
        uuid: Identity, stable across processes and renumbering (``"GPU-…"``, ``"MIG-…"``, ``"CPU-…"``).
        name: Product name (``"NVIDIA H200"``).
        total_bytes: Memory, 0 if unknown.
        compute_capability: ``(major, minor)``; ``(0, 0)`` on a CPU.
    """

    backend: str
    index: int
    uuid: str
    name: str
    total_bytes: int
    compute_capability: tuple[int, int] = (0, 0)


class AccelDevice(abc.ABC):
    """An open device: context, memory and streams.

    Attributes:
        info: The description by its backend.
        native: Ordinal of the device among those visible to this process.
        non_blocking_thread: Id of the thread that must not block now, set by the host; 0: none.
        branches: Work of several streams can be recorded in one graph, in which it stays concurrent.
        generation: Of the context, set by the host; 0 before there is one.
        managed, shared: Memory of :meth:`allocate_managed` and :meth:`allocate_shared` that was not released yet.
    """

    info: DeviceInfo
    native: int = 0
    non_blocking_thread: int = 0
    branches: ClassVar[bool] = False
    generation: int = 0
    managed: list[Memory]
    shared: list[Memory]

    def recording_stream(self) -> AccelStream | None:
        """A stream for :meth:`AccelStream.capture` only, of any library's launches; None: this device records none.

        Where graphs have ``branches``, a stream that waits for an event of one that is captured is captured with it,
        until that waits for an event of this one.
        """
        return None

    def conditionals(self) -> Any:
        """Its :class:`Conditionals <callboard.kernel.conditional.Conditionals>`; None: this device records none."""

    @abc.abstractmethod
    def stream(self, priority: int = 0) -> AccelStream:
        """A new stream; ``priority`` -1 is low, 0 normal, 1 high (a hint)."""

    @abc.abstractmethod
    def allocate(self, nbytes: int) -> Memory:
        """A block straight from the driver (pooling is the caller's).

        Raises:
            OutOfMemory
        """

    @abc.abstractmethod
    def release(self, memory: Memory) -> None:
        """Give a block back; nothing uses it any more."""

    def event(self, *, timing: bool, blocking: bool, interprocess: bool) -> UserEvent:
        """A new event for a caller.

        Args:
            timing: Keep the time at which the event is reached.
            blocking: Threads that wait for it in the driver sleep.
            interprocess: Other processes can open it; without ``timing``.

        Raises:
            UnsupportedOp: There are none here.
            AccelError
        """
        raise UnsupportedOp(f"{type(self).__name__} has no events for callers")

    def open_event(self, handle: bytes) -> UserEvent:
        """An event that another process has exported.

        Raises:
            UnsupportedOp: There are none here.
            AccelError: It cannot be opened.
        """
        raise UnsupportedOp(f"{type(self).__name__} has no events for callers")

    def allocate_managed(self, nbytes: int) -> Memory:
        """Memory that device and host both reach, and that moves between them by pages.

        Raises:
            OutOfMemory: More than is free on the device.
            UnsupportedOp: There is none here.
        """
        raise UnsupportedOp(f"{type(self).__name__} has no managed memory")

    def allocate_shared(self, nbytes: int) -> Memory:
        """Memory that other processes can open, with the handle of :meth:`exported`.

        Raises:
            OutOfMemory
            UnsupportedOp: There is none here.
        """
        raise UnsupportedOp(f"{type(self).__name__} shares no memory")

    def open_shared(self, handle: bytes, nbytes: int) -> Memory:
        """Memory that another process exports.

        Raises:
            AccelError: It cannot be opened.
        """
        raise UnsupportedOp(f"{type(self).__name__} shares no memory")

    def exported(self, memory: Memory) -> bytes:
        """The handle by which another process opens memory of :meth:`allocate_shared`.

        Raises:
            AccelError
        """
        raise UnsupportedOp(f"{type(self).__name__} shares no memory")

    def share(self, memory: Memory) -> bytes:
        """The handle by which another process opens a block; all have closed it before it is released.

        Raises:
            UnsupportedOp: This memory cannot be shared.
            AccelError
        """
        raise UnsupportedOp(f"{type(self).__name__} shares no memory")

    def attach(self, handle: bytes) -> int:
        """Open a block that another process has shared; gives its address here. Once per handle.

        Raises:
            AccelError: It cannot be opened.
        """
        raise UnsupportedOp(f"{type(self).__name__} shares no memory")

    def detach(self, address: int) -> None:
        """Close memory opened by :meth:`attach`; it is unused."""
        raise UnsupportedOp(f"{type(self).__name__} shares no memory")

    @abc.abstractmethod
    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes of the device, other processes' use included."""

    @abc.abstractmethod
    def trim(self) -> None:
        """Give the caches of all loaded packages (CuPy's pool, torch's) back to the driver."""

    @abc.abstractmethod
    def register_host(self, address: int, nbytes: int) -> None:
        """Page-lock a region of host memory, so that copies run at the speed of the link."""

    @abc.abstractmethod
    def unregister_host(self, address: int) -> None:
        """Undo :meth:`register_host`."""

    @abc.abstractmethod
    def read_back(self, stream: AccelStream, address: int, nbytes: int) -> Readback:
        """Copy up to 64 bytes to the host, behind the stream's work so far."""

    @abc.abstractmethod
    def probe(self) -> Exception | None:
        """Wait for the device and report whether the context is dead. Any thread.

        Returns:
            The sticky error as :class:`ContextPoisoned` (or :class:`Unrecoverable`), None if the context is well.
        """

    @abc.abstractmethod
    def use(self) -> None:
        """Make the context current on the calling thread (of the host's helper or a resident actor)."""

    def enter(self) -> None:
        """Make the context current on a thread that callboard did not start, until :meth:`leave`."""
        self.use()

    def leave(self) -> None:
        """Restore the context that was current on the calling thread before :meth:`enter`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Destroy the context. All work is done; never called on a poisoned one."""
