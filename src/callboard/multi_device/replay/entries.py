"""The entries of a journal: inputs, which a replay gives again, and outputs, which it compares."""

import platform
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from callboard.actors._runtime.recording import InputKind
from callboard.multi_device.replay.codec import Parts, binary, joined

__all__ = [
    "VERSION",
    "Content",
    "DeviceChosen",
    "DeviceLost",
    "DeviceOp",
    "DeviceOpened",
    "DeviceResult",
    "Entry",
    "Gap",
    "Input",
    "Output",
    "Recalled",
    "Run",
    "Snapshot",
    "decode",
    "encode",
    "encode_input",
]

VERSION = 2
"""Version of the entries' layout; a journal of a later version is refused."""


class _Entry(msgspec.Struct, array_like=True, frozen=True, tag_field="entry"):
    """Fields are appended with a default, so that old journals stay readable."""


class Run(_Entry, frozen=True, tag=0):
    """A harness began to record.

    Attributes:
        version: Version of the entries' layout.
        environment: Versions of the environment: Python, NumPy, the machine.
        started: Unix time.
    """

    version: int
    environment: dict[str, str]
    started: float


class Input(_Entry, frozen=True, tag=1):
    """A message is about to be handled, or a batch to be computed.

    Attributes:
        actor: Path of the actor; ``batches/<name>`` of a batch function.
        number: Number of the input of that actor, counted from 1 over its restarts.
        kind: Kind of the input.
        type: ``module:qualname`` of the message's class.
        message: The message, encoded.
        time: Time on the system's clock.
        detail: Number of the timer, for ``timer``.
    """

    actor: str
    number: int
    kind: InputKind | str
    type: str
    message: bytes
    time: float
    detail: int = 0


class Output(_Entry, frozen=True, tag=2):
    """An output of a handler: a reply, a failure, or a message it sent.

    Attributes:
        actor: Path of the actor.
        number: The input that it belongs to; 0 before the first.
        kind: ``reply``, ``error``, ``sent`` or ``refused`` (the message just sent found a full mailbox).
        to: Path of the target, of a message.
        type: Class of the value, error or message.
        value: The encoded value, or the digest of a long one.
        time: Time on the system's clock.
    """

    actor: str
    number: int
    kind: str
    to: str
    type: str
    value: bytes
    time: float


class Recalled(_Entry, frozen=True, tag=3):
    """A value from outside: a seed, the time, a choice, an answer.

    Attributes:
        actor: Path of the actor that requested it, "" for the application.
        name: Name of the value.
        value: Encoded.
    """

    actor: str
    name: str
    value: bytes


class Snapshot(_Entry, frozen=True, tag=4):
    """The state of an actor before its next input.

    Attributes:
        number: Inputs that it had handled.
        type: Class of the state.
        value: Encoded state.
    """

    actor: str
    number: int
    type: str
    value: bytes


class Gap(_Entry, frozen=True, tag=5):
    """Records that are missing here, because the journal could not be written.

    Attributes:
        lost: Number of missing records.
        reason: The journal's error.
    """

    lost: int
    reason: str


class DeviceOpened(_Entry, frozen=True, tag=6):
    """A device of the system was opened.

    Attributes:
        actor: ``devices/1`` for the first one, and so on.
        name, backend, uuid: The device.
    """

    actor: str
    name: str
    backend: str
    uuid: str


class DeviceOp(_Entry, frozen=True, tag=7):
    """An op was submitted to a device, or a resident actor of it was called.

    Attributes:
        actor: ``devices/<n>``.
        number: Number of the op on that device, counted from 1.
        op: ``library.op``; ``actor.method`` of a resident actor; ``memory.put`` and ``memory.get``.
        arguments: By name, in the form of :mod:`callboard.multi_device.replay.plain`.
        outputs: Names of the arrays that it writes.
    """

    actor: str
    number: int
    op: str
    arguments: dict[str, Any]
    outputs: list[str]


class DeviceResult(_Entry, frozen=True, tag=8):
    """An output of an op is known, or its error.

    Attributes:
        actor, number: The op.
        name: Name of the output; ``value`` of a reply that is not an array.
        value: In the form of :mod:`callboard.multi_device.replay.plain`.
        lost: It failed because the context was lost.
    """

    actor: str
    number: int
    name: str
    value: Any
    lost: bool = False


class Content(_Entry, frozen=True, tag=9):
    """The elements of an array, once for all that have them.

    Attributes:
        digest: Hash of the elements, by which ops and results name them.
        dtype: Its dtype.
        data: The elements in C order.
    """

    digest: str
    dtype: str
    data: bytes


class DeviceChosen(_Entry, frozen=True, tag=10):
    """A placement chose a device.

    Attributes:
        actor: ``devices/<n>``.
    """

    actor: str


class DeviceLost(_Entry, frozen=True, tag=11):
    """The context of a device was lost.

    Attributes:
        actor: ``devices/<n>``.
        number: The last op that was called before.
        error: Its class and text.
    """

    actor: str
    number: int
    error: str


Entry = (
    Run
    | Input
    | Output
    | Recalled
    | Snapshot
    | Gap
    | DeviceOpened
    | DeviceOp
    | DeviceResult
    | Content
    | DeviceChosen
    | DeviceLost
)

encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
decode: Callable[[bytes], Entry] = msgspec.msgpack.Decoder(Entry).decode


def encode_input(actor: str, number: int, kind: str, type: str, message: Parts, time: float, detail: int) -> bytes:
    """:class:`Input` of a message in parts, which are copied once. Arguments: its fields."""
    size, parts = message
    head = b"\x98" + encode((1, actor, number, kind, type))[1:] + binary(size)
    return joined((0, [head, *parts, encode((time, detail))[1:]]))


def this_run() -> Run:
    """The entry that a recording begins with."""
    versions = {"python": platform.python_version(), "numpy": np.__version__, "machine": platform.machine()}
    return Run(VERSION, versions, time.time())
