"""``Door``: the address at which ranks on other machines reach a rank. Both ends prove that they have its secret.

The secret is random; the application passes it on as part of the rank's offer. Data after the handshake is not
encrypted.
"""

import contextlib
import errno
import hmac
import logging
import os
import socket
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from struct import Struct
from time import monotonic

__all__ = ["Door", "dial", "machine"]

MAGIC = b"callboard rank 1\n"
WHO = Struct("<QI")
NONCE, MAC = 32, 32
SECRET = 32
TIME = 10.0
"""Seconds for a connection and its whole handshake."""
PAUSE = 0.05
"""Seconds between two attempts to accept a connection that this process or system has no room for."""
ENDED = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK)
"""Errors of a socket that does not listen any more. All others are those of a moment, or of one connection."""

_log = logging.getLogger("callboard.collective")


@cache
def machine() -> str:
    """Identify the kernel and pid namespace: ranks with equal values can open each other's shared memory.

    The variable ``CALLBOARD_MACHINE`` overrides it.
    """
    given = os.environ.get("CALLBOARD_MACHINE")
    if given:
        return given
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # no /proc
        return socket.gethostname()


class Door:
    """Listens for the ranks of one world.

    Args:
        host: Address of this machine.
        world: Number of the world.
        rank: Rank that listens.
        entered: Called with each rank that connects, and its connection, on a thread of its own.

    Attributes:
        port: Port that it listens on.
        secret: Secret that a connecting rank must prove to have.

    Raises:
        OSError: The address cannot be listened at.
    """

    def __init__(self, host: str, world: int, rank: int, entered: Callable[[int, socket.socket], None]) -> None:
        self.secret = os.urandom(SECRET)
        self._world = world
        self._rank = rank
        self._entered = entered
        self._closing = threading.Event()
        self._socket = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._listen, name=f"callboard-door-{rank}", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which a close does not
        self._socket.close()

    def _listen(self) -> None:
        short = False
        while not self._closing.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError as e:
                if e.errno in ENDED:
                    return
                if not short and e.errno != errno.ECONNABORTED:
                    short = True
                    _log.warning("rank %d accepts no connection now, and tries again: %s", self._rank, e)
                self._closing.wait(PAUSE)
                continue
            short = False
            try:
                threading.Thread(target=self._greet, args=(connection,), daemon=True).start()
            except RuntimeError as e:  # the limit of threads
                _log.warning("rank %d refuses a connection: %s", self._rank, e)
                connection.close()

    def _greet(self, connection: socket.socket) -> None:
        try:
            self._entered(self._proven(connection), connection)
        except OSError:  # no rank of this world, or one that is gone already
            connection.close()

    def _proven(self, connection: socket.socket) -> int:
        """The rank at the other end, once it has proven that it has the secret.

        Raises:
            OSError: It has not, or not in time.
        """
        handshake = _Handshake(connection)
        if handshake.read(len(MAGIC)) != MAGIC:
            raise OSError("it is not a rank")
        who = handshake.read(WHO.size)
        world, peer = WHO.unpack(who)
        theirs, ours = handshake.read(NONCE), os.urandom(NONCE)
        handshake.write(ours + _mac(self.secret, b"door", who, theirs, ours))
        if not hmac.compare_digest(handshake.read(MAC), _mac(self.secret, b"rank", who, theirs, ours)):
            raise OSError("it does not have the secret")
        if world != self._world:
            raise OSError(f"it is of world {world}")
        return int(peer)


def dial(host: str, port: int, secret: bytes, world: int, rank: int) -> socket.socket:
    """Connect to another rank's door.

    Args:
        host, port, secret: Values from its offer.
        world: World of both ranks.
        rank: Rank that connects.

    Raises:
        OSError: It cannot be reached, or belongs to another process.
    """
    began = monotonic()
    connection = socket.create_connection((host, port), TIME)
    try:
        handshake = _Handshake(connection, began)
        who, ours = WHO.pack(world, rank), os.urandom(NONCE)
        handshake.write(MAGIC + who + ours)
        theirs = handshake.read(NONCE)
        if not hmac.compare_digest(handshake.read(MAC), _mac(secret, b"door", who, ours, theirs)):
            raise OSError("it does not have the secret")
        handshake.write(_mac(secret, b"rank", who, ours, theirs))
    except BaseException:  # of any class: only this function holds the connection
        connection.close()
        raise
    return connection


def _mac(secret: bytes, side: bytes, who: bytes, caller: bytes, called: bytes) -> bytes:
    return hmac.digest(secret, MAGIC + side + who + caller + called, "sha256")


class _Handshake:
    """Reads and writes within :data:`TIME` in all, however slowly the other end does.

    Args:
        connection: The connection; its timeout is changed.
        began: When the handshake began; None: now.
    """

    def __init__(self, connection: socket.socket, began: float | None = None) -> None:
        self._connection = connection
        self._until = (monotonic() if began is None else began) + TIME

    def write(self, data: bytes) -> None:
        self._limit()
        self._connection.sendall(data)

    def read(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            self._limit()
            more = self._connection.recv(count - len(got))
            if not more:
                raise OSError("it ended in the middle of the handshake")
            got += more
        return got

    def _limit(self) -> None:
        left = self._until - monotonic()
        if left <= 0:
            raise TimeoutError(f"its handshake took longer than {TIME:g} s")
        self._connection.settimeout(left)
