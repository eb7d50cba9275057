"""``Bridge``: a rank on another machine, by a copy of its segment here that two threads keep alike over TCP.

A rank accesses the segment of a distant rank like that of any other. The threads transfer the changes: chunks that were
left for the other rank, the number of its chunks that were taken, and that a rank has left. Each counter has one writer
on each machine, as in shared memory.
"""

import contextlib
import socket
import threading
from struct import Struct
from time import monotonic

from callboard.backends.cpu.collective.segment import FORMATION, LEFT, LOST, SLOTS, Fence, Segment
from callboard.backends.cpu.collective.semaphore import wait

__all__ = ["Bridge"]

FRAME = Struct("<BQQ")
CHUNK, TAKEN, GONE, PULSE = range(4)
"""Kinds of frames: ``(call, bytes)`` and the bytes; ``(number, 0)``; ``(lost rank + 1, formation)``; nothing."""
PULSE_TIME = 1.0
"""Seconds without a frame after which a sign of life is sent."""
SILENCE = 30.0
"""Seconds without a frame from the other machine, or for one frame, after which its rank counts as lost."""


class Bridge:
    """One pair of ranks on two machines.

    Args:
        rank: Rank on this machine.
        peer: The other one.
        own: Segment of ``rank``.
        mirror: This machine's copy of the segment of ``peer``.
    """

    def __init__(self, rank: int, peer: int, own: Segment, mirror: Segment) -> None:
        self._rank = rank
        self._peer = peer
        self._own = own
        self._mirror = mirror
        self._socket: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self._ending = threading.Lock()
        self._ended = 0

    @property
    def connected(self) -> bool:
        """The other rank has been reached."""
        return self._socket is not None

    def begin(self, connection: socket.socket) -> None:
        """Use a connection whose handshake is done; owned from now on."""
        connection.settimeout(SILENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        name = f"callboard-bridge-{self._rank}-{self._peer}"
        for step in (self._send, self._receive):
            self._threads.append(threading.Thread(target=step, args=(connection,), name=name, daemon=True))
            self._threads[-1].start()

    def wait_end(self, seconds: float) -> None:
        """Wait until both threads have ended: when a rank has left, or the connection was cut."""
        for thread in self._threads:
            thread.join(seconds)

    def _end(self, connection: socket.socket) -> None:
        """A thread has ended, and the other one does soon; the last one closes the connection."""
        with contextlib.suppress(OSError):  # it is cut already
            connection.shutdown(socket.SHUT_RDWR)
        with self._ending:
            self._ended += 1
            if self._ended == 2:
                connection.close()

    # -- to the other machine ------------------------------------------------------------------------------------------

    def _send(self, connection: socket.socket) -> None:
        fence, own, peer = Fence(), self._own, self._peer
        sent = taken = 0
        quiet = 0.0
        try:
            while True:
                quiet = 0.0 if wait(self._mirror.semaphore, PULSE_TIME) else quiet + PULSE_TIME
                while own.posted[peer] > sent:
                    fence()
                    place = peer * SLOTS + sent % SLOTS
                    length = own.lengths[place]
                    connection.sendall(FRAME.pack(CHUNK, own.tags[place], length))
                    connection.sendall(own.slot(peer, sent)[:length].data)
                    sent += 1
                if own.taken[peer] != taken:
                    taken = own.taken[peer]
                    connection.sendall(FRAME.pack(TAKEN, taken, 0))
                if self._ended:
                    return
                if own.words[LEFT]:
                    fence()
                    connection.sendall(FRAME.pack(GONE, own.words[LOST], own.words[FORMATION]))
                    return
                if quiet:
                    connection.sendall(FRAME.pack(PULSE, 0, 0))
        except OSError:  # the other thread notices, too, and reports it
            return
        finally:
            self._end(connection)

    # -- from the other machine ----------------------------------------------------------------------------------------

    def _receive(self, connection: socket.socket) -> None:
        fence, own, mirror, rank = Fence(), self._own, self._mirror, self._rank
        head = bytearray(FRAME.size)
        lost, formation = self._peer + 1, 0
        try:
            while _filled(connection, memoryview(head)):
                kind, first, second = FRAME.unpack(head)
                if kind == CHUNK:
                    number = mirror.posted[rank]
                    slot = mirror.slot(rank, number)
                    if number - own.taken[self._peer] >= SLOTS or second > slot.size:
                        break  # the peer broke the protocol
                    if not _filled(connection, slot[:second].data):
                        break
                    place = rank * SLOTS + number % SLOTS
                    mirror.tags[place], mirror.lengths[place] = first, second
                    fence()
                    mirror.posted[rank] = number + 1
                elif kind == TAKEN:
                    mirror.taken[rank] = first
                elif kind == GONE:
                    lost, formation = first, second
                    break
                else:
                    continue
                own.wake()
        except OSError:  # cut, or silent for too long
            pass
        mirror.words[LOST], mirror.words[FORMATION] = lost, formation
        fence()
        mirror.words[LEFT] = 1
        own.wake()
        self._end(connection)
        mirror.wake()  # the other thread, which finds the connection cut


def _filled(connection: socket.socket, view: memoryview) -> bool:
    """Read a number of bytes; False if the stream ended before.

    Raises:
        OSError: It broke, or was silent or so slow that they took longer than :data:`SILENCE`.
    """
    until = monotonic() + SILENCE
    while view:
        count = connection.recv_into(view)
        if not count:
            return False
        view = view[count:]
        if view and monotonic() > until:
            raise TimeoutError(f"{len(view)} bytes of a frame are missing after {SILENCE:g} s")
    return True
