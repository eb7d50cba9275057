"""``PinnedBufferPool``: page-locked host arrays on loan, with a cap and a queue."""

import asyncio
import contextlib
import functools
import math
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np

from callboard.actors.handles import Handle
from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.errors import AskTimeout, DeviceStopped, MailboxFull, ShapeError
from callboard.core.layout import shape_of
from callboard.device.client.memory.quota import Quota
from callboard.device.protocol.arena import ArenaPool

__all__ = ["PinnedBuffer", "PinnedBufferPool", "PinnedStats"]

Array = np.ndarray[Any, Any]

QUICK = 32 << 20
"""Bytes of a buffer that may be made on the loop's thread: mapping and reserving takes up to half a second per GiB."""


class PinnedStats(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a pool.

    Attributes:
        in_use, bytes_in_use: Buffers that are out, and their bytes.
        waiting: Callers of ``acquire`` in the queue.
        peak_bytes: The most that ``bytes_in_use`` has been.
        acquired: Buffers handed out so far.
        waited: Number of acquired buffers whose callers had to wait.
        timed_out: Callers that left the queue without one.
        max_buffers, max_bytes: The caps; ``max_bytes`` is None if there is no limit of bytes.
        mapped_bytes: Host memory that the device keeps mapped for all its transfers, this pool's among them.
    """

    in_use: int
    bytes_in_use: int
    waiting: int
    peak_bytes: int
    acquired: int
    waited: int
    timed_out: int
    max_buffers: int
    max_bytes: int | None
    mapped_bytes: int


class PinnedBuffer:
    """A buffer on loan, as a context manager that gives its array: ``with await pool.acquire(n) as a:``.

    Its memory can be lent to another caller only after the array, its views and the transfers that use it have all
    ended: an array that is kept beyond the block stays valid, and still counts against the limit.

    Attributes:
        nbytes: Size in bytes.
    """

    def __init__(self, array: Array) -> None:
        self._array: Array | None = array
        self.nbytes = array.nbytes

    @property
    def array(self) -> Array:
        """The array: C-contiguous, page-locked if the device is a GPU, contents arbitrary.

        ``put`` reads it and ``get(out=...)`` writes it without a copy on the host.

        Raises:
            ValueError: The buffer has been released.
        """
        if self._array is None:
            raise ValueError("the buffer has been released; acquire another")
        return self._array

    def release(self) -> None:
        """Let go of the array; again is harmless."""
        self._array = None

    def __enter__(self) -> Array:
        return self.array

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class PinnedBufferPool(Handle):
    """Hands out a limited number of page-locked host arrays to callers in order of request.

    Created by ``dev.pinned_pool(max_buffers=8)``. Its memory is the device's (``max_staged_bytes``), which keeps it
    mapped and page-locked between loans. Buffers stay valid when contexts are replaced. Memory that a lost context may
    still write to is not lent again before its process has ended.

    Args:
        arenas: Pool of shared host memory that the buffers are taken from.
        loop: Event loop on whose thread the pool is used; buffers may be dropped on any thread.
        max_buffers, max_bytes: The caps.

    Raises:
        ValueError: A cap is less than 1.
    """

    def __init__(
        self, arenas: ArenaPool, loop: asyncio.AbstractEventLoop, max_buffers: int, max_bytes: int | None
    ) -> None:
        for name, cap in (("max_buffers", max_buffers), ("max_bytes", max_bytes)):
            if cap is not None and cap < 1:
                raise ValueError(f"pinned_pool: {name} is {cap}; it is at least 1")
        self._arenas = arenas
        self._loop = loop
        self._quota = Quota(max_buffers, max_bytes)
        self._returned: deque[int] = deque()  # bytes of buffers that finalizers have returned
        self._closed: str | None = None
        self._acquired = self._waited = self._timed_out = 0

    async def acquire(
        self, shape: int | Sequence[int], dtype: DTypeLike = "f32", *, timeout: float | None = None
    ) -> PinnedBuffer:
        """A buffer for an array; waits in line while the caps are reached.

        Args:
            shape: Extents.
            dtype: The dtype of the elements.
            timeout: Seconds to wait for a buffer; None waits without a limit, 0 does not wait.

        Raises:
            ShapeError: A negative extent, or more bytes than ``max_bytes``.
            AskTimeout: No buffer was returned in time.
            MailboxFull: The device's ``max_staged_bytes`` is reached, and no buffer of this pool is out.
            OutOfMemory: The host has no memory.
            DeviceStopped: The pool or the device is closed.
        """
        extents, kind = shape_of(shape), as_dtype(dtype)
        if any(n < 0 for n in extents):
            raise ShapeError(f"acquire: shape {extents}: extents are >= 0")
        nbytes = math.prod(extents) * kind.itemsize
        if not self._quota.fits(nbytes):
            raise ShapeError(
                f"acquire: {kind}{list(extents)} has {nbytes:,} bytes; the pool's max_bytes is "
                f"{self._quota.max_bytes:,}"
            )
        until = None if timeout is None else self._loop.time() + timeout
        waited = await self._granted(nbytes, until)
        while True:
            leased = await self._leased(extents, kind.np, nbytes)
            if isinstance(leased, np.ndarray):
                break
            if self._quota.out <= 1:
                self._give(nbytes)
                raise leased
            waited = await self._granted(nbytes, until, again=True)  # the memory is taken
        self._acquired += 1
        self._waited += waited
        return PinnedBuffer(leased)

    async def _granted(self, nbytes: int, until: float | None, again: bool = False) -> bool:
        """Wait for the quota's grant; returns whether it waited. ``again``: the granted memory was not available."""
        self._take_returned()
        if self._closed is not None:
            if again:
                self._give(nbytes)
            raise DeviceStopped(self._closed)
        mine: asyncio.Future[None] = self._loop.create_future()
        if again:
            self._quota.again(mine, nbytes)
        elif self._quota.ask(mine, nbytes):
            return False
        if self._returned:  # since they were taken above, by a thread that saw no waiter to wake
            self._wake()
        try:
            async with asyncio.timeout_at(until):
                await mine
        except BaseException as e:  # cancelled, too: others may be next now
            if not self._quota.give_up(mine) and not mine.cancelled():
                self._quota.give(nbytes)  # granted in the same moment
            self._wake()
            if isinstance(e, TimeoutError):
                self._timed_out += 1
                raise AskTimeout(self._all_out()) from None
            raise
        return True

    def _all_out(self) -> str:
        quota = self._quota
        return (
            f"no pinned buffer in time: {quota.out} of {quota.max_buffers} are out, with {quota.bytes_out:,} bytes; "
            "drop arrays that are no longer used, wait longer, or raise the caps"
        )

    async def _leased(self, shape: tuple[int, ...], dtype: "np.dtype[Any]", nbytes: int) -> Array | MailboxFull:
        """The memory of a grant. If it raises, the grant is returned.

        When there is no room now, the error is returned rather than raised: a raised error would keep alive the frames
        that it passed through, and with them the array that is granted later.
        """

        def back() -> None:
            self._back(nbytes)

        lease: asyncio.Future[Array] | None = None
        try:
            if nbytes <= QUICK:
                return self._arenas.lease(shape, dtype, back)
            lease = self._loop.run_in_executor(None, self._arenas.lease, shape, dtype, back)
            return await asyncio.shield(lease)
        except MailboxFull as e:
            return e.with_traceback(None)
        except asyncio.CancelledError:  # the thread continues; its lease is dropped, which returns the buffer
            assert lease is not None
            lease.add_done_callback(functools.partial(_gone, back))
            raise
        except BaseException:  # Ctrl-C, too: return the grant
            self._give(nbytes)
            raise
        finally:
            del lease

    def stats(self) -> PinnedStats:
        """Figures of now."""
        self._take_returned()
        quota = self._quota
        return PinnedStats(
            in_use=quota.out,
            bytes_in_use=quota.bytes_out,
            waiting=len(quota.waiting),
            peak_bytes=quota.most_bytes,
            acquired=self._acquired,
            waited=self._waited,
            timed_out=self._timed_out,
            max_buffers=quota.max_buffers,
            max_bytes=quota.max_bytes,
            mapped_bytes=self._arenas.stats.bytes,
        )

    def trim(self) -> int:
        """Unmap the device's unused host memory; returns the number of bytes."""
        self._take_returned()
        return self._arenas.trim()

    def close(self, why: str = "the pool is closed") -> None:
        """Stop handing out buffers; waiting calls fail with ``DeviceStopped``. Buffers in use stay valid."""
        self._closed = self._closed or why
        for mine in list(self._quota.waiting):
            assert isinstance(mine, asyncio.Future)
            if not mine.done():
                mine.set_exception(DeviceStopped(self._closed))

    # -- buffers that come back ----------------------------------------------------------------------------------------

    def _back(self, nbytes: int) -> None:
        """A buffer is garbage; on any thread, from its finalizer, which must not wait."""
        self._returned.append(nbytes)
        if self._quota.waiting:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so all waiters have left
                self._loop.call_soon_threadsafe(self._wake)

    def _take_returned(self) -> None:
        while self._returned:
            self._quota.give(self._returned.popleft())

    def _give(self, nbytes: int) -> None:
        self._quota.give(nbytes)
        self._wake()

    def _wake(self) -> None:
        """Wake the waiters whose requests can be granted now."""
        self._take_returned()
        while granted := self._quota.grant():
            for mine, nbytes in granted:
                assert isinstance(mine, asyncio.Future)
                if mine.done():  # it has left, and not run since
                    self._quota.give(nbytes)
                else:
                    mine.set_result(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _gone(back: Callable[[], None], lease: "asyncio.Future[Array]") -> None:
    """Drop the array of a lease whose waiter has left, which returns it."""
    if not lease.cancelled() and lease.exception() is not None:
        back()
