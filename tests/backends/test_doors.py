"""Ranks on other machines: authentication, and the effect of a rank that is cut off."""

import os
import queue
import socket
import struct
from typing import Any

import pytest

from callboard.backends.cpu.collective.bridge import CHUNK, FRAME, TAKEN, Bridge
from callboard.backends.cpu.collective.door import MAGIC, Door, dial, machine
from callboard.backends.cpu.collective.member import CpuMember
from callboard.backends.cpu.collective.segment import LEFT, LOST, SLOTS, Segment
from callboard.backends.cpu.collective.semaphore import wait
from callboard.core.errors import LibraryError, WorldLost

BOUND = 45.0
WORLD = 12345

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/ns/pid"), reason="collectives on the CPU are Linux only")

Entered = queue.SimpleQueue[tuple[int, socket.socket]]


@pytest.fixture
def entered() -> Entered:
    return queue.SimpleQueue()


@pytest.fixture
def door(entered: Entered) -> Any:
    door = Door("127.0.0.1", WORLD, 0, lambda rank, connection: entered.put((rank, connection)))
    yield door
    door.close()


def test_who_knows_the_secret_is_let_in(door: Door, entered: Entered) -> None:
    with dial("127.0.0.1", door.port, door.secret, WORLD, 3) as connection:
        rank, other = entered.get(timeout=BOUND)
        assert rank == 3
        with other:
            other.sendall(b"hello")
            assert connection.recv(5) == b"hello"


def test_others_are_not(door: Door, entered: Entered) -> None:
    with pytest.raises(OSError, match="does not have the secret"):  # the caller finds out, too
        dial("127.0.0.1", door.port, bytes(32), WORLD, 3)
    with dial("127.0.0.1", door.port, door.secret, WORLD + 1, 3) as connection:  # another world's rank
        connection.settimeout(BOUND)
        assert connection.recv(1) == b""
    with socket.create_connection(("127.0.0.1", door.port), BOUND) as connection:
        connection.sendall(MAGIC + struct.pack("<QI", WORLD, 3) + bytes(32))
        connection.recv(64, socket.MSG_WAITALL)
        connection.sendall(bytes(32))  # no proof
        assert connection.recv(1) == b""
    assert entered.empty()
    door.close()
    with pytest.raises(OSError):
        dial("127.0.0.1", door.port, door.secret, WORLD, 3)


@pytest.fixture
def bridged() -> Any:
    """Rank 0 of two, its copy of rank 1's segment, and the other end of the connection."""
    own, mirror = Segment(2), Segment(2)
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    bridge = Bridge(0, 1, own, mirror)
    assert not bridge.connected
    bridge.begin(_Tcp(ours))  # type: ignore[arg-type]
    assert bridge.connected
    theirs.settimeout(BOUND)
    yield own, mirror, theirs
    own.words[LEFT] = 1
    mirror.wake()
    bridge.wait_end(BOUND)
    theirs.close()
    own.close()
    mirror.close()


Bridged = tuple[Segment, Segment, socket.socket]


class _Tcp:
    """A socket that takes the options of TCP."""

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner

    def setsockopt(self, *_: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def left(own: Segment, mirror: Segment) -> None:
    """Wait until the rank of the copy counts as gone."""
    while not mirror.words[LEFT]:
        assert wait(own.semaphore, BOUND)


def test_a_rank_that_is_cut_off_is_lost(bridged: Bridged) -> None:
    own, mirror, theirs = bridged
    theirs.close()
    left(own, mirror)
    assert mirror.words[LOST] == 2  # rank 1, plus 1


@pytest.mark.parametrize("how", ["too many", "too long"])
def test_a_rank_that_does_not_keep_to_the_slots_is_lost(how: str, bridged: Bridged) -> None:
    own, mirror, theirs = bridged
    if how == "too many":
        for number in range(SLOTS + 1):
            theirs.sendall(FRAME.pack(CHUNK, 1, 1) + bytes([number]))
    else:
        theirs.sendall(FRAME.pack(CHUNK, 1, 1 << 40))
    left(own, mirror)
    assert mirror.posted[0] == (SLOTS if how == "too many" else 0)


def test_chunks_and_counts_cross(bridged: Bridged) -> None:
    own, mirror, theirs = bridged
    own.slot(1, 0)[:3] = (1, 2, 3)
    own.tags[SLOTS], own.lengths[SLOTS] = 7, 3
    own.posted[1] = 1
    mirror.wake()
    assert theirs.recv(FRAME.size, socket.MSG_WAITALL) == FRAME.pack(CHUNK, 7, 3)
    assert theirs.recv(3, socket.MSG_WAITALL) == b"\1\2\3"
    theirs.sendall(FRAME.pack(CHUNK, 8, 2) + b"\4\5" + FRAME.pack(TAKEN, 1, 0))
    while not mirror.taken[0]:
        assert wait(own.semaphore, BOUND)
    assert mirror.posted[0] == 1
    assert (mirror.tags[0], mirror.lengths[0]) == (8, 2)
    assert mirror.slot(0, 0)[:2].tolist() == [4, 5]
    own.taken[1] = 1
    mirror.wake()
    assert theirs.recv(FRAME.size, socket.MSG_WAITALL) == FRAME.pack(TAKEN, 1, 0)


def test_two_machines_without_a_door_cannot_be_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    members = []
    for rank in range(2):
        monkeypatch.setenv("CALLBOARD_MACHINE", f"machine {rank}")
        machine.cache_clear()
        members.append(CpuMember(WORLD, rank, 2))
        members[-1].given = members[-1].offer()  # type: ignore[attr-defined]
    offers = tuple(member.given for member in members)  # type: ignore[attr-defined]
    with pytest.raises(LibraryError, match="ranks 0 and 1 are on two machines"):
        members[1].join(offers, 60.0)
    for member in members:
        member.end(WorldLost("over"))
    monkeypatch.undo()
    machine.cache_clear()
