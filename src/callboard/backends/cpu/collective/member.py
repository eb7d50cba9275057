"""``CpuMember``: a rank of a world on the CPU: its own segment, and those of the others."""

import os
import socket
import threading

import msgspec

from callboard.backends.cpu.collective.bridge import Bridge
from callboard.backends.cpu.collective.door import Door, dial, machine
from callboard.backends.cpu.collective.segment import FORMATION, LEFT, LOST, Address, Fence, Segment
from callboard.backends.cpu.collective.semaphore import wait
from callboard.backends.cpu.stream import CpuStream
from callboard.core.errors import LibraryError, WorldLost
from callboard.kernel.collective.library import JOINING, READY, Member
from callboard.kernel.ipc.sharing import has_ended, process_started

__all__ = ["CpuMember"]

SLICE = 0.1
"""Seconds after which a waiting rank looks whether the others are alive, in addition to being woken."""
REACHED_AT = "CALLBOARD_REACHED_AT"
"""Variable that a node sets for its hosts: the address by which it was reached, where other machines reach them."""


class CpuMember(Member):
    """See :class:`Member`. Joining maps memory; ranks on other machines are connected to on threads of their own.

    Attributes:
        own: This rank's segment.
        segments: Segments of all ranks, in order of rank, once joined; for a rank on another machine, a copy.
        fence: Memory fence of the thread that runs the parts.
    """

    def __init__(self, world: int, rank: int, size: int) -> None:
        super().__init__(world, rank, size)
        self.own = Segment(size)
        self.segments: list[Segment] = []
        self.fence = Fence()
        self._addresses: list[Address] = []
        self._bridges: dict[int, Bridge] = {}
        self._waiting: dict[int, socket.socket] = {}  # ranks that connected before this one joined
        self._entering = threading.Lock()
        host = os.environ.get(REACHED_AT, "")
        self._host = host
        self._door = Door(host, world, rank, self._entered) if host and size > 1 else None
        self._limit = 0.0

    def offer(self) -> bytes:
        pid = os.getpid()
        address = Address(self.own.path, pid, process_started(pid), machine())
        if self._door is not None:
            address = msgspec.structs.replace(address, host=self._host, port=self._door.port, secret=self._door.secret)
        return msgspec.msgpack.encode(address)

    def join(self, offers: tuple[bytes, ...], timeout: float) -> None:
        self._limit = timeout
        self._addresses = [msgspec.msgpack.decode(offer, type=Address) for offer in offers]
        distant = [rank for rank, address in enumerate(self._addresses) if address.machine != machine()]
        callers = {peer: self._caller(peer) for peer in distant}
        segments = []
        for rank, address in enumerate(self._addresses):
            here = rank == self.rank
            segments.append(self.own if here else Segment(self.size, None if rank in callers else address.path))
        bridges = {peer: Bridge(self.rank, peer, self.own, segments[peer]) for peer in distant}
        with self._entering:
            self.segments, self._bridges = segments, bridges
            waiting, self._waiting = self._waiting, {}
        for peer, connection in waiting.items():
            self._entered(peer, connection)
        for peer, caller in callers.items():
            if caller == self.rank:
                threading.Thread(target=self._dial, args=(peer,), name=f"callboard-dial-{peer}", daemon=True).start()

    def state(self) -> str:
        if self.lost is not None:
            return str(self.lost)
        ready = self.segments and all(bridge.connected for bridge in self._bridges.values())
        return READY if ready else JOINING

    def leave(self) -> None:
        lost = self.lost
        assert lost is not None
        words = self.own.words
        words[LOST], words[FORMATION] = lost.rank + 1, lost.formation
        self.fence()
        words[LEFT] = 1
        with self._entering:
            for connection in self._waiting.values():
                connection.close()
            self._waiting.clear()
        if self._door is not None:
            self._door.close()
        for segment in self.segments or [self.own]:
            segment.wake()
        self.own.close()
        for peer in self._bridges:
            self.segments[peer].close()

    # -- ranks on other machines ---------------------------------------------------------------------------------------

    def _caller(self, peer: int) -> int:
        """Return the rank of a pair that connects to the other: the higher one if the lower one is reachable."""
        low, high = sorted((self.rank, peer))
        if self._addresses[low].port:
            return high
        if self._addresses[high].port:
            return low
        raise LibraryError(
            f"ranks {low} and {high} are on two machines, and neither can be reached from the other: "
            "of such a pair one must be a device of a node",
            "collective",
        )

    def _dial(self, peer: int) -> None:
        address = self._addresses[peer]
        try:
            self._entered(peer, dial(address.host, address.port, address.secret, self.world, self.rank))
        except OSError as e:
            self.end(WorldLost(f"rank {peer} cannot be reached at {address.host}:{address.port}: {e}", peer))

    def _entered(self, peer: int, connection: socket.socket) -> None:
        with self._entering:
            bridge = self._bridges.get(peer)
            if self.lost is not None or (self.segments and (bridge is None or bridge.connected)):
                connection.close()
            elif bridge is None:
                self._waiting[peer] = connection
            else:
                bridge.begin(connection)

    def wait(self, stream: CpuStream, waited: float) -> float:
        """Wait until another rank has done something, or for :data:`SLICE`.

        Args:
            stream: Stream whose worker is the calling thread.
            waited: Seconds without a chunk so far.

        Returns:
            The same, with this wait.

        Raises:
            WorldLost: The world has ended, here or on another rank; or no chunk arrived in time.
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
            if rank not in self._bridges and has_ended(address.pid, address.started):
                return rank
        return -1
