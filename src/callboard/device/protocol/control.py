"""The control socket of a process host.

Heartbeats and log records are sent to the application; descriptors of arenas, and messages that must not wait for the
serving thread, are sent to the host.

A ``SOCK_SEQPACKET`` socket keeps datagrams whole, so each message is one MessagePack body and its descriptors belong to
it.
"""

import socket

import msgspec

__all__ = [
    "MAX_CONTROL",
    "ArenaDescriptor",
    "Beat",
    "EndWorld",
    "FromChild",
    "LogRecord",
    "control_pair",
    "from_child",
    "to_child",
    "to_control",
]

MAX_CONTROL = 32 << 10
"""No control message is longer; a log record is shortened to fit."""


class Control(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of everything here."""


class Beat(Control, tag=1, frozen=True):
    """The host's Python runs.

    Attributes:
        rounds: Rounds of its admitting loop so far.
        waiting: True if that loop waits for messages right now.
        step: The announced long step that its thread is in, or empty.
        others: Announced long steps of other threads.
        idle: During a step, the threads (as the system numbers them) that run Python code and are in none: they wait
            for the GIL if one in a step keeps it.
    """

    rounds: int
    waiting: bool
    step: str
    others: list[str] = []
    idle: list[int] = []


class LogRecord(Control, tag=2, frozen=True):
    """A record of the host's :mod:`logging`; ``logger`` is the name it was logged under."""

    logger: str
    level: int
    text: str


class ArenaDescriptor(Control, tag=1, frozen=True):
    """Accompanies the file descriptor of the arena."""

    arena: int


class EndWorld(Control, tag=2, frozen=True):
    """A world has lost a rank: the host calls :func:`.end_members` of the collectives.

    Attributes:
        world: Number of the world.
        lost: Rank that was lost; -1 if none was.
        reason: Why, in at most a few hundred characters.
        formation: Number of the formation that lost the rank, counted from 1.
    """

    world: int
    lost: int
    reason: str
    formation: int


FromChild = Beat | LogRecord
ToChild = ArenaDescriptor | EndWorld

to_control = msgspec.msgpack.Encoder().encode
from_child = msgspec.msgpack.Decoder[FromChild](FromChild).decode
to_child = msgspec.msgpack.Decoder[ToChild](ToChild).decode


def control_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends, not blocking."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    theirs.setblocking(False)
    return ours, theirs
