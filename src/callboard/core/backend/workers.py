"""Streams that are worker threads, for devices whose calls return when the work is done, and their events.

The CPU's streams are these; a backend over a library with its own queues overrides :meth:`WorkerStream.entered` and
what reaches an event.
"""

import ctypes
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, ClassVar

import numpy as np

from callboard.actors.loops.bell import Bell
from callboard.core.backend.events import AccelEvent
from callboard.core.backend.status import Status
from callboard.core.backend.streams import AccelStream
from callboard.core.errors import AccelError, DriverError, LibraryError, OutOfMemory

__all__ = ["LONG", "Work", "WorkerEvent", "WorkerStream", "failure", "noticed"]

LONG = 1e-3
"""Seconds of work that are told to :attr:`Work.after_long`."""
SLICE = 0.5
"""Seconds after which a waiter looks whether the worker it waits for still runs."""


class WorkerEvent(AccelEvent):
    """A point in a :class:`WorkerStream`: an item in its queue."""

    __slots__ = ("_done", "_error", "_stream", "_waiters")

    def __init__(self, stream: "WorkerStream") -> None:
        self._stream = stream
        self._done = False
        self._error: BaseException | None = None
        self._waiters: deque[threading.Lock] = deque()

    def query(self) -> bool:
        if self._error is not None:
            raise self._error
        return self._done

    def synchronize(self) -> None:
        self.block()
        if self._error is not None:
            raise self._error

    def block(self) -> None:
        """Wait until the stream has reached it, whether or not the work before it failed.

        Raises:
            DriverError: The stream was closed before it reached the event.
        """
        if self._done:
            return
        lock = threading.Lock()
        lock.acquire()
        self._waiters.append(lock)
        if self._reached():  # reached meanwhile by a worker that may not have seen the waiter
            return
        while not lock.acquire(timeout=SLICE):
            if self._stream.ended(self):
                raise DriverError(f"stream {self._stream.id} was closed before it reached the event")

    def _reached(self) -> bool:
        return self._done

    def reach(self, error: BaseException | None) -> None:
        """Mark the point as passed by the worker and wake its waiters."""
        self._error = error
        self._done = True
        waiters = self._waiters
        while waiters:  # a later waiter sees that it is done
            waiters.popleft().release()


class Work(Status):
    """One op's work and, when it is done, its own failure."""

    __slots__ = ("args", "error", "fn", "lib", "seconds")

    after_long: ClassVar[Callable[[float], object] | None] = None
    """Called with the seconds of work that took long, on the thread that did it; for the whole process."""

    def __init__(self, lib: str, fn: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.lib = lib
        self.fn: Callable[..., object] | None = fn
        self.args = args
        self.error: AccelError | None = None
        self.seconds: float | None = None

    def execute(self) -> None:
        fn, args = self.fn, self.args
        self.fn, self.args = None, ()
        assert fn is not None
        began = time.perf_counter()
        try:
            fn(*args)
        except BaseException as e:  # any exception of the work is the op's failure: the thread continues for other ops
            self.error = failure(self.lib, fn, e)
        self.seconds = time.perf_counter() - began
        if self.seconds >= LONG:
            noticed(self.seconds)

    def check(self, outcome: bytes) -> None:
        if self.error is not None:
            raise self.error


def noticed(seconds: float) -> None:
    """Tell :attr:`Work.after_long` of work that took this long."""
    after = Work.after_long
    if after is not None:
        after(seconds)


def failure(lib: str, fn: Callable[..., object], e: BaseException) -> AccelError:
    """The error of an op whose work raised ``e``."""
    if isinstance(e, AccelError):
        return e
    text = f"{getattr(fn, '__name__', 'work')} failed: {type(e).__name__}: {e}"
    error = OutOfMemory(text) if isinstance(e, MemoryError) else LibraryError(text, lib)
    error.__cause__ = e
    return error


class WorkerStream(AccelStream):
    """A worker thread with a queue. Any thread may submit; work of one submitting thread is executed in its order.

    NumPy's floating-point warnings are off in the worker, as on a device: an overflow gives an infinity.
    """

    native = 0

    def __init__(self, id: int) -> None:
        self.id = id
        self._items: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._wake = Bell()
        self._parked = False
        self._closing = False
        self._error: BaseException | None = None  # of work that is not checked; the worker's own
        self._here: AccelStream | None = None
        self._thread = threading.Thread(target=self._work, name=f"callboard-stream-{id}", daemon=True)
        self._thread.start()

    def ended(self, event: WorkerEvent) -> bool:
        """True if the worker ended without reaching ``event``."""
        return not self._thread.is_alive() and not event._reached()

    @property
    def closing(self) -> bool:
        """True if the worker was asked to end; work that waits for other streams then ends too."""
        return self._closing

    # -- submitting ----------------------------------------------------------------------------------------------------

    def submit(self, fn: Callable[..., object], *args: Any) -> None:
        """Execute ``fn(*args)`` after the work so far. If it raises, the first event recorded after it does.

        Raises:
            DriverError: The stream is closed.
        """
        if self._closing:
            raise DriverError(f"stream {self.id} is closed")
        self._push(fn, args)

    def run(self, lib: str, fn: Callable[..., object], *args: Any) -> Status:
        """Execute ``fn(*args)`` after the work so far as the work of one op of ``lib``.

        Returns:
            The status of the launch. When the stream has passed the work, its check raises the work's failure: an
            :class:`AccelError` unchanged, any other exception as :class:`LibraryError` (``MemoryError`` as
            :class:`OutOfMemory`).
        """
        work = Work(lib, fn, args)
        self.submit(work.execute)
        return work

    def _push(self, fn: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._items.append((fn, args))
        if self._parked:
            self._parked = False
            self._wake.ring()

    @property
    def waited(self) -> AccelStream:
        from callboard.core.backend.waited import WaitedStream

        return WaitedStream(self)

    @property
    def at_once(self) -> AccelStream | None:
        if self._items or not self._parked or self._error is not None or self._closing:
            return None
        if self._here is None:
            self._here = self.waited
        return self._here

    # -- events --------------------------------------------------------------------------------------------------------

    def record(self) -> WorkerEvent:
        event = WorkerEvent(self)
        self.submit(self._reach, event)
        return event

    def query(self) -> bool:
        if self._items or not self._parked:  # checked in this order: the worker takes before it executes
            return False
        error, self._error = self._error, None
        if error is not None:
            raise error
        return True

    def recycle(self, event: AccelEvent) -> None:
        pass  # an event is a small object; a stream that still has to wait for it keeps it

    def wait(self, event: AccelEvent) -> None:
        if not isinstance(event, WorkerEvent):
            raise TypeError(f"event is {type(event).__name__}; a stream of workers waits for events of such streams")
        if not event._done:
            self.submit(event.block)

    def signal(self, semaphore: int) -> bool:
        post = _sem_post()
        if post is None:
            return False
        self.submit(post, semaphore)
        return True

    def synchronize(self) -> None:
        self.record().synchronize()

    def give_up(self) -> None:
        if not self._closing:
            self._closing = True
            self._items.appendleft((_stop, ()))
            self._wake.ring()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._push(_stop, ())
        self._thread.join()
        self._wake.close()

    # -- the worker ----------------------------------------------------------------------------------------------------

    def entered(self) -> AbstractContextManager[object]:
        """The context in which the worker executes everything: here, without NumPy's warnings."""
        return np.errstate(all="ignore")

    def _reach(self, event: WorkerEvent) -> None:
        error, self._error = self._error, None
        event.reach(error)

    def _work(self) -> None:
        items, take = self._items, self._items.popleft
        fn: Callable[..., object] = _stop
        with self.entered():
            while True:
                try:
                    while items:
                        fn, args = take()
                        fn(*args)
                    fn, args = _stop, ()  # the objects that they referred to must not live as long as the pause
                    self._parked = True
                    # Looked at after parking: a submitter that saw the worker running has appended by now.
                    if not items:
                        self._wake.wait()
                    self._parked = False
                except _Stop:
                    items.clear()  # what was given up
                    self._parked = True
                    return
                except BaseException as e:  # likewise for work that was enqueued besides ops (a wait, a semaphore)
                    self._error = failure("", fn, e)


class _Stop(BaseException):
    """Ends a worker."""


def _stop() -> None:
    raise _Stop


@cache
def _sem_post() -> Callable[[int], None] | None:
    if not sys.platform.startswith("linux"):
        return None
    function = ctypes.PyDLL(None, use_errno=True).sem_post  # it never blocks, so it may keep the GIL
    function.argtypes = [ctypes.c_void_p]
    function.restype = ctypes.c_int

    def sem_post(semaphore: int) -> None:
        if function(semaphore):
            raise OSError(ctypes.get_errno(), "sem_post")

    return sem_post
