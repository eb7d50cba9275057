"""Blocks of device memory: a caching pool, and the hazards of each block.

Hazards belong to the memory, not to the array in it: they stay with a block when it goes back to the pool, so whoever
gets it next is just another writer and waits for the last users by the same rule. Nothing here ever waits on the host.

Loops whose arrays stay where they are use the same blocks again and again. That the buffers are there, that the
operands lie inside them, and what addresses that makes, holds as long as the buffers are the same: ids are never used
again, and the memory of a buffer does not move. So it is kept (:class:`Bindings`). What may have changed is looked at
each time: who owes the contents, and whom to wait for.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from callboard.core.backend import AccelDevice, Memory
from callboard.core.errors import OutOfMemory
from callboard.device.context.pending import Pending
from callboard.device.context.tracks import Track

__all__ = ["Binding", "Bindings", "Block", "BlockPool", "Use", "size_class"]

SEEN = 256
"""Places of one plan that are remembered; beyond that it begins anew."""


class Block:
    """Memory, who used it last, and who owes its contents.

    Attributes:
        address, nbytes: Where; ``nbytes`` is what was asked for, the memory may be larger.
        writer, wrote: Track and ticket of the last writer.
        readers: Ticket of the last read since, by track.
        source: The op that wrote it last, as long as that matters for verdicts.
        only: The track that all its uses in flight are of; None where there may be several, or somebody else's.
        lent: Native streams of borrowers: what they enqueue there counts as written at any time.
        buffer: The buffer of an op's that it is now; 0 of others, and while nobody can name it.
    """

    __slots__ = ("address", "buffer", "lent", "memory", "nbytes", "only", "readers", "source", "writer", "wrote")

    def __init__(self, memory: Memory, nbytes: int) -> None:
        self.memory = memory
        self.address = memory.address
        self.nbytes = nbytes
        self.writer: Track | None = None
        self.wrote = 0
        self.readers: dict[Track, int] = {}
        self.source: Pending | None = None
        self.only: Track | None = None
        self.lent: tuple[int, ...] = ()
        self.buffer = 0

    def enter(self, track: Track, writes: bool) -> None:
        """Make ``track`` run after whoever it has to; not needed while ``only`` is that track."""
        if writes:
            self.before_write(track)
            alone = True
        else:
            self.before_read(track)
            writer = self.writer
            alone = (writer is None or writer is track or self.wrote <= writer.completed) and all(
                reader is track or ticket <= reader.completed for reader, ticket in self.readers.items()
            )
        self.only = track if alone and not self.lent else None

    def before_read(self, track: Track) -> None:
        """Make ``track`` run after the last writer."""
        if self.lent:
            for native in self.lent:
                track.stream.follow(native)
        if self.writer is not None and self.writer is not track:
            track.follow(self.writer, self.wrote)

    def before_write(self, track: Track) -> None:
        """Make ``track`` run after the last writer and all readers since."""
        self.before_read(track)
        for reader, ticket in self.readers.items():
            if reader is not track:
                track.follow(reader, ticket)
        self.readers.clear()

    def give(self, pool: "BlockPool") -> bool:
        """The application has freed the buffer; True when nobody can name it any more."""
        if self.memory.nbytes:
            pool.give(self)
        return True

    def idle(self) -> bool:
        """Whether nothing in flight uses it."""
        return (self.writer is None or self.wrote <= self.writer.completed) and all(
            ticket <= track.completed for track, ticket in self.readers.items()
        )


class Use(NamedTuple):
    """A block that a call uses.

    Attributes:
        block: It.
        buffer: The buffer that it was.
        writes: The op writes it.
        heeds: What was written there before matters: it is read, or overwritten in part only.
    """

    block: Block
    buffer: int
    writes: bool
    heeds: bool


class Binding(NamedTuple):
    """Places that have been resolved.

    Attributes:
        values: Arguments of the launch, with addresses.
        uses: The blocks that they lie in.
    """

    values: list[Any]
    uses: list[Use]


class Bindings:
    """Those of one plan. Made when places come for the second time: most never do where arrays are made anew.

    Attributes:
        by_places: All of them; None for places that have come once.
    """

    __slots__ = ("by_places",)

    def __init__(self) -> None:
        self.by_places: dict[tuple[int, ...], Binding | None] = {}

    def resolved(self, places: tuple[int, ...], values: list[Any], uses: list[Use]) -> None:
        """These places have come, and come to this."""
        by_places = self.by_places
        if places in by_places:
            if all(block.buffer == buffer for block, buffer, _, _ in uses):  # blocks of others have no name there
                by_places[places] = Binding(values.copy(), uses.copy())
        else:
            if len(by_places) >= SEEN:
                by_places.clear()
            by_places[places] = None


class BlockPool:
    """Takes blocks from the device and keeps those given back, by size class, last in first out.

    Attributes:
        limit: Bytes that may be in use at once, None for all there is.
        used: Bytes in use (of whole blocks).
        cached: Bytes kept for reuse.
    """

    def __init__(self, device: AccelDevice, limit: int | None) -> None:
        self._device = device
        self._free: dict[int, list[Block]] = {}
        self.limit = limit
        self.used = 0
        self.cached = 0

    def take(self, nbytes: int) -> Block:
        """A block of at least ``nbytes``.

        Raises:
            OutOfMemory: Neither the cache nor the device has one, or the limit is reached.
        """
        size = size_class(nbytes)
        kept = self._free.get(size)
        limit = self.limit
        if limit is not None:
            if not kept and self.used + self.cached + size > limit:
                self.trim()
            if self.used + (0 if kept else self.cached) + size > limit:
                raise OutOfMemory(
                    f"{nbytes:,} bytes asked for, {self.used:,} in use, memory_limit is {limit:,}; "
                    "free refs or raise the limit"
                )
        if kept:
            block = kept.pop()
            self.cached -= size
            block.nbytes = nbytes
        else:
            block = Block(self._allocate(size), nbytes)
        self.used += size
        return block

    def has(self, nbytes: int) -> bool:
        """Whether a block of this size is kept, so that :meth:`take` need not ask the device."""
        return bool(self._free.get(size_class(nbytes)))

    def furnish(self, block: Block) -> int:
        """Give memory to a block that has none; its address. Raises as :meth:`take`."""
        taken = self.take(block.nbytes)
        block.memory, block.address = taken.memory, taken.address
        block.writer, block.wrote, block.readers, block.only = taken.writer, taken.wrote, taken.readers, taken.only
        return block.address

    def adopt(self, block: Block) -> None:
        """Count a block that came from elsewhere as in use."""
        self.used += block.memory.nbytes

    def give(self, block: Block) -> None:
        """Keep a block for reuse; its hazards stay with it."""
        size = block.memory.nbytes
        self.used -= size
        self.cached += size
        block.source = None
        block.buffer = 0
        self._free.setdefault(size, []).append(block)

    def trim(self) -> None:
        """Give cached blocks that nothing in flight uses back to the device."""
        for size, kept in list(self._free.items()):
            busy: list[Block] = []
            for block in kept:
                if block.idle():
                    self.cached -= size
                    self._device.release(block.memory)
                else:
                    busy.append(block)
            if busy:
                self._free[size] = busy
            else:
                del self._free[size]

    def busy(self) -> Iterator[Block]:
        """Cached blocks that something in flight still uses."""
        return (b for kept in self._free.values() for b in kept if not b.idle())

    def _allocate(self, size: int) -> Memory:
        try:
            return self._device.allocate(size)
        except OutOfMemory:
            self.trim()
            return self._device.allocate(size)


def size_class(nbytes: int) -> int:
    """``nbytes`` rounded up to one of eight sizes per doubling (at most 12.5 % lost), at least 512."""
    if nbytes <= 512:
        return 512
    step = max(1 << (nbytes - 1).bit_length() - 4, 256)
    return -(-nbytes // step) * step
