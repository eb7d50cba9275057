"""``StreamAllocator``: which actor enqueues on which stream."""

import abc
import itertools
from collections.abc import Callable
from typing import Any

from callboard.core.backend import AccelStream

__all__ = [
    "CHAINED",
    "ChainedAllocator",
    "NewStream",
    "PerActorAllocator",
    "PooledAllocator",
    "SingleStreamAllocator",
    "StreamAllocator",
]

CHAINED = frozenset(
    ("array", "attention", "blas", "blas_lt", "cub", "dnn", "elementwise", "fft", "module", "nvrtc", "rng", "tensor")
)
"""Libraries whose ops are short, and mostly use the output of an op of another of them."""

NewStream = Callable[[int], AccelStream]
"""Makes a stream of a priority: -1 low, 0 normal, 1 high."""


class StreamAllocator(abc.ABC):
    """Assigns a stream to each actor of a context: to each library, and to each resident actor.

    Pass an object as ``streams=`` of a device. Each context has a copy of it, made by pickle in the context's process;
    keep streams only in attributes that :meth:`acquire` sets. It is called on one thread.
    """

    @abc.abstractmethod
    def acquire(self, actor: str, priority: int, new: NewStream) -> AccelStream:
        """The stream of an actor: of ``new(priority)``, or one that was made by ``new`` before and not closed.

        Args:
            actor: Name of the library (``"blas"``, ``"memory.d2h"`` for a second stream of one) or of the resident
                actor.
            priority: Priority of the setting ``priorities``.
            new: Makes a stream. It raises ``OutOfMemory`` or ``DriverError``, which may be passed on.
        """

    def release(self, stream: AccelStream) -> bool:
        """An actor that had this stream has ended, and the stream is idle.

        Returns:
            True if the stream is to be closed. No other actor may have it then.
        """
        return False


class PerActorAllocator(StreamAllocator):
    """A stream for each actor: different libraries run concurrently."""

    def acquire(self, actor: str, priority: int, new: NewStream) -> AccelStream:
        return new(priority)

    def release(self, stream: AccelStream) -> bool:
        return True


class ChainedAllocator(StreamAllocator):
    """One stream for the libraries of :data:`CHAINED`, one of its own for each other actor.

    An op that uses the output of another stream costs an event and a wait, several times the cost of its launch. Copies
    still overlap with computation, and a long factorization delays no other op. Actors with a priority other than 0 get
    a stream of their own.
    """

    def __init__(self) -> None:
        self._chain: AccelStream | None = None

    def acquire(self, actor: str, priority: int, new: NewStream) -> AccelStream:
        if actor not in CHAINED or priority:
            return new(priority)
        if self._chain is None:
            self._chain = new(0)
        return self._chain

    def release(self, stream: AccelStream) -> bool:
        return stream is not self._chain


class SingleStreamAllocator(StreamAllocator):
    """One stream for all: nothing runs concurrently, nothing ever waits for an event."""

    def __init__(self) -> None:
        self._stream: AccelStream | None = None

    def acquire(self, actor: str, priority: int, new: NewStream) -> AccelStream:
        if self._stream is None:
            self._stream = new(0)
        return self._stream


class PooledAllocator(StreamAllocator):
    """A fixed number of streams, in turn; actors with a priority other than 0 get one of their own.

    Args:
        size: The number of streams.

    Raises:
        ValueError: It is not a whole number, or less than 1.
    """

    def __init__(self, size: int = 4) -> None:
        given: Any = size
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            raise ValueError(
                f"the size of a PooledAllocator (pooled_streams) is {size!r}; it is a whole number, at least 1"
            )
        self._pool: list[AccelStream] = []
        self._size = size
        self._turn = itertools.count()

    def acquire(self, actor: str, priority: int, new: NewStream) -> AccelStream:
        if priority:
            return new(priority)
        if len(self._pool) < self._size:
            self._pool.append(new(0))
            return self._pool[-1]
        return self._pool[next(self._turn) % self._size]

    def release(self, stream: AccelStream) -> bool:
        return not any(stream is pooled for pooled in self._pool)
