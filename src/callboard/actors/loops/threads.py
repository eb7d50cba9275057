"""``Threads``: an executor whose threads do not keep a program from ending."""

import concurrent.futures
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

__all__ = ["Threads"]

T = TypeVar("T")

_Work = tuple["concurrent.futures.Future[Any]", Callable[[], Any]]


class Threads(concurrent.futures.Executor):
    """Calls functions on daemon threads.

    The interpreter waits for the threads of a ``ThreadPoolExecutor`` when it exits, also for one that never returns
    from a user's function, which nothing can end; and it takes no call after the main thread has ended.

    ``submit`` raises ``RuntimeError``, and leaves nothing behind, where no thread can be started.

    Args:
        most: Threads at most; they are started when they are first needed.
        name: Beginning of their names.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "concurrent.futures.Future[T]":
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot submit to an executor that is shut down")
            if self._idle:
                self._idle -= 1  # taken by this call
            elif len(self._threads) < self._most:
                self._start()
            self._work.put((future, lambda: fn(*args, **kwargs)))
        return future

    def spare(self, threads: int) -> None:
        """Allow this many threads more, in place of those that were given up; a negative number when these end."""
        with self._lock:
            self._most += threads

    def _start(self) -> None:
        thread = threading.Thread(target=self._serve, name=f"{self._name}_{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the process has no room for a thread, or is ending
            if not self._threads:  # nothing would run the call
                raise
        else:
            self._threads.append(thread)

    def share(self, function: Callable[..., object], parts: Sequence[tuple[Any, ...]]) -> None:
        """Call ``function(*part)`` for each part; back when all calls have ended, and raises the error of one.

        The calling thread makes the first call, and those for which no thread can be started.
        """
        first, left = parts[0], list(parts[1:])
        others: list[concurrent.futures.Future[object]] = []
        try:
            for part in parts[1:]:
                others.append(self.submit(function, *part))
                del left[0]
        except RuntimeError:  # the process is at its limit, or ending
            pass
        try:
            function(*first)
            for part in left:
                function(*part)
        finally:
            concurrent.futures.wait(others)
        for other in others:
            other.result()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                if cancel_futures:
                    self._cancel()
                for _ in self._threads:
                    self._work.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _cancel(self) -> None:
        while not self._work.empty():
            item = self._work.get()
            if item is not None:
                item[0].cancel()

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            future, call = item
            del item
            if future.set_running_or_notify_cancel():
                try:
                    value = call()
                except BaseException as e:  # whatever it is, it belongs to the caller
                    future.set_exception(e)
                else:
                    future.set_result(value)
                    del value
            del future, call
            with self._lock:
                if self._work.empty():
                    self._idle += 1
