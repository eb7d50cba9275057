"""The messages between an application and a node, in addition to those of a context host.

A node relays the messages of :mod:`callboard.device.protocol.messages`, in the same frames, between an application on
another machine and a context host of its own. It reads only those that concern itself, and forwards the others as they
are, signatures and their numbers included. Arenas exist on both sides under the same ids. The bytes of a call's host
operands travel before the call, and those that it has written before its completion. A deadline travels as the seconds
that are left; times of records are translated by the application.
"""

from typing import Any, get_args

from callboard.device.protocol.messages import (
    ActorCall,
    Close,
    Closed,
    FailureMessage,
    FromHost,
    Hello,
    MapArena,
    Open,
    Plain,
    ToHost,
    Unknown,
    UnmapArena,
)

__all__ = [
    "PIECE",
    "RELAYED_FROM_HOST",
    "RELAYED_TO_HOST",
    "Bytes",
    "Describe",
    "Described",
    "Fetch",
    "FromNode",
    "HostEndMessage",
    "Kill",
    "PulseMessage",
    "Refused",
    "Start",
    "Started",
    "ToNode",
]

PIECE = 1 << 20
"""Bytes of an arena in one message, so that signs of life get in between."""


class Bytes(Plain, tag=64):
    """Contents of an arena, either way."""

    arena: int
    offset: int
    data: bytes


class Fetch(Plain, tag=65):
    """Send these parts of arenas before the completion of a call, which writes them.

    Attributes:
        call: Id of the call.
        places: ``[arena, offset, nbytes, …]``.
    """

    call: int
    places: list[int]


class PulseMessage(Plain, tag=66):
    """A sign of life, either way, once in an interval."""


class Describe(Plain, tag=67):
    """First message: which device of the node does this name mean? Answered by :class:`Described`."""

    which: str


class Described(Plain, tag=68):
    """The device, as :class:`callboard.core.backend.DeviceInfo`, as a list."""

    device: list[Any]


class Start(Plain, tag=69):
    """First message: start a context host, to which later messages go. Answered by :class:`Started`.

    Attributes:
        which: Name of the device, as the node understands it.
        label: Name for the node's logs and ``ps``.
        hang_after, step_timeout, interval, guardian: Values from the device's configuration.
        lost_after: Seconds without a sign of life from the application's machine after which the node ends the host.
    """

    which: str
    label: str
    hang_after: float
    step_timeout: float
    interval: float
    lost_after: float
    guardian: bool = False


class Started(Plain, tag=70):
    """The context host runs.

    Attributes:
        pid: Id of its process on the node.
        device: The device, as in :class:`Described`.
    """

    pid: int
    device: list[Any]


class Refused(Plain, tag=71):
    """There is no such device, or no host could be started."""

    failure: FailureMessage


class Kill(Plain, tag=72):
    """End the host now."""

    reason: str


class HostEndMessage(Plain, tag=73):
    """The host has ended; the last message.

    For the fields see :class:`callboard.device.supervision.hosts.base.HostEnd`.
    """

    reason: str
    detail: str
    details: str


ToNode = ToHost | Bytes | Fetch | PulseMessage | Describe | Start | Kill
FromNode = FromHost | Bytes | PulseMessage | Described | Started | Refused | HostEndMessage

RELAYED_TO_HOST = frozenset(get_args(ToHost)) - {ActorCall, Close, MapArena, Open, UnmapArena}
RELAYED_FROM_HOST = frozenset(get_args(FromHost)) - {Closed, Hello, Unknown}
"""Messages that a node forwards without decoding them."""
