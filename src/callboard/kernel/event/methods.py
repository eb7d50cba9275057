"""The methods of ``dev.event``: events are objects, which submit the messages."""

from collections import deque
from collections.abc import Callable
from typing import Any

from callboard.core.mode import Mode
from callboard.kernel.api import Api, Submit
from callboard.kernel.event.handle import Event
from callboard.kernel.event.messages import Destroy, IpcEventHandle, OpenIpcHandle

__all__ = ["Methods"]


class Methods(Api[Mode]):
    """Events of a device."""

    __slots__ = ("_garbage",)

    covers = frozenset({"record", "wait", "elapsed", "get_ipc_handle", "open_ipc_handle", "destroy"})

    def __init__(self, submit: Submit, put: Callable[[Any], Any]) -> None:
        super().__init__(submit, put)
        self._garbage: deque[int] = deque()

    def create(self, *, timing: bool = True, blocking: bool = False, interprocess: bool = False) -> Event[Mode]:
        """A new event, not recorded.

        Events without references are destroyed at the next call of this method.

        Args:
            timing: It keeps the time at which it is reached, for :meth:`Event.elapsed
                <callboard.Event.elapsed>`; without, recording costs less.
            blocking: Threads that wait for it in the driver sleep instead of spinning. This concerns other processes
                that have opened it: callboard's own waiters never wait for it in the driver.
            interprocess: Other processes can open it (:meth:`Event.export <callboard.Event.export>`); without
                ``timing``.

        Raises:
            ValueError: ``interprocess`` and ``timing``.
        """
        if interprocess and timing:
            raise ValueError("create: an event for other processes keeps no times; pass timing=False")
        self._sweep()
        return Event(
            self._submit, self._garbage, {"timing": timing, "blocking": blocking, "interprocess": interprocess}
        )

    def open(self, handle: IpcEventHandle | bytes) -> Event[Mode]:
        """Open an event of another process; the device can :meth:`wait <callboard.Event.wait>` for it.

        Whether the event still exists is checked on the device: waiting for it fails with
        :class:`GpuRefStale <callboard.GpuRefStale>` if its context is lost.

        Args:
            handle: Handle that :meth:`Event.export <callboard.Event.export>` returned, or its bytes.

        Raises:
            ValueError: The bytes are not a handle.
            TypeError: Neither.
        """
        if isinstance(handle, bytes):
            handle = IpcEventHandle.from_bytes(handle)
        if not isinstance(handle, IpcEventHandle):
            raise TypeError(f"open: handle is {type(handle).__name__}; pass an IpcEventHandle (await event.export())")
        self._sweep()
        event: Event[Mode] = Event(self._submit, self._garbage, {"timing": False})
        event._opened = event._reply = self._submit(OpenIpcHandle(event=event.number, handle=handle.as_bytes().hex()))
        return event

    def _sweep(self) -> None:
        while self._garbage:
            self._submit(Destroy(event=self._garbage.popleft()))
