"""``OnThread``: what a function returns that a thread of its own calls, so that no event loop waits for it."""

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

__all__ = ["OnThread"]

T = TypeVar("T")


class OnThread(Generic[T]):
    """The result of a function that reads or computes for long; it can be awaited, and asked for its ``result``.

    A wait that is cancelled or timed out leaves the function running.

    Args:
        work: The function. What it raises is raised where the result is waited for.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._found: Future[T] = Future()
        self._found.set_running_or_notify_cancel()  # who waits for it cannot cancel it: others may wait, too

        def fill() -> None:
            try:
                self._found.set_result(work())
            except BaseException as e:  # is raised where the result is waited for
                self._found.set_exception(e)

        threading.Thread(target=fill, name="callboard-reading", daemon=True).start()

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self._found).__await__()

    def result(self, timeout: float | None = None) -> T:
        """Wait for it, at most ``timeout`` seconds.

        Raises:
            TimeoutError: It takes longer.
        """
        return self._found.result(timeout)
