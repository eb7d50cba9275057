"""``Reply``: a value that is still to come from a device."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, TypeVar

from callboard.actors.blocking import wait
from callboard.core.errors import AskTimeout

__all__ = ["Cause", "Failure", "Reply", "ReplyPort"]

T_co = TypeVar("T_co", covariant=True)

PENDING, DONE, FAILED = 0, 1, 2


class ReplyPort(Protocol):
    """What a reply needs of the device that owes it."""

    def flush(self) -> None:
        """Send what is queued, from the loop's thread; from another thread, ask the loop to."""

    def awaited(self, reply: "Reply[Any]") -> None:
        """Somebody is about to wait for this reply: :meth:`flush`, and whatever makes it come sooner."""

    def withdraw(self, reply: "Reply[Any]") -> bool:
        """Take the reply's op back if it has not been sent."""
        ...

    def unretrieved(self, error: BaseException) -> None:
        """A failure was dropped without anybody having seen it."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...


class Cause:
    """Whether somebody has seen a failure, or something that failed from the same cause."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen = False


class Failure:
    """An error that a reply holds; dropped unseen, it is reported once per cause."""

    __slots__ = ("cause", "error", "port")

    def __init__(self, error: BaseException, port: ReplyPort, cause: Cause) -> None:
        self.error = error
        self.port = port
        self.cause = cause

    def __del__(self) -> None:
        if not self.cause.seen:
            self.cause.seen = True
            self.port.unretrieved(self.error)


class Reply(Generic[T_co]):
    """A value that a device owes: awaitable on any loop, any number of times; ``result`` for threads.

    A cancelled or timed-out waiter detaches itself only; :meth:`cancel` withdraws the op if it has not been sent.
    """

    __slots__ = ("__weakref__", "_op", "_outcome", "_port", "_state", "_waiters")

    def __init__(self, port: ReplyPort, op: int = 0) -> None:
        self._port = port
        self._op = op  # id of the op that owes it
        self._state = PENDING
        self._outcome: Any = None  # the value, or a Failure
        self._waiters: list[concurrent.futures.Future[None] | asyncio.Future[None]] | None = None

    # -- the asker's side ----------------------------------------------------------------------------------------------

    def done(self) -> bool:
        """Whether the verdict is known."""
        return self._state != PENDING

    def __await__(self) -> Generator[Any, None, T_co]:
        if self._state == PENDING:
            self._port.awaited(self)
            if self._state == PENDING:
                future = asyncio.get_running_loop().create_future()
                self._attach(future)
                yield from future.__await__()
        return self._value() if self._state == DONE else self._take()

    def result(self, timeout: float | None = None) -> T_co:
        """Block until the verdict is known (for threads without a loop).

        Args:
            timeout: Seconds; None waits as long as the device lives.

        Raises:
            RuntimeError: Called on the loop's own thread, where it would dead-lock.
            AskTimeout: No verdict in time; the op goes on.
        """
        if self._state == PENDING:
            if _on_loop(self._port.loop):
                raise RuntimeError(
                    "result() on the thread of the device's loop would dead-lock; await the reply instead"
                )
            future: concurrent.futures.Future[None] = concurrent.futures.Future()
            self._attach(future)
            self._port.flush()
            try:
                wait(future, timeout)
            except TimeoutError:
                self._detach(future)
                raise AskTimeout(f"no verdict within {timeout} s; the op goes on") from None
            except BaseException:  # Ctrl-C: the waiter leaves, the op goes on
                self._detach(future)
                raise
        return self._take()

    def exception(self) -> BaseException | None:
        """The error of a failed reply, None if it succeeded.

        Raises:
            RuntimeError: The verdict is not known yet.
        """
        if self._state == PENDING:
            raise RuntimeError("the verdict is not known yet; await the reply first")
        if self._state == DONE:
            return None
        self._outcome.cause.seen = True
        error: BaseException = self._outcome.error
        return error

    def cancel(self) -> bool:
        """Withdraw the op if it has not been sent; says whether it was.

        What it would have written fails for its readers.
        """
        return self._state == PENDING and self._port.withdraw(self)

    def _value(self) -> T_co:
        """What a successful reply gives."""
        value: T_co = self._outcome
        return value

    def _take(self) -> T_co:
        if self._state == DONE:
            return self._value()
        failure: Failure = self._outcome
        failure.cause.seen = True
        raise failure.error

    def __repr__(self) -> str:
        if self._state == PENDING:
            return f"<{type(self).__name__} pending>"
        if self._state == DONE:
            return f"<{type(self).__name__} {self._outcome!r}>"
        return f"<{type(self).__name__} failed: {self._outcome.error!r}>"

    # -- the device's side ---------------------------------------------------------------------------------------------

    def _resolve(self, value: Any = None) -> None:
        self._outcome = value
        self._state = DONE
        if self._waiters is not None:
            self._wake()

    def _reject(self, failure: Failure) -> None:
        self._outcome = failure
        self._state = FAILED
        if self._waiters is not None:
            self._wake()

    def _attach(self, future: Any) -> None:
        with _lock:
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(future)
        if self._state != PENDING:  # settled meanwhile by another thread, which may not have seen the waiter
            self._wake()

    def _detach(self, future: Any) -> None:
        with _lock:
            if self._waiters is not None and future in self._waiters:
                self._waiters.remove(future)

    def _wake(self) -> None:
        with _lock:
            waiters, self._waiters = self._waiters, None
        for future in waiters or ():
            if isinstance(future, asyncio.Future) and not _on_loop(future.get_loop()):
                _post(future.get_loop(), _settle, future)
            else:
                _settle(future)


_lock = threading.Lock()  # guards lists of waiters only; held for a few instructions


def _settle(future: Any) -> None:
    if not future.done():
        future.set_result(None)


def _post(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        if not loop.is_closed():  # a loop that is gone has no waiters to wake
            raise


def _on_loop(loop: asyncio.AbstractEventLoop) -> bool:
    return asyncio._get_running_loop() is loop
