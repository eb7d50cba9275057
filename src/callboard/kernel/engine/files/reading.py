"""``Later``: an answer for which a file is read first, on a thread."""

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, TypeVar

from callboard.kernel.nvrtc.handles import Answer

__all__ = ["Later", "reading"]

R = TypeVar("R")
T = TypeVar("T")


def reading(read: Callable[[], bytes]) -> "Future[bytes]":
    """The bytes that ``read`` returns, called on a thread of its own."""
    data: Future[bytes] = Future()
    data.set_running_or_notify_cancel()  # who waits for it cannot cancel it: others may wait, too

    def fill() -> None:
        try:
            data.set_result(read())
        except BaseException as e:  # is raised where the answer is awaited
            data.set_exception(e)

    threading.Thread(target=fill, name="callboard-reading", daemon=True).start()
    return data


class Later(Answer[T]):
    """An answer to a question that needs bytes which are being read, so that no event loop waits for a disk.

    The device is asked when this is awaited, or asked for its ``result``.

    Args:
        data: The bytes.
        ask: Asks the device. What reading and asking raise is raised by the answer.
    """

    def __init__(self, data: "Future[bytes]", ask: Callable[[bytes], Answer[T]]) -> None:
        self._data = data
        self._ask = ask
        self._answer: Answer[T] | None = None

    def _asked(self) -> Answer[T]:
        if self._answer is None:
            self._answer = self._ask(self._data.result())
        return self._answer

    def then(self, read: Callable[[T], R]) -> Answer[R]:
        return Later(self._data, lambda _: self._asked().then(read))

    def done(self) -> bool:
        if not self._data.done():
            return False
        return self._data.exception() is not None or self._asked().done()

    def __await__(self) -> Generator[Any, None, T]:
        yield from asyncio.wrap_future(self._data).__await__()
        return (yield from self._asked().__await__())

    def result(self, timeout: float | None = None) -> T:
        self._data.result(timeout)
        return self._asked().result(timeout)
