"""What is written by hand of :mod:`callboard.sync`'s ``Quarantine``: calls run on the threads that make them."""

import asyncio
import concurrent.futures
import queue
from collections.abc import Callable
from typing import Generic, TypeVar

from callboard._background import BackgroundLoop, open_loop
from callboard.actors.loops.blocking import SLICE
from callboard.core.errors import DeviceStopped
from callboard.device.client.line.port import request_key
from callboard.patterns.quarantine.guard import Quarantine as AsyncQuarantine

__all__ = ["QuarantineBase"]

T = TypeVar("T")
R = TypeVar("R")


class QuarantineBase(Generic[T]):
    """Blocking :class:`callboard.Quarantine`, for any number of threads.

    ::

        with cb.sync.device("auto") as gpu, cb.sync.Quarantine(gpu) as quarantine:
            y = quarantine.run("user 7", lambda device: device.blas.gemm(device.put(x), device.put(x)).get())

    Each call runs on the thread that calls :meth:`run`. Ctrl-C ends the call. The quarantine is closed when the
    interpreter exits, at the latest.

    Args:
        target, spare, hold, wait, max_waiting, max_keys, clock: See :class:`callboard.Quarantine`.

    Raises:
        ValueError: A number is not positive, or not finite.
    """

    def __init__(self, quarantine: AsyncQuarantine[T]) -> None:
        self._quarantine = quarantine
        self._background: BackgroundLoop = open_loop(self.close)
        self._closed = False

    def run(self, key: str, call: Callable[[T], R]) -> R:
        """Call ``call(target)`` and return its value; again after a loss.

        Device calls inside carry the key.

        Args:
            key: Key of the request: equal for requests that would cause the same loss.
            call: Function of the target, or of the spare; it has to make its own refs.

        Raises:
            Quarantined, DeadlineExceeded, QueueFull, TypeError, Exception: See :meth:`callboard.Quarantine.run`.
            DeviceStopped: It was closed.
        """
        turns: queue.SimpleQueue[_Turn[T, R] | None] = queue.SimpleQueue()

        async def here(target: T) -> R:
            turn = _Turn[T, R](target)
            turns.put(turn)
            return await asyncio.wrap_future(turn.end)

        running = self._background.start(self._quarantine.run(key, here))
        running.add_done_callback(lambda _: turns.put(None))
        token = request_key.set(key)
        try:
            while not running.done():
                try:
                    turn = turns.get(timeout=SLICE)
                except queue.Empty:
                    continue
                if turn is not None:
                    turn.take(call)
            return running.result()
        except concurrent.futures.CancelledError:
            raise DeviceStopped("the quarantine was closed while this call waited") from None
        except BaseException:  # Ctrl-C, too: the waiter leaves the queue
            running.cancel()
            raise
        finally:
            request_key.reset(token)

    def close(self) -> None:
        """End the calls that wait. Closing twice is harmless."""
        self._background.check_thread()
        if not self._closed:
            self._closed = True
            self._background.leave(self.close)


class _Turn(Generic[T, R]):
    """One run of a call, on its way to the thread that makes it, and back."""

    def __init__(self, target: T) -> None:
        self.target = target
        self.end: concurrent.futures.Future[R] = concurrent.futures.Future()

    def take(self, call: Callable[[T], R]) -> None:
        """Make the call, on this thread."""
        if not self.end.set_running_or_notify_cancel():
            return
        try:
            value = call(self.target)
        except Exception as e:  # an error of the caller's function: the quarantine decides what follows
            self.end.set_exception(e)
        except BaseException:  # Ctrl-C: it passes on to the caller
            self.end.set_exception(concurrent.futures.CancelledError())
            raise
        else:
            self.end.set_result(value)
