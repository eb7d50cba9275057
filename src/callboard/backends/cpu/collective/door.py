"""``Door``: the address at which ranks on other machines reach a rank. Both ends prove that they have its secret.

The secret is random; the application passes it on as part of the rank's offer. Data after the handshake is not
encrypted.
"""

import contextlib
import hmac
import os
import socket
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from struct import Struct

__all__ = ["Door", "dial", "machine"]

MAGIC = b"callboard rank 1\n"
WHO = Struct("<QI")
NONCE, MAC = 32, 32
SECRET = 32
TIME = 10.0
"""Seconds for a connection and its handshake."""


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
        self._socket = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._listen, name=f"callboard-door-{rank}", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which a close does not
        self._socket.close()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        connection.settimeout(TIME)
        try:
            _expect(connection, MAGIC)
            who = _read(connection, WHO.size)
            world, peer = WHO.unpack(who)
            theirs, ours = _read(connection, NONCE), os.urandom(NONCE)
            connection.sendall(ours + _mac(self.secret, b"door", who, theirs, ours))
            if not hmac.compare_digest(_read(connection, MAC), _mac(self.secret, b"rank", who, theirs, ours)):
                raise OSError("it does not have the secret")
            if world != self._world:
                raise OSError(f"it is of world {world}")
        except OSError:  # no rank of this world
            connection.close()
            return
        self._entered(peer, connection)


def dial(host: str, port: int, secret: bytes, world: int, rank: int) -> socket.socket:
    """Connect to another rank's door.

    Args:
        host, port, secret: Values from its offer.
        world: World of both ranks.
        rank: Rank that connects.

    Raises:
        OSError: It cannot be reached, or belongs to another process.
    """
    connection = socket.create_connection((host, port), TIME)
    try:
        who, ours = WHO.pack(world, rank), os.urandom(NONCE)
        connection.sendall(MAGIC + who + ours)
        theirs = _read(connection, NONCE)
        if not hmac.compare_digest(_read(connection, MAC), _mac(secret, b"door", who, ours, theirs)):
            raise OSError("it does not have the secret")
        connection.sendall(_mac(secret, b"rank", who, ours, theirs))
    except BaseException:  # of any class: only this function holds the connection
        connection.close()
        raise
    return connection


def _mac(secret: bytes, side: bytes, who: bytes, caller: bytes, called: bytes) -> bytes:
    return hmac.digest(secret, MAGIC + side + who + caller + called, "sha256")


def _expect(connection: socket.socket, what: bytes) -> None:
    if _read(connection, len(what)) != what:
        raise OSError("it is not a rank")


def _read(connection: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        more = connection.recv(count - len(got))
        if not more:
            raise OSError("it ended in the middle of the handshake")
        got += more
    return got
