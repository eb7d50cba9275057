"""Events of callers on a GPU."""

import ctypes
from ctypes import c_float, c_void_p

from callboard.backends.cuda.driver import (
    EVENT_BLOCKING_SYNC,
    EVENT_DISABLE_TIMING,
    EVENT_INTERPROCESS,
    Driver,
    IpcHandle,
)
from callboard.core.backend import AccelStream, UserEvent
from callboard.core.errors import UnsupportedOp

__all__ = ["CudaMark"]


class CudaMark(UserEvent):
    """A ``CUevent`` with the flags of its caller, or one that another process has exported.

    Args:
        driver: The CUDA driver API.
        timing, blocking, interprocess: See :meth:`AccelDevice.event <callboard.core.backend.AccelDevice.event>`.
        opened: Handle of an event of another process; None makes a new one.
    """

    __slots__ = ("_driver", "_handle", "_interprocess", "_opened")

    def __init__(
        self,
        driver: Driver,
        *,
        timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        opened: bytes | None = None,
    ) -> None:
        super().__init__()
        created = c_void_p()
        if opened is None:
            flags = 0 if timing else EVENT_DISABLE_TIMING
            flags |= EVENT_BLOCKING_SYNC if blocking else 0
            flags |= EVENT_INTERPROCESS if interprocess else 0
            driver.event_create(ctypes.byref(created), flags)
        else:
            driver.ipc_open_event(ctypes.byref(created), IpcHandle.from_buffer_copy(opened))
        self._handle: int = created.value or 0
        self._driver = driver
        self._interprocess = interprocess
        self._opened = opened is not None

    def record(self, stream: AccelStream) -> None:
        if self._opened:
            raise UnsupportedOp("the event belongs to another process, which records it")
        self._driver.check(self._driver.event_record(self._handle, stream.native), "cuEventRecord")

    def block(self, stream: AccelStream) -> None:
        self._driver.check(self._driver.stream_wait_event(stream.native, self._handle, 0), "cuStreamWaitEvent")

    def since(self, start: UserEvent) -> float:
        assert isinstance(start, CudaMark)
        milliseconds = c_float()
        self._driver.event_elapsed(ctypes.byref(milliseconds), start._handle, self._handle)
        return milliseconds.value * 1e-3

    def export(self) -> bytes:
        if not self._interprocess:
            raise UnsupportedOp("the event was not made for other processes (interprocess=True)")
        handle = IpcHandle()
        self._driver.ipc_get_event_handle(ctypes.byref(handle), self._handle)
        return bytes(handle.reserved)

    def close(self) -> None:
        if self._handle:
            self._driver.event_destroy(self._handle)
            self._handle = 0
