"""Ranks on other machines: authentication, and the effect of a rank that is cut off."""

import errno
import os
import queue
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from callboard.backends.cpu.collective import bridge as bridges
from callboard.backends.cpu.collective import door as doors
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


FULL = """
import logging, os, resource, sys
from callboard.backends.cpu.collective import door as doors
logging.basicConfig(stream=sys.stdout, format="%(message)s")
doors.TIME = 45.0

def say(text):
    sys.stdout.write(text + "\\n")  # at once: the log is written on another thread
    sys.stdout.flush()

resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    os.close(held.pop())  # for the socket that listens
door = doors.Door("127.0.0.1", 12345, 0, lambda rank, connection: say(f"entered {rank}"))
say(f"at {door.port} {door.secret.hex()}")
sys.stdin.readline()
for descriptor in held:
    os.close(descriptor)
sys.stdin.readline()
"""


def test_a_door_without_descriptors_lets_in_when_there_are_some_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "TIME", BOUND)
    path = os.pathsep.join([str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", FULL],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = sorted(process.stdout.readline() for _ in range(2))
        _, port, secret = lines[0].split()
        assert "accepts no connection now" in lines[1]
        assert "Too many open files" in lines[1]
        outcomes: queue.SimpleQueue[object] = queue.SimpleQueue()

        def enter() -> None:
            try:
                with dial("127.0.0.1", int(port), bytes.fromhex(secret), WORLD, 3):
                    outcomes.put("let in")
            except OSError as e:
                outcomes.put(e)

        dialling = threading.Thread(target=enter)
        dialling.start()
        process.stdin.write("\n")
        process.stdin.flush()
        assert outcomes.get(timeout=BOUND) == "let in"
        assert process.stdout.readline() == "entered 3\n"
        dialling.join()


def test_an_error_of_one_connection_does_not_end_the_door(
    door: Door, entered: Entered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All errors that Linux's ``accept`` may return while it listens."""
    many = [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM]
    codes = iter([errno.ECONNABORTED, *many, errno.EPROTO, errno.EPERM, errno.EINTR, errno.ENETDOWN])

    class Failing:
        def accept(self) -> Any:
            for code in codes:
                raise OSError(code, os.strerror(code))
            return listening.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(listening, name)

    monkeypatch.setattr(doors, "PAUSE", 0.0)
    listening = door._socket
    monkeypatch.setattr(door, "_socket", Failing())
    for _ in range(2):  # the thread already waits in the true `accept` for the first one
        with dial("127.0.0.1", door.port, door.secret, WORLD, 3):
            entered.get(timeout=BOUND)[1].close()
    assert next(codes, None) is None


class _Slow:
    """A connection whose other end sends one byte at a time, each after a second of a clock of its own."""

    def __init__(self, data: bytes = b"") -> None:
        self.now, self.reads, self.closed = 0.0, 0, False
        self._data = data

    def clock(self) -> float:
        return self.now

    def recv_into(self, view: memoryview) -> int:
        view[:1] = self.recv(1)
        return 1

    def recv(self, count: int) -> bytes:
        self.now += 1.0
        self.reads += 1
        assert self.reads < 1000, "each byte has a limit of its own"
        return self._data[self.reads - 1 : self.reads] or b"x"

    def close(self) -> None:
        self.closed = True

    def sendall(self, data: bytes) -> None: ...

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0


def test_a_handshake_has_one_limit_however_slow_it_is(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    slow: Any = _Slow(MAGIC + struct.pack("<QI", WORLD, 3) + bytes(200))
    monkeypatch.setattr(doors, "monotonic", slow.clock)
    door._greet(slow)
    assert slow.closed
    assert slow.reads <= doors.TIME + 1
    slow = _Slow()
    monkeypatch.setattr(doors, "monotonic", slow.clock)
    monkeypatch.setattr(socket, "create_connection", lambda *_: slow)
    with pytest.raises(TimeoutError, match="handshake took longer"):
        dial("127.0.0.1", 1, b"", WORLD, 3)
    assert slow.closed


def test_a_frame_has_one_limit_however_slow_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    slow: Any = _Slow()
    monkeypatch.setattr(bridges, "monotonic", slow.clock)
    with pytest.raises(TimeoutError, match="of a frame are missing"):
        bridges._filled(slow, memoryview(bytearray(1 << 20)))
    assert slow.reads <= bridges.SILENCE + 1


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
