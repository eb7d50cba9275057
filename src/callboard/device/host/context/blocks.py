"""Blocks of device memory: a caching pool, and the hazards of each block.

Hazards belong to the memory, not to the array in it: they stay with a block when it goes back to the pool, so the op
that gets it next is just another writer and waits for the last users by the same rule. Nothing here waits on the host.

Loops whose arrays stay in place use the same blocks repeatedly. While the buffers are the same, they exist, the
operands lie inside them, and their addresses do not change: ids are never reused, and the memory of a buffer does not
move. These results are therefore cached (:class:`BindingCache`). The parts that may have changed are checked each time:
the op that produces the contents, and the timelines to wait for.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from callboard.core.backend import AccelDevice, Memory
from callboard.core.errors import OutOfMemory
from callboard.device.host.context.pending import Pending
from callboard.device.host.context.timelines import Timeline

__all__ = ["SPARES", "BindingCache", "Block", "BlockPool", "BlockUse", "MemoryWatch", "Resolved", "size_class"]

SEEN = 256
"""Bindings of one plan that are kept; when there are more, the cache is cleared."""


SPARES = 8
"""Most cached blocks of one size before a block that another timeline still uses is taken again.

A new block avoids that the copies of a pipeline wait for its computing. A pipeline needs two blocks (input and output)
per item in flight.
"""

RESERVE = 8
"""A new block instead of one in use elsewhere is allocated only while 1 / RESERVE of the device's memory stays free."""


class Block:
    """Memory, its last users, and the op that produces its contents.

    Attributes:
        address, nbytes: Address of the memory, and the bytes requested; the memory may be larger.
        writer, wrote: Timeline and sequence number of the last writer.
        readers: Sequence number of the last read since, by timeline.
        source: The op that wrote it last, as long as that matters for completions.
        only: The only timeline with uses in flight; None if there may be several, or external ones.
        lent: Native streams of borrowers; work on them counts as a write at any time.
        buffer: Id of the buffer that it holds now, if an op made that; 0 otherwise, and while it has no ref.
        unwritten: Id of the op that made the buffer without writing it; 0 if another one did.
    """

    __slots__ = (
        "address",
        "buffer",
        "lent",
        "memory",
        "nbytes",
        "only",
        "readers",
        "source",
        "unwritten",
        "writer",
        "wrote",
    )

    def __init__(self, memory: Memory, nbytes: int) -> None:
        self.memory = memory
        self.address = memory.address
        self.nbytes = nbytes
        self.writer: Timeline | None = None
        self.wrote = 0
        self.readers: dict[Timeline, int] = {}
        self.source: Pending | None = None
        self.only: Timeline | None = None
        self.lent: tuple[int, ...] = ()
        self.buffer = self.unwritten = 0

    def enter(self, timeline: Timeline, writes: bool) -> None:
        """Make ``timeline`` wait for the users that it conflicts with; not needed while ``only`` is that timeline."""
        if writes:
            self.before_write(timeline)
            alone = True
        else:
            self.before_read(timeline)
            writer = self.writer
            alone = (writer is None or writer is timeline or self.wrote <= writer.completed) and all(
                reader is timeline or seq <= reader.completed for reader, seq in self.readers.items()
            )
        self.only = timeline if alone and not self.lent else None

    def before_read(self, timeline: Timeline) -> None:
        """Make ``timeline`` run after the last writer."""
        if self.lent:
            for native in self.lent:
                timeline.stream.follow(native)
        if self.writer is not None and self.writer is not timeline:
            timeline.follow(self.writer, self.wrote)

    def before_write(self, timeline: Timeline) -> None:
        """Make ``timeline`` run after the last writer and all readers since; the write is enqueued next."""
        self.after_users(timeline)
        self.readers.clear()

    def after_users(self, timeline: Timeline) -> None:
        """Make ``timeline`` run after the last writer and all readers since, which stay users: :meth:`idle`."""
        self.before_read(timeline)
        for reader, seq in self.readers.items():
            if reader is not timeline:
                timeline.follow(reader, seq)

    def give(self, pool: "BlockPool") -> bool:
        """The application has freed the buffer; True when no ref to it is left."""
        if self.memory.nbytes:
            pool.give(self)
        return True

    def idle(self) -> bool:
        """True if nothing in flight uses it."""
        return (self.writer is None or self.wrote <= self.writer.completed) and all(
            seq <= timeline.completed for timeline, seq in self.readers.items()
        )


class BlockUse(NamedTuple):
    """A block that a call uses.

    Attributes:
        block: The block.
        buffer: Id of the buffer that it held then.
        writes: True if the op writes it.
        reads_contents: True if its earlier contents matter: it is read, or only partly overwritten.
    """

    block: Block
    buffer: int
    writes: bool
    reads_contents: bool


class Resolved(NamedTuple):
    """Resolved operand bindings.

    Attributes:
        values: Arguments of the launch, with addresses.
        uses: The blocks that contain the operands.
    """

    values: list[Any]
    uses: list[BlockUse]


class BindingCache:
    """The resolved bindings of one plan.

    Bindings are stored on their second use: if arrays are allocated anew each time, most bindings are used only once.

    Attributes:
        by_bindings: Cached results by operand bindings; None for bindings that were seen once.
    """

    __slots__ = ("by_bindings",)

    def __init__(self) -> None:
        self.by_bindings: dict[tuple[int, ...], Resolved | None] = {}

    def resolved(self, bindings: tuple[int, ...], values: list[Any], uses: list[BlockUse]) -> None:
        """Cache the resolution of these bindings."""
        by_bindings = self.by_bindings
        if bindings in by_bindings:
            if all(block.buffer == buffer for block, buffer, _, _ in uses):  # not so for blocks that no op made
                by_bindings[bindings] = Resolved(values.copy(), uses.copy())
        else:
            if len(by_bindings) >= SEEN:
                by_bindings.clear()
            by_bindings[bindings] = None


class BlockPool:
    """Takes blocks from the device and caches freed ones, by size class, last in first out.

    The last one is passed over while another timeline still uses it (:data:`SPARES`).

    Attributes:
        limit: Most bytes in use at once; None for no limit.
        used: Bytes in use (of whole blocks); ``asked`` is the number of bytes requested, ``most`` the maximum of
            ``used``.
        cached: Bytes kept for reuse.
        hits, misses: Blocks taken from the cache, and from the device.
        trimmed: Bytes returned to the device so far.
        release: Gives memory back to the device.
    """

    def __init__(self, device: AccelDevice, limit: int | None) -> None:
        self._device = device
        self._free: dict[int, list[Block]] = {}
        self.limit = limit
        self.used = self.asked = self.most = 0
        self.cached = 0
        self.hits = self.misses = self.trimmed = 0
        self.release: Callable[[Memory], None] = device.release

    def take(self, nbytes: int, timeline: Timeline | None = None) -> Block:
        """A block of at least ``nbytes``.

        Args:
            nbytes: Bytes needed.
            timeline: The timeline that writes it first and should not wait for other timelines; None: it may wait.

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
                    f"{nbytes:,} bytes requested, {self.used:,} in use, memory_limit is {limit:,}; "
                    "free refs or raise the limit"
                )
        block = None if not kept else self._kept(kept, size, timeline)
        if block is None:
            block = Block(self._allocate(size), nbytes)
            self.misses += 1
        else:
            self.cached -= size
            self.hits += 1
            block.nbytes = nbytes
        self.used += size
        self.asked += nbytes
        if self.used > self.most:
            self.most = self.used
        return block

    def _kept(self, kept: list[Block], size: int, timeline: Timeline | None) -> Block | None:
        """A cached block; None: a new one should be allocated."""
        last = kept[-1]
        if timeline is None or last.only is timeline or last.idle():
            return kept.pop()
        if kept[0].idle() or len(kept) >= SPARES or not self._plenty(size):
            return kept.pop(0)  # its work finishes first
        return None

    def _plenty(self, size: int) -> bool:
        """True if the device still has free memory after an allocation of this size."""
        if self.limit is not None and self.used + self.cached + size > self.limit:
            return False
        free, total = self._device.memory_info()
        return free - size >= total // RESERVE

    def sort(self, sizes: Iterable[int]) -> None:
        """Serve requests of these sizes in the order of addresses, until further blocks are freed.

        Repeated requests therefore get the same blocks again, if the same ones are free.
        """
        for size in {size_class(nbytes) for nbytes in sizes}:
            kept = self._free.get(size)
            if kept is not None:
                kept.sort(key=attrgetter("address"), reverse=True)

    def has(self, nbytes: int) -> bool:
        """True if a block of this size is cached, so :meth:`take` need not call the device."""
        return bool(self._free.get(size_class(nbytes)))

    def allocate(self, block: Block) -> int:
        """Give memory to a block that has none; returns the address. Raises as :meth:`take`."""
        taken = self.take(block.nbytes)
        block.memory, block.address = taken.memory, taken.address
        block.writer, block.wrote, block.readers, block.only = taken.writer, taken.wrote, taken.readers, taken.only
        return block.address

    def adopt(self, block: Block) -> None:
        """Count an external block as in use."""
        self.used += block.memory.nbytes
        self.asked += block.nbytes
        self.most = max(self.most, self.used)

    def give(self, block: Block) -> None:
        """Keep a block for reuse; its hazards stay with it."""
        size = block.memory.nbytes
        self.used -= size
        self.asked -= block.nbytes
        self.cached += size
        block.source = None
        block.buffer = 0
        self._free.setdefault(size, []).append(block)

    def trim(self, keep: int = 0) -> None:
        """Release cached blocks that nothing in flight uses, the largest first, down to ``keep`` bytes."""
        for size in sorted(self._free, reverse=True):
            kept = self._free[size]
            left: list[Block] = []
            while kept:
                block = kept.pop(0)  # the one that was used longest ago
                if self.cached > keep and block.idle():
                    self.cached -= size
                    self.trimmed += size
                    self.release(block.memory)
                else:
                    left.append(block)
            if left:
                self._free[size] = left
            else:
                del self._free[size]

    def classes(self) -> dict[int, tuple[int, int]]:
        """Return the cached blocks by size in bytes: their number, and how many of them work in flight still uses."""
        return {size: (len(kept), sum(not block.idle() for block in kept)) for size, kept in self._free.items()}

    def busy(self) -> Iterator[Block]:
        """Cached blocks that something in flight still uses."""
        return (b for kept in self._free.values() for b in kept if not b.idle())

    def _allocate(self, size: int) -> Memory:
        try:
            return self._device.allocate(size)
        except OutOfMemory:
            self.trim()
            return self._device.allocate(size)


@functools.lru_cache(maxsize=1024)
def size_class(nbytes: int) -> int:
    """``nbytes`` rounded up to one of eight sizes per doubling (at most 12.5 % lost), at least 512."""
    if nbytes <= 512:
        return 512
    step = max(1 << (nbytes - 1).bit_length() - 4, 256)
    return -(-nbytes // step) * step


class MemoryWatch:
    """Decides whether the use of device memory has changed enough to be reported.

    Args:
        step: Bytes; smaller changes are not reported.
    """

    __slots__ = ("_told", "step")

    def __init__(self, step: int) -> None:
        self.step = step
        self._told: int | None = None

    def changed(self, used: int) -> bool:
        """True if a changed use of ``used`` bytes is to be reported; always the first time."""
        if self._told is not None and abs(used - self._told) < self.step:
            return False
        self._told = used
        return True
