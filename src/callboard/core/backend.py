"""The backend boundary: the operations that an accelerator has to implement.

A backend is found by entry point, enumerates devices without touching them, and opens one inside a context host, on the
host's one admitting thread. From then on that thread makes every call here, except :meth:`AccelDevice.probe` and
prepares, which may run on the host's helper thread.

Asynchrony is real on every backend: ``launch``, ``record`` and ``wait`` return before the work is done; only ``query``,
``synchronize`` and ``probe`` look at results. Errors are of :mod:`callboard.core.errors`; no vendor exception leaves a
backend.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from callboard.core.errors import AccelError, UnsupportedOp
from callboard.core.library import Library
from callboard.core.links import Link

__all__ = [
    "AccelBackend",
    "AccelDevice",
    "AccelEvent",
    "AccelGraph",
    "AccelStream",
    "DeviceInfo",
    "Memory",
    "Readback",
    "Replayed",
    "Status",
    "UserEvent",
]


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


class AccelBackend(abc.ABC):
    """A kind of accelerator."""

    name: ClassVar[str]
    """``"cpu"``, ``"cuda"``."""

    isolation: ClassVar[str]
    """The default isolation of its context: ``"process"`` or ``"thread"``."""

    completion: ClassVar[str] = "host_fn"
    """The default completion mode of its host; ``"polled"`` if querying an event is cheap and takes no core from the
    work."""

    shares: ClassVar[bool] = False
    """True if other processes can open the memory of its devices: :meth:`AccelDevice.share`, :meth:`AccelDevice.attach`
    and :meth:`AccelDevice.detach` are there."""

    @abc.abstractmethod
    def devices(self) -> list[DeviceInfo]:
        """All devices, without opening one and without loading the driver library into this process.

        Raises:
            BackendUnavailable: None can be used; the text says why and what to install.
        """

    @abc.abstractmethod
    def environment(self, info: DeviceInfo) -> Mapping[str, str]:
        """Environment of a child process that is to see this device only."""

    def links(self, infos: "Sequence[DeviceInfo]") -> list[Link]:
        """The links between these devices, each pair once, without pairs that have no link. Opens no device."""
        return []

    @abc.abstractmethod
    def libraries(self) -> Mapping[str, type[Library]]:
        """The :class:`Library` class of each compute library, by its name; importing them loads no vendor package."""

    @abc.abstractmethod
    def preload(self) -> None:
        """Import the dependencies of :meth:`open`, without creating a context (a warm standby does this ahead of time).

        Raises:
            BackendUnavailable: A package or the driver is missing.
        """

    @abc.abstractmethod
    def open(self, info: DeviceInfo) -> "AccelDevice":
        """Create the context; it becomes current on the calling thread.

        Raises:
            BackendUnavailable, OutOfMemory, DriverError
        """


class Memory:
    """A block of device memory.

    Attributes:
        address: Of its first byte, a multiple of 256.
        nbytes: Its size.
        owner: Whatever the backend needs to keep it.
        on_host: The host reads and writes it by the same address.
    """

    __slots__ = ("address", "nbytes", "on_host", "owner")

    def __init__(self, address: int, nbytes: int, owner: object = None, on_host: bool = False) -> None:
        self.address = address
        self.nbytes = nbytes
        self.owner = owner
        self.on_host = on_host


class AccelEvent(abc.ABC):
    """A point in a stream."""

    @abc.abstractmethod
    def query(self) -> bool:
        """True if the stream has reached it.

        Raises:
            AccelError: The work before it failed: :class:`ContextPoisoned` for a sticky error.
        """

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Block until the stream has reached it, without holding the GIL; raises as :meth:`query`."""


class Status(abc.ABC):
    """The result status of a launch whose op can fail by itself: a singular matrix, a bad index.

    A device leaves the outcome in memory that belongs to the plan. The launching code copies it to the host behind the
    launch, and behind every replay where the launch was recorded in a graph, and gives :meth:`check` the copy: so each
    launch and each replay has an outcome of its own. As long as the status is held, so is what the work needs.

    Attributes:
        address, nbytes: Where the outcome is, at most 64 bytes; 0 bytes where it is not in device memory (CPU).
    """

    __slots__ = ()

    address: int = 0
    nbytes: int = 0

    @abc.abstractmethod
    def check(self, outcome: bytes) -> None:
        """Raise the op's own failure, by a copy of the outcome; on the admitting thread."""

    def answer(self) -> Any:
        """The answer of an op whose class :attr:`answers <callboard.core.op.Op.answers>`; after :meth:`check`.

        MessagePack carries it.
        """
        raise NotImplementedError(f"{type(self).__name__} finds nothing out")


class UserEvent(abc.ABC):
    """An event that callers record, wait for and measure by; those of the host are :class:`AccelEvent`.

    Attributes:
        pins: Measurements in flight that use it: it is neither recorded again nor closed.
    """

    __slots__ = ("pins",)

    def __init__(self) -> None:
        self.pins = 0

    @abc.abstractmethod
    def record(self, stream: "AccelStream") -> None:
        """Record the event behind all work enqueued on the stream so far."""

    @abc.abstractmethod
    def block(self, stream: "AccelStream") -> None:
        """Make work enqueued on the stream from now on wait for the last record of this event."""

    @abc.abstractmethod
    def since(self, start: "UserEvent") -> float:
        """Seconds of the device's clock from ``start`` to this event; both have been reached."""

    @abc.abstractmethod
    def export(self) -> bytes:
        """The handle by which another process opens it.

        Raises:
            UnsupportedOp: It was not made for that.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Destroy the event; nothing waits for it any more."""


class Replayed(abc.ABC):
    """The outcome of one launch of a graph, where its work reports that on the host."""

    __slots__ = ()

    @abc.abstractmethod
    def failures(self) -> Sequence[tuple[Status, AccelError]]:
        """The failures, in order: the status that the recorded launch returned, and the failure of this launch."""


class AccelGraph(abc.ABC):
    """Work recorded from a stream, to be enqueued again as a whole. Memory that it uses must outlive it."""

    @abc.abstractmethod
    def launch(self, stream: "AccelStream") -> Replayed | None:
        """Enqueue all of it.

        Returns:
            The outcome, valid once the stream has passed the graph; None where the recorded statuses hold it, each as
            a copy.
        """

    def upload(self, stream: "AccelStream") -> None:
        """Bring it to the device, so that its first launch takes no longer than the others."""

    def describe(self) -> "list[str]":
        """The nodes of the graph on the device, in order of creation: kinds, and names of kernels."""
        return []

    @abc.abstractmethod
    def close(self) -> None:
        """Destroy the graph; it does not run any more."""


class AccelStream(abc.ABC):
    """A queue of work, executed in order; different streams run concurrently.

    Attributes:
        id: Small number, unique in the device.
        native: The vendor's handle, 0 where there is none.
    """

    id: int
    native: int

    @abc.abstractmethod
    def record(self) -> AccelEvent:
        """An event behind all work enqueued so far."""

    @abc.abstractmethod
    def query(self) -> bool:
        """True if all work enqueued so far is done: cheaper than an event if nothing has been enqueued after it.

        Raises:
            AccelError: As :meth:`AccelEvent.query`.
        """

    @abc.abstractmethod
    def recycle(self, event: AccelEvent) -> None:
        """Reuse an event of :meth:`record` that will not be queried again."""

    @abc.abstractmethod
    def wait(self, event: AccelEvent) -> None:
        """Make work enqueued from now on wait for an event of any stream."""

    def follow(self, native: int) -> None:
        """Make work enqueued from now on wait for the present work of a foreign stream, given its native handle.

        Does nothing where there are no such streams.
        """

    @property
    def waited(self) -> "AccelStream":
        """The stream for a thread that waits for each of its ops: this stream, or one that executes at once.

        Only one thread may use it, and no other may use this stream meanwhile.
        """
        return self

    def capture(self, enqueue: Callable[[], None], into: AccelGraph | None = None) -> AccelGraph:
        """Record the work ``enqueue`` puts on this stream instead of running it.

        Args:
            enqueue: Enqueues the work.
            into: A graph of this device that need not be launched any more as it is. Where it is alike but for
                addresses and numbers, it takes the recording, which costs less than a graph.

        Returns:
            ``into``, if it has taken the recording; what has been launched of it is not changed. Or a new graph.

        Raises:
            UnsupportedOp: This backend records nothing.
            AccelError: Something in it cannot be recorded.
        """
        raise UnsupportedOp(f"{type(self).__name__} records no graphs")

    @abc.abstractmethod
    def signal(self, semaphore: int) -> bool:
        """Post the ``sem_t`` at this address when the work enqueued so far is done, without the GIL.

        A stream with a sticky error may never post it, so a waiter also polls events from time to time.

        Returns:
            Whether this backend can do it.
        """

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Block until all its work is done, without holding the GIL; raises as :meth:`AccelEvent.query`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Destroy the stream, whose work is done."""


class Readback(abc.ABC):
    """A few bytes on their way to the host, behind the work enqueued so far."""

    @abc.abstractmethod
    def take(self) -> bytes:
        """The bytes; valid once the stream has passed the copy. Called once."""


class AccelDevice(abc.ABC):
    """An open device: context, memory and streams.

    Attributes:
        info: The description by its backend.
        native: Ordinal of the device among those visible to this process.
        hurried: Id of the thread that must not block now, set by the host; 0: none.
        branches: Work of several streams can be recorded in one graph, in which it stays concurrent.
        generation: Of the context, set by the host; 0 before there is one.
        managed, shared: Memory of :meth:`allocate_managed` and :meth:`allocate_shared` that was not released yet.
    """

    info: DeviceInfo
    native: int = 0
    hurried: int = 0
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
