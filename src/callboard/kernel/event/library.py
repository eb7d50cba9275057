"""``EventLibrary``: base of the backends' libraries of events, over :meth:`AccelDevice.event`."""

import os
from typing import Any, NamedTuple

from callboard.core.backend import AccelStream, Status, UserEvent
from callboard.core.errors import GpuRefStale
from callboard.core.library import Library, launches
from callboard.kernel.event.messages import (
    Destroy,
    Elapsed,
    GetIpcHandle,
    IpcEventHandle,
    OpenIpcHandle,
    Record,
    Wait,
)
from callboard.kernel.ipc.sharing import check_alive, process_started

__all__ = ["EventLibrary"]


class Kept(NamedTuple):
    """An event under a number.

    Attributes:
        event: The backend's.
        flags: Flags that it was created with; None for an event of another process.
    """

    event: UserEvent
    flags: tuple[bool, bool, bool] | None


class EventLibrary(Library):
    """Serves :mod:`callboard.kernel.event`: one event of the backend's for each number that has been recorded.

    All events are on the library's one stream, so ops see the effects of those enqueued before them.
    """

    name = "event"

    def __init__(self, device: Any, stream: AccelStream) -> None:
        super().__init__(device, stream)
        self._events: dict[int, Kept] = {}
        self._measured: list[UserEvent] = []  # replaced while a measurement needs them

    def close(self) -> None:
        for kept in self._events.values():
            kept.event.close()
        for event in self._measured:
            event.close()
        self._events.clear()
        self._measured.clear()

    @launches(Record, captures=False)
    def record(self, stream: AccelStream, plan: Record, event: int, after: Any) -> None:
        flags = plan.timing, plan.blocking, plan.interprocess
        kept = self._events.get(event)
        if kept is not None and (kept.flags != flags or kept.event.pins):
            self._retire(kept.event)
            kept = None
        if kept is None:
            made = self.device.event(timing=plan.timing, blocking=plan.blocking, interprocess=plan.interprocess)
            kept = self._events[event] = Kept(made, flags)
        kept.event.record(stream)

    @launches(Wait, captures=False)
    def wait(self, stream: AccelStream, plan: Wait, event: int, before: Any) -> None:
        self._find(event).event.block(stream)

    @launches(Elapsed, captures=False)
    def elapsed(self, stream: AccelStream, plan: Elapsed, start: int, end: int) -> "Measured":
        return Measured(self, self._find(start).event, self._find(end).event)

    @launches(GetIpcHandle, captures=False)
    def get_ipc_handle(self, stream: AccelStream, plan: GetIpcHandle, event: int) -> "Exported":
        pid = os.getpid()
        return Exported(
            {
                "device": self.device.info.uuid,
                "generation": self.device.generation,
                "pid": pid,
                "started": process_started(pid),
                "handle": self._find(event).event.export(),
            }
        )

    @launches(OpenIpcHandle, captures=False)
    def open_ipc_handle(self, stream: AccelStream, plan: OpenIpcHandle, event: int) -> None:
        handle = IpcEventHandle.from_bytes(bytes.fromhex(plan.handle))
        check_alive("event", handle.device, handle.generation, handle.pid, handle.started)
        self._events[event] = Kept(self.device.open_event(handle.handle), None)

    @launches(Destroy, captures=False)
    def destroy(self, stream: AccelStream, plan: Destroy, event: int) -> None:
        kept = self._events.pop(event, None)
        if kept is not None:
            self._retire(kept.event)

    def measured(self, *events: UserEvent) -> None:
        """A measurement by these is done."""
        for event in events:
            event.pins -= 1
            if not event.pins and event in self._measured:
                self._measured.remove(event)
                event.close()

    def _retire(self, event: UserEvent) -> None:
        if event.pins:
            self._measured.append(event)
        else:
            event.close()

    def _find(self, number: int) -> Kept:
        kept = self._events.get(number)
        if kept is None:
            raise GpuRefStale(f"event {number} was not recorded in this context; record it again", "context rebuilt")
        return kept


class Measured(Status):
    """Status of a measurement, whose value is the seconds between two events."""

    __slots__ = ("_end", "_library", "_start")

    def __init__(self, library: EventLibrary, start: UserEvent, end: UserEvent) -> None:
        self._library = library
        self._start = start
        self._end = end
        for event in (start, end):
            event.pins += 1

    def check(self, outcome: bytes) -> None:
        pass  # reaching this point of the stream is all that is recorded

    def answer(self) -> float:
        try:
            return self._end.since(self._start)
        finally:
            self._library.measured(self._start, self._end)


class Exported(Status):
    """Status of an export, which is complete at the launch."""

    __slots__ = ("_handle",)

    def __init__(self, handle: dict[str, Any]) -> None:
        self._handle = handle

    def check(self, outcome: bytes) -> None:
        pass

    def answer(self) -> dict[str, Any]:
        return self._handle
