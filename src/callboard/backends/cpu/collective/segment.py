"""The shared memory of a rank: slots for chunks addressed to each other rank, counters, and a semaphore.

Rank ``s`` has for each rank ``d`` a ring of :data:`SLOTS` slots. It fills them in turn and counts them in
``posted[d]``; ``d`` empties them and counts them in its own ``taken[s]``. Each counter has one writer, so there is no
lock that a killed process could hold. A rank that changes a counter posts the semaphore of the rank that reads it.
"""

import threading
from typing import Any

import msgspec
import numpy as np

from callboard.backends.cpu.collective.semaphore import SEMAPHORE_BYTES, make_semaphore, post
from callboard.backends.cpu.mappings import Mapping, new_mapping, opened_mapping
from callboard.backends.cpu.views import array_at
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of

__all__ = ["FORMATION", "LEFT", "LOST", "SLOTS", "Address", "Fence", "Segment", "chunk_bytes"]

SLOTS = 2
PAGE = 4096
CHUNK, RANK_MEMORY = 256 << 10, 8 << 20
"""Bytes of a slot, and of all of a rank's slots together, at most."""
LEFT, LOST, FORMATION = 0, 1, 2
"""Words for: the rank has left, the rank whose loss is the reason, the formation."""


class Address(msgspec.Struct, frozen=True, array_like=True):
    """Information with which another rank opens a segment.

    Attributes:
        path: Path of the memory's file.
        pid, started: The process of the rank, and when it was started.
        machine: Identity of the machine on which ``path`` is valid.
        host, port, secret: Address and secret for ranks of other machines; port 0: not reachable.
    """

    path: str
    pid: int
    started: int
    machine: str
    host: str = ""
    port: int = 0
    secret: bytes = b""


def chunk_bytes(size: int) -> int:
    """Bytes of a slot in a world of this size."""
    return max(PAGE, min(CHUNK, RANK_MEMORY // (SLOTS * size) // PAGE * PAGE))


class Segment:
    """The shared memory of one rank, as its owner or another rank has it mapped.

    Args:
        size: Number of ranks.
        path: Path of another rank's segment; None creates a new one.

    Attributes:
        path: Path under which other ranks open it.
        words: ``[LEFT]``: 1 when the rank has left; ``[LOST]``, ``[FORMATION]``: the lost rank, plus 1, and the
            formation.
        posted: Chunks that this rank has left for each other, ever.
        taken: Chunks that this rank has taken from each other, ever.
        tags: Tag of slot ``slot`` for rank ``d``, at ``d * SLOTS + slot``: the call that the chunk belongs to.
        lengths: Bytes of that chunk, likewise.

    Raises:
        OutOfMemory, DriverError, UnsupportedOp
    """

    def __init__(self, size: int, path: str | None = None) -> None:
        self._chunk = chunk_bytes(size)
        counters = 8 * (2 * size + 2 * size * SLOTS)
        self._slots = -(-(2 * SEMAPHORE_BYTES + counters) // PAGE) * PAGE
        nbytes = self._slots + size * SLOTS * self._chunk
        self._mapping: Mapping = new_mapping(nbytes) if path is None else opened_mapping(path, nbytes)
        self.path = self._mapping.path if path is None else path
        base = self._mapping.address
        self._semaphore = base + SEMAPHORE_BYTES
        words = memoryview(self._bytes(0, self._slots)).cast("Q")  # type: ignore[arg-type]
        at = 2 * SEMAPHORE_BYTES // 8
        self.words = words[: SEMAPHORE_BYTES // 8]
        self.posted = words[at : at + size]
        self.taken = words[at + size : at + 2 * size]
        self.tags = words[at + 2 * size : at + (2 + SLOTS) * size]
        self.lengths = words[at + (2 + SLOTS) * size : at + (2 + 2 * SLOTS) * size]
        if path is None:
            make_semaphore(self._semaphore)

    @property
    def semaphore(self) -> int:
        """Address of its semaphore."""
        return self._semaphore

    def slot(self, rank: int, number: int) -> "np.ndarray[Any, Any]":
        """Return the bytes of the slot for the chunk with this number for a rank."""
        return self._bytes(self._slots + (rank * SLOTS + number % SLOTS) * self._chunk, self._chunk)

    def wake(self) -> None:
        """Wake its rank to check its condition again."""
        post(self._semaphore)

    def close(self) -> None:
        """Prevent further ranks from opening it; existing mappings stay valid."""
        self._mapping.close()

    def _bytes(self, offset: int, nbytes: int) -> "np.ndarray[Any, Any]":
        return array_at(self._mapping.address + offset, layout_of(DTYPES["u8"], (nbytes,)))


class Fence:
    """Orders a thread's reads and writes of shared memory before :meth:`__call__` with those after it.

    Releasing a lock keeps earlier accesses before it, acquiring one keeps later accesses after it, and the second
    acquisition follows the release, also on processors that reorder (ARM). The lock is private to the thread.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            pass
        with self._lock:
            pass
