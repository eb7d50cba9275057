"""``Event`` and ``DeviceTime``: the handles of callers."""

import itertools
import weakref
from collections import deque
from collections.abc import Generator
from types import TracebackType
from typing import Any, Generic, Self

from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.core.reply import Reply
from callboard.kernel.api import Submit
from callboard.kernel.event.messages import Destroy, Elapsed, GetIpcHandle, IpcEventHandle, Record, Wait

__all__ = ["DeviceTime", "Event"]

numbers = itertools.count(1)
"""Numbers of events; never used again in this process."""


class Event(Generic[Mode]):
    """A point in the work of a device (``dev.event.create()``).

    It is recorded in one context. When that is lost, waiting for it and measuring by it fail with
    :class:`GpuRefStale <callboard.GpuRefStale>`, until it is recorded again. Records and waits of all events of a
    device are executed in the order of the calls: a record after a wait is reached no earlier than the event waited
    for.

    ``await event`` waits until it is reached, as :meth:`synchronize` does without a loop.

    Args:
        submit: Accepts messages.
        garbage: Takes the number of an event that is no longer used.
        flags: Fields of :class:`Record <callboard.kernel.event.Record>`.
        opened: The reply of the message that opened it; None for an event of this device.
    """

    def __init__(
        self, submit: Submit, garbage: "deque[int]", flags: dict[str, bool], opened: Reply[None] | None = None
    ) -> None:
        self.number = next(numbers)
        self._submit = submit
        self._flags = flags
        self._opened = opened
        self._reply = opened
        weakref.finalize(self, garbage.append, self.number).atexit = False

    def record(self, *after: GpuRef[Mode]) -> Self:
        """Stand for the ops that write these arrays, or for all ops called before.

        Work of resident actors counts once their calls have ended, but not if they run in a process of their own.

        Args:
            after: Arrays of the device.

        Raises:
            ValueError: It belongs to another process.
            DeviceMismatch, GpuRefStale, MailboxFull, DeviceStopped
        """
        if self._opened is not None:
            raise ValueError("record: the event belongs to another process, which records it; wait for it here")
        self._reply = self._submit(Record(event=self.number, after=after, **self._flags))
        return self

    def wait(self, *before: GpuRef[Mode]) -> None:
        """Have ops called from now on that use these arrays, or all ops, begin when the event is reached.

        The device waits; this returns at once. It is not needed between arrays of one device: ops wait for their
        operands.

        Args:
            before: Arrays of the device.

        Raises:
            ValueError: It has not been recorded.
            DeviceMismatch, GpuRefStale, MailboxFull, DeviceStopped
        """
        self._recorded("wait")
        self._submit(Wait(event=self.number, before=before))

    def query(self) -> bool:
        """True if the event is known to be reached; raises the error if recording it failed.

        Raises:
            ValueError: It has not been recorded, or belongs to another process.
        """
        reply = self._own("query")
        if reply.done():
            error = reply.exception()
            if error is not None:
                raise error
            return True
        return False

    def synchronize(self, timeout: float | None = None) -> None:
        """Block until it is reached; ``await event`` if a loop runs.

        Args:
            timeout: Seconds; None waits as long as the device lives.

        Raises:
            ValueError: It has not been recorded, or belongs to another process.
            RuntimeError: Called on the loop's own thread.
            AskTimeout: It was not reached in time.
            AccelError: An array that it stands for failed, or the context was lost.
        """
        self._own("synchronize").result(timeout)

    def __await__(self) -> Generator[Any, None, Self]:
        yield from self._own("await").__await__()
        return self

    def elapsed(self, end: "Event[Mode]") -> Reply[float]:
        """Seconds on the device's clock from this event to ``end``; negative where ``end`` was reached first.

        Each event refers to its last recording. CUDA measures to half a microsecond; the CPU backend reads the
        monotonic clock when its worker reaches the events.

        Raises:
            ValueError: One of them has not been recorded, keeps no times, or belongs to another process.
        """
        for name, event in (("start", self), ("end", end)):
            event._own(f"elapsed: {name}")
            if not event._flags["timing"]:
                raise ValueError(f"elapsed: {name} keeps no times; make it with dev.event.create(timing=True)")
        reply: Reply[float] = self._submit(Elapsed(start=self.number, end=end.number))
        return reply

    def export(self) -> Reply[IpcEventHandle]:
        """The handle by which another process of this machine opens it: ``dev.event.open(handle)`` there.

        Raises:
            ValueError: It was not made with ``interprocess=True``, or has not been recorded.
        """
        self._own("export")
        if not self._flags["interprocess"]:
            raise ValueError("export: the event is not for other processes; dev.event.create(interprocess=True)")
        reply: Reply[IpcEventHandle] = self._submit(GetIpcHandle(event=self.number))
        return reply

    def _recorded(self, what: str) -> Reply[None]:
        if self._reply is None:
            raise ValueError(f"{what}: the event has not been recorded; call event.record() first")
        return self._reply

    def _own(self, what: str) -> Reply[None]:
        if self._opened is not None:
            raise ValueError(f"{what}: the event belongs to another process; have the device wait for it: event.wait()")
        return self._recorded(what)

    def __repr__(self) -> str:
        state = "not recorded" if self._reply is None else "reached" if self._reply.done() else "pending"
        return f"<Event {self.number}, {'of another process' if self._opened is not None else state}>"


class DeviceTime(Generic[Mode]):
    """The device's time for the ops called in a block (``dev.time()``).

    ``with dev.time() as t:``, then ``seconds = await t``, or ``t.result()`` without a loop.

    Args:
        submit: Accepts messages.
    """

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._start = 0
        self._seconds: Reply[float] | None = None

    def __enter__(self) -> Self:
        if self._start:
            raise RuntimeError("the block has been entered before; call dev.time() again")
        start = next(numbers)
        self._submit(Record(event=start, barrier=True))
        self._start = start
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        start, end = self._start, next(numbers)
        if error is None:
            self._submit(Record(event=end))
            self._seconds = self._submit(Elapsed(start=start, end=end))
            self._submit(Destroy(event=end))
        self._submit(Destroy(event=start))

    def __await__(self) -> Generator[Any, None, float]:
        return (yield from self._ended().__await__())

    def result(self, timeout: float | None = None) -> float:
        """Block until the block's ops are done; the seconds. Raises as :meth:`callboard.Reply.result`."""
        return self._ended().result(timeout)

    def _ended(self) -> Reply[float]:
        if self._seconds is None:
            raise RuntimeError("the block of dev.time() has not ended, or has failed")
        return self._seconds
