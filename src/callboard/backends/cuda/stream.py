"""Streams and events of a CUDA context."""

import ctypes
import sys
from collections.abc import Callable
from ctypes import c_void_p
from functools import cache

from callboard.backends.cuda.driver import EVENT_DISABLE_TIMING, STREAM_NON_BLOCKING, Driver
from callboard.backends.cuda.errors import NOT_READY
from callboard.backends.cuda.graph import CudaGraph, capture
from callboard.core.backend import AccelEvent, AccelGraph, AccelStream

__all__ = ["CudaEvent", "CudaStream"]


class CudaEvent(AccelEvent):
    """A point in a :class:`CudaStream`.

    Attributes:
        handle: The ``CUevent``; it keeps no times, which makes recording cheaper.
    """

    __slots__ = ("_driver", "_query", "handle")

    def __init__(self, driver: Driver) -> None:
        created = c_void_p()
        driver.event_create(ctypes.byref(created), EVENT_DISABLE_TIMING)
        self.handle: int = created.value or 0
        self._driver = driver
        self._query = driver.event_query

    def query(self) -> bool:
        code = self._query(self.handle)
        if code == 0:
            return True
        if code == NOT_READY:
            return False
        raise self._driver.error(code, "cuEventQuery")

    def synchronize(self) -> None:
        self._driver.event_synchronize(self.handle)


class CudaStream(AccelStream):
    """A stream that does not synchronise with the default stream.

    Attributes:
        driver: The CUDA driver API.
        recording: True while enqueued work is recorded in a graph instead of run.
        describes: It is for recording only; its graphs report their nodes, and accept other recordings.
    """

    def __init__(self, driver: Driver, id: int, priority: int, native: int = 0) -> None:
        """Create it in the current context.

        Args:
            driver: The CUDA driver API.
            id: Small number, unique in the device.
            priority: Priority in CUDA's order: lower is more urgent.
            native: A stream that there is already; owned from here on.
        """
        if not native:
            created = c_void_p()
            driver.stream_create(ctypes.byref(created), STREAM_NON_BLOCKING, priority)
            native = created.value or 0
        self.id = id
        self.native = native
        self.driver = driver
        self._record = driver.event_record
        self._query = driver.stream_query
        self._idle: list[CudaEvent] = []
        self.recording = self.describes = False

    def record(self) -> CudaEvent:
        event = self._idle.pop() if self._idle else CudaEvent(self.driver)
        code = self._record(event.handle, self.native)
        if code:
            raise self.driver.error(code, "cuEventRecord")
        return event

    def query(self) -> bool:
        code = self._query(self.native)
        if code == 0:
            return True
        if code == NOT_READY:
            return False
        raise self.driver.error(code, "cuStreamQuery")

    def recycle(self, event: AccelEvent) -> None:
        # A stream that waits for the event has captured its state at the call: recording it again does no harm.
        if isinstance(event, CudaEvent):
            self._idle.append(event)

    def wait(self, event: AccelEvent) -> None:
        if not isinstance(event, CudaEvent):
            raise TypeError(f"event is {type(event).__name__}; a CUDA stream waits for events of CUDA streams")
        code = self.driver.stream_wait_event(self.native, event.handle, 0)
        if code:
            raise self.driver.error(code, "cuStreamWaitEvent")

    def follow(self, native: int) -> None:
        event = self._idle.pop() if self._idle else CudaEvent(self.driver)
        code = self._record(event.handle, native) or self.driver.stream_wait_event(self.native, event.handle, 0)
        self._idle.append(event)
        if code:
            raise self.driver.error(code, "cuEventRecord")

    def signal(self, semaphore: int) -> bool:
        post = _sem_post()
        if not post:
            return False
        self.driver.launch_host_func(self.native, post, semaphore)
        return True

    def capture(self, enqueue: Callable[[], None], into: AccelGraph | None = None) -> CudaGraph:
        self.recording = True
        try:
            return capture(self.driver, self.native, enqueue, into, self.describes)
        finally:
            self.recording = self.describes

    def synchronize(self) -> None:
        self.driver.stream_synchronize(self.native)

    def close(self) -> None:
        if not self.native:
            return
        for event in self._idle:
            self.driver.event_destroy(event.handle)
        self._idle.clear()
        self.driver.stream_destroy(self.native)
        self.native = 0


@cache
def _sem_post() -> int:
    """Address of the C library's ``sem_post``, 0 if it is not ``sem_post(sem_t *)`` of POSIX on Linux.

    The driver calls it unchanged: as ``void (*)(void *)`` on these ABIs, since its return value is left in a register.
    """
    if not sys.platform.startswith("linux"):
        return 0
    return ctypes.cast(ctypes.CDLL(None).sem_post, c_void_p).value or 0
