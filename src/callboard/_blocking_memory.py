"""Pools of host memory of :mod:`callboard.sync`, whose methods block."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from callboard._background import BackgroundLoop
from callboard.actors.handles import Handle
from callboard.core.dtype import DTypeLike
from callboard.device.client.memory import pinned
from callboard.device.client.memory.pinned import PinnedBuffer, PinnedStats

__all__ = ["PinnedBufferPool"]


class PinnedBufferPool(Handle):
    """Blocking :class:`callboard.PinnedBufferPool`; ``acquire`` blocks: ``with pool.acquire(n) as a:``."""

    def __init__(self, background: BackgroundLoop, pool: pinned.PinnedBufferPool) -> None:
        self._background = background
        self._pool = pool

    def acquire(
        self, shape: int | Sequence[int], dtype: DTypeLike = "f32", *, timeout: float | None = None
    ) -> PinnedBuffer:
        """A buffer for an array; waits in order of arrival at a limit. Errors as of the asynchronous pool."""
        return self._background.run(self._pool.acquire(shape, dtype, timeout=timeout))

    def stats(self) -> PinnedStats:
        """The current figures."""
        return self._background.run(_stats(self._pool))

    def trim(self) -> int:
        """Unmap the device's unused host memory; returns the number of bytes."""
        return self._background.run(_trim(self._pool))

    def close(self) -> None:
        """Stop lending; waiting calls fail with ``DeviceStopped``. Lent buffers stay valid."""
        self._background.run(_close(self._pool))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _stats(pool: pinned.PinnedBufferPool) -> PinnedStats:
    return pool.stats()


async def _trim(pool: pinned.PinnedBufferPool) -> int:
    return pool.trim()


async def _close(pool: pinned.PinnedBufferPool) -> None:
    pool.close()
