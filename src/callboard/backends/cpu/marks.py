"""Events of callers on the CPU: within a process, and between processes by a page of shared memory."""

import mmap
import os
import time

from callboard.backends.cpu.mappings import new_mapping
from callboard.backends.cpu.stream import CpuEvent, CpuStream
from callboard.core.backend import AccelStream, UserEvent
from callboard.core.errors import DriverError, UnsupportedOp

__all__ = ["CpuMark", "ForeignMark", "SharedMark"]

POLL = 500e-6
"""Seconds between two polls of another process's event."""
LOOKS = 200
"""Looks between two checks that the other process lives."""


class CpuMark(UserEvent):
    """A point in a stream, and the monotonic time at which its worker reached it."""

    __slots__ = ("_event", "_time")

    def __init__(self) -> None:
        super().__init__()
        self._event: CpuEvent | None = None
        self._time = 0.0

    def record(self, stream: AccelStream) -> None:
        native = _native(stream)
        event = self._event = CpuEvent(native)

        def reached() -> None:
            if self._event is event:
                self._time = time.perf_counter()
            event.reach(None)  # the error of unchecked work stays for the host's own events

        native.submit(reached)

    def block(self, stream: AccelStream) -> None:
        if self._event is not None:
            _native(stream).wait(self._event)

    def since(self, start: UserEvent) -> float:
        assert isinstance(start, CpuMark)
        return self._time - start._time

    def export(self) -> bytes:
        raise UnsupportedOp("the event was not made for other processes (interprocess=True)")

    def close(self) -> None:
        self._event = None


class SharedMark(CpuMark):
    """One whose state other processes read: how often it was recorded, and reached, in a page of a memfd.

    Raises:
        OutOfMemory, UnsupportedOp: As of :func:`.new_mapping`.
    """

    __slots__ = ("_counts", "_mapping")

    def __init__(self) -> None:
        super().__init__()
        self._mapping = new_mapping(mmap.PAGESIZE)
        self._counts = self._mapping.memory.data.cast("Q")

    def record(self, stream: AccelStream) -> None:
        super().record(stream)
        counts = self._counts
        number = counts[0] = counts[0] + 1

        def reached() -> None:
            counts[1] = number  # in order: records of one event are on one stream

        _native(stream).submit(reached)

    def export(self) -> bytes:
        return self._mapping.path.encode()

    def close(self) -> None:
        super().close()
        self._mapping.close()  # the memory is released with its last waiter


class ForeignMark(UserEvent):
    """A :class:`SharedMark` of another process.

    Args:
        handle: Handle that its :meth:`export` returned.

    Raises:
        DriverError: It cannot be opened.
    """

    __slots__ = ("_counts", "_process")

    def __init__(self, handle: bytes) -> None:
        super().__init__()
        try:
            with open(handle.decode(), "r+b") as file:
                self._counts = memoryview(mmap.mmap(file.fileno(), mmap.PAGESIZE, prot=mmap.PROT_READ)).cast("Q")
        except (OSError, ValueError) as e:
            raise DriverError(f"the event of another process cannot be opened: {e}") from e
        self._process = handle.decode().rpartition("/fd/")[0]

    def record(self, stream: AccelStream) -> None:
        raise UnsupportedOp("the event belongs to another process, which records it")

    def block(self, stream: AccelStream) -> None:
        native, counts, wanted = _native(stream), self._counts, self._counts[0]

        def wait() -> None:
            looks = 0
            while counts[1] < wanted:
                looks += 1
                if native.closing:
                    raise DriverError("the stream was closed while it waited for an event of another process")
                if looks % LOOKS == 0 and not os.path.isdir(self._process):
                    raise DriverError("the process whose event is waited for has ended without reaching it")
                time.sleep(POLL)

        native.submit(wait)

    def since(self, start: UserEvent) -> float:
        raise UnsupportedOp("an event of another process keeps no times")

    def export(self) -> bytes:
        raise UnsupportedOp("the event belongs to another process, which exports it")

    def close(self) -> None:
        pass  # the mapping is released with the last wait that reads it


def _native(stream: AccelStream) -> CpuStream:
    if not isinstance(stream, CpuStream):
        raise TypeError(f"stream is {type(stream).__name__}; a CPU event is recorded on CPU streams")
    return stream
