"""Assignment of pages to sequences: allocation, prefix sharing, copy-on-write, eviction. Pure.

A page is *free*, *used* (by one sequence or several), or *kept*: no sequence has it, but it holds a full page of a
known prefix, which a later sequence may take up again. Kept pages are given to others when no free one is left, the
one used least recently first (Kwon et al., "PagedAttention", arXiv:2309.06180, and vLLM's automatic prefix caching).
"""

import hashlib
import struct
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from callboard.core.errors import OutOfMemory, ShapeError

__all__ = ["BlockPool", "Extension", "KvCacheStats", "Request"]


class KvCacheStats(NamedTuple):
    """The contents of a cache, and its counters since it was made.

    Attributes:
        blocks: Pages in all.
        free: Pages that hold nothing.
        kept: Pages that hold a prefix and that no sequence has.
        used: Pages that sequences have; a shared one counts once.
        sequences: The sequences that are open.
        hits, misses: Full pages of prefixes that a new sequence found, and that it did not find.
        evictions: Kept pages that were given to others.
        copies: Pages that were copied before a write, because other sequences had them, too.
    """

    blocks: int
    free: int
    kept: int
    used: int
    sequences: int
    hits: int
    misses: int
    evictions: int
    copies: int


class Request(NamedTuple):
    """``new`` tokens to append to a sequence; with their ids if its pages may be shared."""

    sequence: int
    new: int
    tokens: tuple[int, ...] | None = None


class Extension(NamedTuple):
    """Room for the tokens of some requests, in their order.

    Attributes:
        requests: The requests, unchanged.
        slots: Destination of each token, ``block * block_size + position``.
        copies: Pages to copy before anything is written: ``(source, target)``.
        before: For each request, the previous pages and length of its sequence.
    """

    requests: tuple[Request, ...]
    slots: list[int]
    copies: list[tuple[int, int]]
    before: list[tuple[list[int], int]]


class Held:
    """A sequence.

    Attributes:
        blocks: Its pages, in order.
        length: Tokens that are written.
        names: Names of its full pages, as far as its tokens are known.
        rest: Known tokens after those.
        known: All its tokens are known so far.
        busy: True while room is reserved for it that is neither written nor released.
    """

    __slots__ = ("blocks", "busy", "known", "length", "names", "rest", "salt")

    def __init__(self, salt: bytes, known: bool) -> None:
        self.blocks: list[int] = []
        self.length = 0
        self.names: list[bytes] = []
        self.rest: list[int] = []
        self.salt = salt
        self.known = known
        self.busy = False


class BlockPool:
    """Decides over the pages of a cache.

    Args:
        blocks: Pages.
        block_size: Tokens in a page.
        sharing: Full pages of equal prefixes are shared.
    """

    def __init__(self, blocks: int, block_size: int, sharing: bool = True) -> None:
        self.block_size = block_size
        self._count = blocks
        self._sharing = sharing
        self._free = list(range(blocks - 1, -1, -1))
        self._users = [0] * blocks
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._by_name: dict[bytes, int] = {}
        self._names: dict[int, bytes] = {}
        self._held: dict[int, Held] = {}
        self._next = 0
        self._hits = self._misses = self._evictions = self._copies = 0

    # -- sequences -----------------------------------------------------------------------------------------------------

    def open(self, tokens: Sequence[int] | None = None, salt: bytes = b"") -> tuple[int, int]:
        """A new sequence, and how many of its first tokens are in pages already.

        Args:
            tokens: Ids of its prompt, where pages may be shared. At least one is left to be computed.
            salt: Sequences share pages only if their salts are equal.
        """
        number, self._next = self._next, self._next + 1
        held = self._held[number] = Held(salt, tokens is not None)
        if tokens is None or not self._sharing:
            return number, 0
        size = self.block_size
        for at in range((len(tokens) - 1) // size):
            name = _name(held.names[-1] if held.names else b"", salt, tokens[at * size : (at + 1) * size])
            block = self._by_name.get(name)
            if block is None:
                self._misses += (len(tokens) - 1) // size - at
                break
            self._hits += 1
            self._take_up(block)
            held.blocks.append(block)
            held.names.append(name)
        held.length = len(held.blocks) * size
        return number, held.length

    def fork(self, sequence: int) -> int:
        """A sequence with the same tokens; it shares all pages until one of both writes to the last one."""
        held = self._idle(sequence)
        number, self._next = self._next, self._next + 1
        child = self._held[number] = Held(held.salt, held.known)
        child.blocks, child.length = list(held.blocks), held.length
        child.names, child.rest = list(held.names), list(held.rest)
        for block in held.blocks:
            self._users[block] += 1
        return number

    def truncate(self, sequence: int, length: int) -> None:
        """Truncate the sequence to a number of tokens.

        Raises:
            ShapeError: It has fewer.
        """
        held = self._idle(sequence)
        if not 0 <= length <= held.length:
            raise ShapeError(f"length is {length}; sequence {sequence} has {held.length} tokens")
        size = self.block_size
        full, rest = divmod(length, size)
        self._give_back(held.blocks[-(-length // size) :])
        del held.blocks[-(-length // size) :]
        if full == len(held.names):
            del held.rest[rest:]
        else:  # the tokens of a full page are not kept apart from its name
            held.known = held.known and rest == 0
            held.rest = []
        del held.names[full:]
        held.length = length

    def close(self, sequence: int) -> None:
        """Release the pages of a sequence."""
        held = self._idle(sequence)
        del self._held[sequence]
        self._give_back(held.blocks)

    # -- growth --------------------------------------------------------------------------------------------------------

    def extend(self, requests: Iterable[Request]) -> Extension:
        """Make room for new tokens, of all requests or of none.

        Their sequences are blocked until :meth:`commit` or :meth:`cancel`.

        Raises:
            OutOfMemory: There are not enough pages.
            ShapeError: A sequence is named twice, or a request does not fit.
        """
        wanted = tuple(requests)
        needed = 0
        leaving: Counter[int] = Counter()
        for request in wanted:
            held = self._idle(request.sequence)
            if request.new < 0 or (request.tokens is not None and len(request.tokens) != request.new):
                raise ShapeError(f"sequence {request.sequence}: count is {request.new}, tokens are {request.tokens}")
            needed += self._needs(held, request.new, leaving)
        if len({request.sequence for request in wanted}) < len(wanted):
            raise ShapeError(f"sequences are {[r.sequence for r in wanted]}; one is named twice")
        if needed > self.available:
            raise OutOfMemory(
                f"{needed} pages of {self.block_size} tokens are needed and {self.available} of {self._count} are "
                f"free: free sequences, or make the cache larger"
            )
        slots: list[int] = []
        copies: list[tuple[int, int]] = []
        before: list[tuple[list[int], int]] = []
        size = self.block_size
        leaving.clear()
        for request in wanted:
            held = self._held[request.sequence]
            held.busy = True
            before.append((list(held.blocks), held.length))
            if request.new and held.length % size:
                self._own_last(held, copies, leaving)  # sources stay this sequence's, too, until commit
            while len(held.blocks) * size < held.length + request.new:
                held.blocks.append(self._new())
            places = range(held.length, held.length + request.new)
            slots += [held.blocks[at // size] * size + at % size for at in places]
        self._copies += len(copies)
        return Extension(wanted, slots, copies, before)

    def commit(self, extension: Extension) -> None:
        """All tokens are written, or enqueued to be: full pages may be shared from now on."""
        self._give_back([source for source, _ in extension.copies])
        for request in extension.requests:
            held = self._held[request.sequence]
            held.busy = False
            held.length += request.new
            if request.tokens is None and request.new:
                held.known, held.rest = False, []
            if not held.known:
                continue
            held.rest += request.tokens or ()
            while len(held.rest) >= self.block_size:
                name = _name(held.names[-1] if held.names else b"", held.salt, held.rest[: self.block_size])
                del held.rest[: self.block_size]
                self._remember(name, held.blocks[len(held.names)])
                held.names.append(name)

    def cancel(self, extension: Extension) -> None:
        """Release the room; nothing was written."""
        for request, (blocks, length) in zip(extension.requests, extension.before, strict=True):
            held = self._held[request.sequence]
            held.busy = False
            old = set(blocks)
            self._give_back([block for block in held.blocks if block not in old])
            held.blocks, held.length = blocks, length

    # -- what there is -------------------------------------------------------------------------------------------------

    @property
    def available(self) -> int:
        """Pages that a sequence can be given."""
        return len(self._free) + len(self._kept)

    def needed(self, sequence: int, count: int) -> int:
        """Pages needed for additional tokens of a sequence."""
        return self._needs(self._idle(sequence), count, Counter())

    def length(self, sequence: int) -> int:
        """Tokens of a sequence that are written."""
        return self._of(sequence).length

    def table(self, sequence: int) -> list[int]:
        """The pages of a sequence, in order."""
        return list(self._of(sequence).blocks)

    def evict(self, most: int | None = None) -> int:
        """Drop cached pages, least recently used first; return their number."""
        count = len(self._kept) if most is None else min(most, len(self._kept))
        for _ in range(count):
            self._free.append(self._evicted())
        return count

    def stats(self) -> KvCacheStats:
        """The current contents and counters."""
        free, kept = len(self._free), len(self._kept)
        return KvCacheStats(
            blocks=self._count,
            free=free,
            kept=kept,
            used=self._count - free - kept,
            sequences=len(self._held),
            hits=self._hits,
            misses=self._misses,
            evictions=self._evictions,
            copies=self._copies,
        )

    # -- pages ---------------------------------------------------------------------------------------------------------

    def _of(self, sequence: int) -> Held:
        held = self._held.get(sequence)
        if held is None:
            raise ShapeError(f"sequence {sequence} is not open")
        return held

    def _idle(self, sequence: int) -> Held:
        held = self._of(sequence)
        if held.busy:
            raise ShapeError(f"sequence {sequence} has a step that is not written; append to all layers, or cancel it")
        return held

    def _needs(self, held: Held, count: int, leaving: Counter[int]) -> int:
        """Pages that a request takes; ``leaving``: of each page, how many take a copy of it instead; one keeps it."""
        if not count:
            return 0
        size = self.block_size
        shared = bool(held.length % size) and self._users[held.blocks[-1]] - leaving[held.blocks[-1]] > 1
        if shared:
            leaving[held.blocks[-1]] += 1
        return -(-(held.length + count) // size) - len(held.blocks) + shared

    def _own_last(self, held: Held, copies: list[tuple[int, int]], leaving: Counter[int]) -> None:
        """See to it that the last page, which is not full, is this sequence's alone and has no name."""
        block = held.blocks[-1]
        if self._users[block] - leaving[block] > 1:
            leaving[block] += 1
            held.blocks[-1] = self._new()
            copies.append((block, held.blocks[-1]))
        elif block in self._names:  # it was full before the sequence was cut
            del self._by_name[self._names.pop(block)]

    def _new(self) -> int:
        block = self._free.pop() if self._free else self._evicted()
        self._users[block] = 1
        return block

    def _evicted(self) -> int:
        block, _ = self._kept.popitem(last=False)
        del self._by_name[self._names.pop(block)]
        self._evictions += 1
        return block

    def _take_up(self, block: int) -> None:
        self._kept.pop(block, None)
        self._users[block] += 1

    def _give_back(self, blocks: Sequence[int]) -> None:
        for block in reversed(blocks):  # the end of a prefix is dropped before its beginning
            self._users[block] -= 1
            if self._users[block]:
                continue
            if block in self._names:
                self._kept[block] = None
            else:
                self._free.append(block)

    def _remember(self, name: bytes, block: int) -> None:
        if self._sharing and name not in self._by_name:  # else another sequence has computed the same meanwhile
            self._by_name[name] = block
            self._names[block] = name


def _name(before: bytes, salt: bytes, tokens: Sequence[int]) -> bytes:
    """Return the name of a full page, which identifies its tokens and all tokens before them."""
    content = struct.pack(f"<{len(tokens)}q", *tokens)
    return hashlib.sha256((before or hashlib.sha256(salt).digest()) + content).digest()
