"""``Callers``: the ways to give a server a request: awaited, without waiting, from a thread, part by part."""

import asyncio
import concurrent.futures
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Generator
from typing import Any, Generic, Self, TypeVar, Unpack

from callboard.actors.clock import Clock, LoopClock
from callboard.actors.errors import AskTimeout
from callboard.actors.handles import Handle
from callboard.actors.loops.blocking import wait
from callboard.events.names import check_name
from callboard.patterns.contract.atcall import as_given, at_the_call
from callboard.patterns.contract.moved import refuse_moved
from callboard.patterns.contract.options import AskOptions, RequestOptions
from callboard.patterns.contract.outlet import STREAMED, Outlet, Reading
from callboard.patterns.requests.errors import ServerStopped

__all__ = ["BUFFER", "PATIENCE", "Callers"]

T = TypeVar("T")
R = TypeVar("R")

BUFFER = 16
"""Default bound of the parts that wait for the reader of a stream."""

PATIENCE = 60.0
"""Default seconds for which the reader of a stream may leave its buffer full."""


class Callers(Handle, ABC, Generic[T, R]):
    """The callers' side of all servers.

    Args:
        name: Name of the server, for errors, metrics and traces.
        clock: Tells the time; for tests.

    Raises:
        TypeError, ValueError: The name is not text of at most 256 characters.
    """

    def __new__(cls, *_: Any, **options: Any) -> Self:
        refuse_moved(cls, options)
        return super().__new__(cls)

    def __init__(self, name: str, clock: Clock | None) -> None:
        check_name(f"a {type(self).__name__}", name)
        self.name = name
        self._clock = clock or LoopClock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Future[None] | None = None

    @abstractmethod
    def _enter(
        self, item: T, options: RequestOptions, *, may_block: bool, outlet: Outlet | None = None
    ) -> "asyncio.Future[R]":
        """Make a request of an item, on the server's loop; raises if it is rejected."""

    @abstractmethod
    def _refusal(self) -> ServerStopped:
        """The error of a request to a server that takes none."""

    # -- the whole answer ----------------------------------------------------------------------------------------------

    @at_the_call
    async def submit(self, item: T, **options: Unpack[RequestOptions]) -> R:
        """Give the server an item and wait for its value.

        Cancelling the task that waits cancels the request: it leaves the queue at once, and if it runs its value is
        dropped. Other requests of its batch are not affected.

        Args:
            item: Item passed to the function as part of a batch. It is taken as it is at the call: arrays and other
                buffers are copied, and may be written again at once.
            options: ``deadline``, ``timeout``, ``priority``, ``cost`` and options of particular servers; see
                :class:`RequestOptions`.

        Raises:
            QueueFull: There was no room, or it was dropped in favour of another request.
            DeadlineExceeded: There was no value by the deadline, or it was certain to be missed.
            ItemTooLarge: It does not fit into a batch, or not into the queue.
            ServerStopped: The server has stopped, is draining, or stopped meanwhile.
            TypeError: An option that this server does not take.
            RuntimeError: A server of batches gets it from its own function, which would wait for itself.
            Exception: Raised by the function, or returned for this item; or raised by ``cost`` or ``bucket``.
        """
        if asyncio.get_running_loop() is not self._loop:
            return await asyncio.wrap_future(as_given(self.submit_threadsafe)(item, **options))
        return await self._enter(item, options, may_block=True)

    @at_the_call
    def submit_nowait(self, item: T, **options: Unpack[RequestOptions]) -> "asyncio.Future[R]":
        """The same without waiting, on the server's loop: the future's ``cancel()`` cancels the request.

        Raises:
            QueueFull, DeadlineExceeded, ItemTooLarge, ServerStopped, Exception: At the call, as for :meth:`submit`.
            RuntimeError: Called on another thread or loop.
        """
        if asyncio._get_running_loop() is not self._loop or self._loop is None:
            raise RuntimeError(f"{self.name}: submit_nowait is for the loop of the server; use submit_threadsafe")
        return self._enter(item, options, may_block=False)

    @at_the_call
    def submit_threadsafe(self, item: T, **options: Unpack[RequestOptions]) -> "concurrent.futures.Future[R]":
        """The same from any thread: all errors of the request are the future's, and its ``cancel()`` cancels it.

        Raises:
            ServerStopped: At the call, the server has stopped or was not started.
        """
        return self._on_its_loop(as_given(self.submit)(item, **options))

    @at_the_call
    def ask(self, item: T, timeout: float | None = None, **options: Unpack[AskOptions]) -> R:
        """Give the server an item and block until its value is available; for threads and synchronous programs.

        Args:
            item, options: See :meth:`submit`.
            timeout: Seconds; a request that is not done by then is cancelled. None waits as long as the server lives.

        Raises:
            AskTimeout: No value in time.
            RuntimeError: Called on the thread of the server's loop, where it would dead-lock.
            Exception: As for :meth:`submit`.
        """
        self._check_thread("ask", "await submit()")
        future = as_given(self.submit_threadsafe)(item, **options)
        try:
            return wait(future, timeout)
        except TimeoutError:
            if future.done() and not future.cancelled():  # come just now, or the request's own
                return future.result()
            future.cancel()
            raise AskTimeout(f"{self.name} returned no value within {timeout:g} s; the request was cancelled") from None
        except concurrent.futures.CancelledError:
            raise self._refusal() from None  # its loop has ended
        except BaseException:  # Ctrl-C: the waiter leaves, and with it the request
            future.cancel()
            raise

    # -- part by part --------------------------------------------------------------------------------------------------

    @at_the_call
    async def stream(
        self, item: T, *, buffer: int = BUFFER, patience: float | None = PATIENCE, **options: Unpack[RequestOptions]
    ) -> AsyncGenerator[Any, None]:
        """Give the server an item and read its answer part by part: ``async for part in server.stream(item)``.

        The parts are the items of the function's answer; an answer that is not an async iterator is the
        only part. Leaving the loop, or cancelling the task that reads, cancels the request and closes the iterator. As
        with all generators, that is when the generator itself is closed or dropped: if it has a name, read it
        ``async with contextlib.aclosing(stream)``.

        Args:
            item, options: See :meth:`submit`; a deadline applies to the last part.
            buffer: Parts that are made ahead of the reader at most. Beyond that this answer waits, while others
                continue.
            patience: Seconds that it waits at most; None: until the deadline, or as long as the server lives.

        Raises:
            SlowReader: The buffer was full for longer than ``patience``; raised after the parts in it.
            Exception: As for :meth:`submit`.
        """
        if asyncio.get_running_loop() is self._loop:
            reading = self._read(item, buffer, patience, options)
            try:
                while (part := await reading.next()) is not STREAMED:
                    yield part
            finally:
                reading.leave()
            return
        opened = self._on_its_loop(self._opened(item, buffer, patience, options))
        reading = await asyncio.wrap_future(opened)
        try:
            while (part := await asyncio.wrap_future(self._on_its_loop(reading.next()))) is not STREAMED:
                yield part
        finally:
            self._leave_from_elsewhere(reading)

    @at_the_call
    def iterate(
        self, item: T, *, buffer: int = BUFFER, patience: float | None = PATIENCE, **options: Unpack[RequestOptions]
    ) -> Generator[Any, None, None]:
        """The same for threads and synchronous programs: ``for part in server.iterate(item)``.

        Args:
            item, buffer, patience, options: See :meth:`stream`.

        Raises:
            RuntimeError: Called on the thread of the server's loop, where it would dead-lock.
            Exception: As for :meth:`stream`.
        """
        self._check_thread("iterate", "use stream()")
        reading = wait(self._on_its_loop(self._opened(item, buffer, patience, options)))
        try:
            while (part := wait(self._on_its_loop(reading.next()))) is not STREAMED:
                yield part
        except concurrent.futures.CancelledError:
            raise self._refusal() from None  # its loop has ended
        finally:
            self._leave_from_elsewhere(reading)

    def _read(self, item: T, buffer: int, patience: float | None, options: RequestOptions) -> Reading:
        outlet = Outlet(buffer, patience, self._clock)
        return Reading(outlet, self._enter(item, options, may_block=True, outlet=outlet))

    async def _opened(self, item: T, buffer: int, patience: float | None, options: RequestOptions) -> Reading:
        return self._read(item, buffer, patience, options)

    # -- threads -------------------------------------------------------------------------------------------------------

    def _check_thread(self, name: str, instead: str) -> None:
        if self._loop is not None and asyncio._get_running_loop() is self._loop:
            raise RuntimeError(f"{self.name}: {name}() on the server's own loop would dead-lock; {instead} instead")

    def _on_its_loop(self, work: Any) -> "concurrent.futures.Future[Any]":
        """Run a coroutine on the server's loop.

        Raises:
            ServerStopped: The server has stopped or was not started.
        """
        loop = self._loop
        if loop is None or self._stopping is not None or loop.is_closed():
            work.close()
            raise self._refusal()
        try:
            return asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:  # the loop was closed just now
            work.close()
            raise self._refusal() from None

    def _leave_from_elsewhere(self, reading: Reading) -> None:
        loop = self._loop
        assert loop is not None
        try:
            loop.call_soon_threadsafe(reading.leave)
        except RuntimeError:  # the loop is closed, and the request has ended with it
            return
