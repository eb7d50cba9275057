"""``CpuMember``: a rank of a world on the CPU: its own segment, and those of the others."""

import os

import msgspec

from callboard.backends.cpu.collective.segment import FORMATION, LEFT, LOST, Address, Fence, Segment
from callboard.backends.cpu.collective.semaphore import wait
from callboard.backends.cpu.stream import CpuStream
from callboard.core.errors import WorldLost
from callboard.kernel.collective.library import JOINING, READY, Member
from callboard.kernel.ipc.sharing import process_started

__all__ = ["CpuMember"]

SLICE = 0.1
"""Seconds after which a waiting rank looks whether the others live, beside being woken."""


class CpuMember(Member):
    """See :class:`Member`. Joining maps memory, and waits for nothing.

    Attributes:
        own: This rank's segment.
        segments: Those of all ranks, in their order, once joined.
        fence: For the thread that runs the parts.
    """

    def __init__(self, world: int, rank: int, size: int) -> None:
        super().__init__(world, rank, size)
        self.own = Segment(size)
        self.segments: list[Segment] = []
        self.fence = Fence()
        self._addresses: list[Address] = []
        self._limit = 0.0

    def offer(self) -> bytes:
        pid = os.getpid()
        return msgspec.msgpack.encode(Address(self.own.path, pid, process_started(pid)))

    def join(self, offers: tuple[bytes, ...], timeout: float) -> None:
        self._limit = timeout
        self._addresses = [msgspec.msgpack.decode(offer, type=Address) for offer in offers]
        self.segments = [
            self.own if rank == self.rank else Segment(self.size, address.path)
            for rank, address in enumerate(self._addresses)
        ]

    def state(self) -> str:
        return str(self.lost) if self.lost is not None else READY if self.segments else JOINING

    def leave(self) -> None:
        lost = self.lost
        assert lost is not None
        words = self.own.words
        words[LOST], words[FORMATION] = lost.rank + 1, lost.formation
        self.fence()
        words[LEFT] = 1
        for segment in self.segments or [self.own]:
            segment.wake()
        self.own.close()

    def wait(self, stream: CpuStream, waited: float) -> float:
        """Wait until another rank has done something, or for :data:`SLICE`.

        Args:
            stream: Whose worker this is.
            waited: Seconds without a chunk so far.

        Returns:
            The same, with this wait.

        Raises:
            WorldLost: The world has ended, here or on another rank; or nothing came in time.
        """
        posted = wait(self.own.semaphore, SLICE)
        self.check()
        for rank, segment in enumerate(self.segments):
            if segment.words[LEFT]:
                lost = int(segment.words[LOST]) - 1
                why = f"rank {lost} was lost" if lost >= 0 else "the world has ended there"
                self.end(WorldLost(f"rank {rank} has left: {why}", lost, int(segment.words[FORMATION])))
        if not posted:
            waited += SLICE
            if stream.closing:
                self.end(WorldLost(f"rank {self.rank}: its stream was closed", self.rank))
            if waited >= self._limit:
                self.end(WorldLost(f"rank {self.rank} waited {waited:.0f} s for the others"))
            dead = self._dead()
            if dead >= 0:
                self.end(WorldLost(f"rank {dead}: its process has ended", dead))
        self.check()
        return waited

    def _dead(self) -> int:
        for rank, address in enumerate(self._addresses):
            if process_started(address.pid) != address.started:
                return rank
        return -1
