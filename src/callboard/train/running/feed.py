"""``Feed``: batches that a thread reads ahead, so that neither the event loop nor a step waits for them."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, Self, TypeVar

__all__ = ["Feed"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

AHEAD = 2
"""Items that are read before they are asked for."""

ENDING = 10.0
"""Seconds that the read which is going on gets when a feed is closed."""


class _End(NamedTuple):
    """There are no more items."""

    error: BaseException | None = None


class Feed(Generic[T]):
    """An asynchronous iterator over items that a thread reads.

    Args:
        items: Iterated on the thread, and closed there: what it holds (a loader's worker processes) ends with it.
        interrupt: Has a read end that waits for the event loop.
        abort: Has a read end that waits for processes; false: there are none.
    """

    def __init__(self, items: "Iterator[T]", interrupt: Callable[[], object], abort: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[T | _End] = asyncio.Queue()
        self._room = threading.Semaphore(AHEAD)
        self._interrupt = interrupt
        self._abort = abort
        self._closed = False
        self._ended = asyncio.Event()
        threading.Thread(target=self._read, args=(items,), name="callboard-data", daemon=True).start()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """The next item.

        Raises:
            Exception: What reading it raised.
        """
        item = await self._queue.get()
        if isinstance(item, _End):
            self._queue.put_nowait(_End())
            try:
                raise item.error or StopAsyncIteration
            finally:
                del item  # an error that holds itself would keep all that reading held
        self._room.release()
        return item

    def end(self) -> None:
        """Have an iteration that waits end; any thread, also a signal's handler."""
        self._tell(self._queue.put_nowait, _End())

    async def close(self) -> None:
        """Have the thread end, after the read that is going on.

        One that takes too long is aborted, or is left to end by itself where it cannot be.
        """
        self._closed = True
        self._room.release()
        self._interrupt()
        if not (await self._has_ended() or (self._abort() and await self._has_ended())):
            _log.warning("a read of the data has not ended within %.0f s; its thread goes on until it does", ENDING)

    async def _has_ended(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDING):
                await self._ended.wait()
        return self._ended.is_set()

    def _read(self, items: "Iterator[T]") -> None:
        end = _End()
        try:
            with contextlib.closing(items):  # type: ignore[type-var]  # a generator
                while self._room.acquire() and not self._closed:
                    item = next(items, end)
                    if item is end:
                        break
                    self._tell(self._queue.put_nowait, item)
        except BaseException as error:  # of the data: it is the caller's
            end = _End(error)
        del items
        self._tell(self._queue.put_nowait, end)
        del end  # likewise
        self._tell(self._ended.set)

    def _tell(self, function: Callable[..., Any], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *arguments)
