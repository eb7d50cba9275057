"""Transfers between ranks: several at once, in chunks, on the worker of one rank's stream."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.collective.member import CpuMember
from callboard.backends.cpu.collective.segment import SLOTS, Fence, Segment
from callboard.backends.cpu.stream import CpuStream
from callboard.core.errors import WorldLost

__all__ = ["Receive", "Reduce", "Send", "Transfer", "run"]

Array = np.ndarray[Any, Any]
Combine = Callable[[Sequence[Array], Array], None]


class Transfer:
    """One array on its way from or to other ranks.

    Attributes:
        lanes: The rings that it uses: each is used by one transfer after the other.
        done: True once the whole array has been transferred.
    """

    __slots__ = ("_at", "_data", "done", "lanes")

    def __init__(self, data: Array, lanes: frozenset[tuple[str, int]]) -> None:
        self._data = data
        self._at = 0
        self.lanes = lanes
        self.done = not data.nbytes

    def advance(self, member: CpuMember, call: int) -> bool:
        """Move the chunks that can be moved now; whether there were any."""
        raise NotImplementedError


class Send(Transfer):
    """This rank's bytes to another one.

    Args:
        peer: The other rank.
        data: Contiguous; unchanged until all is sent.
    """

    __slots__ = ("_peer",)

    def __init__(self, peer: int, data: Array) -> None:
        super().__init__(data.reshape(-1).view(np.uint8), frozenset({("to", peer)}))
        self._peer = peer

    def advance(self, member: CpuMember, call: int) -> bool:
        own, peer = member.own, self._peer
        other, data, begun = member.segments[peer], self._data, self._at
        while self._at < data.size and own.posted[peer] - other.taken[member.rank] < SLOTS:
            number = own.posted[peer]
            slot = own.slot(peer, number)
            member.fence()  # the slot was emptied before it is filled
            chunk = data[self._at : self._at + slot.size]
            slot[: chunk.size] = chunk
            place = peer * SLOTS + number % SLOTS
            own.tags[place], own.lengths[place] = call, chunk.size
            member.fence()
            own.posted[peer] = number + 1
            other.wake()
            self._at += chunk.size
        self.done = self._at == data.size
        return self._at != begun


class Receive(Transfer):
    """Another rank's bytes.

    Args:
        peer: The other rank.
        data: Contiguous, to be filled.
    """

    __slots__ = ("_peer",)

    def __init__(self, peer: int, data: Array) -> None:
        super().__init__(data.reshape(-1).view(np.uint8), frozenset({("from", peer)}))
        self._peer = peer

    def advance(self, member: CpuMember, call: int) -> bool:
        data, begun, peer = self._data, self._at, self._peer
        while self._at < data.size and _is_there(member, peer):
            chunk = _chunk(member, peer, call, data.size - self._at)
            data[self._at : self._at + chunk.size] = chunk
            self._at += chunk.size
            _taken(member, peer)
        self.done = self._at == data.size
        return self._at != begun


class Reduce(Transfer):
    """Reduces the same number of elements from each rank, this one included, in the order of the ranks.

    Args:
        size: Number of ranks.
        own: This rank's elements.
        target: Gets the result; may be ``own``.
        combine: See :func:`~callboard.backends.cpu.collective.reducing.reducer`.
    """

    __slots__ = ("_combine", "_own", "_peers")

    def __init__(self, rank: int, size: int, own: Array, target: Array, combine: Combine) -> None:
        self._peers = [peer for peer in range(size) if peer != rank]
        super().__init__(target.reshape(-1), frozenset(("from", peer) for peer in self._peers))
        self._own = own.reshape(-1)
        self._combine = combine

    def advance(self, member: CpuMember, call: int) -> bool:
        data, begun = self._data, self._at
        while self._at < data.size and all(_is_there(member, peer) for peer in self._peers):
            left = (data.size - self._at) * data.itemsize
            chunks = {peer: _chunk(member, peer, call, left).view(data.dtype) for peer in self._peers}
            count = min((chunk.size for chunk in chunks.values()), default=data.size - self._at)
            here = slice(self._at, self._at + count)
            chunks[member.rank] = self._own[here]
            self._combine([chunks[rank] for rank in range(member.size)], data[here])
            self._at += count
            for peer in self._peers:
                _taken(member, peer)
        self.done = self._at == data.size
        return self._at != begun


def run(member: CpuMember, stream: CpuStream, call: int, transfers: Sequence[Transfer]) -> None:
    """Do all of them; those that share a ring one after the other, in their order.

    Raises:
        WorldLost: The world has ended.
    """
    waited = 0.0
    left = [transfer for transfer in transfers if not transfer.done]
    while left:
        member.check()
        moved = False
        busy: set[tuple[str, int]] = set()
        for transfer in left:
            if busy.isdisjoint(transfer.lanes):
                moved = transfer.advance(member, call) or moved
            if not transfer.done:
                busy |= transfer.lanes
        left = [transfer for transfer in left if not transfer.done]
        if left:
            waited = 0.0 if moved else member.wait(stream, waited)


def _is_there(member: CpuMember, peer: int) -> bool:
    return member.segments[peer].posted[member.rank] > member.own.taken[peer]


def _chunk(member: CpuMember, peer: int, call: int, most: int) -> Array:
    """Return the next chunk of another rank, without a copy.

    Raises:
        WorldLost: It belongs to another call, or is of another size: the ranks do not run the same collectives.
    """
    member.fence()  # the counted data is visible
    segment: Segment = member.segments[peer]
    number = member.own.taken[peer]
    place = member.rank * SLOTS + number % SLOTS
    tag, length = segment.tags[place], segment.lengths[place]
    if tag != call or length > most:
        member.end(
            WorldLost(f"rank {peer} sent {length} bytes of call {tag}; {most} of call {call} were to come", peer)
        )
        member.check()
    return segment.slot(member.rank, number)[:length]


def _taken(member: CpuMember, peer: int) -> None:
    fence: Fence = member.fence
    fence()
    member.own.taken[peer] += 1
    member.segments[peer].wake()
