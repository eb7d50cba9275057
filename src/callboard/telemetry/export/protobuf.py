"""Packets of Perfetto's trace format: tracks, names, slices and arrows, as bytes.

A file is a ``Trace``: a sequence of ``TracePacket``. Written here are ``TrackDescriptor``, ``InternedData`` with
``EventName``, ``TrackEvent`` and ``DebugAnnotation``. Fields and their numbers are those of ``protos/perfetto/trace``.
Times have a fixed width, so that everything else of a packet is made once for each track and name.
"""

from typing import Final

__all__ = ["BEGIN", "END", "INSTANT", "annotated", "event", "event_name", "first", "flow", "packet", "track"]

BEGIN: Final = 1
END: Final = 2
INSTANT: Final = 3

_CHUNK: Final = [bytes((0x80 | low, 0x80 | high)) for high in range(128) for low in range(128)]
_LAST: Final = [bytes((0x80 | low, high)) for high in range(128) for low in range(128)]

SEQUENCE: Final = b"\x50\x01"  # TracePacket.trusted_packet_sequence_id = 1
NEEDS_NAMES: Final = b"\x68\x02"  # TracePacket.sequence_flags = SEQ_NEEDS_INCREMENTAL_STATE


def packet(ns: int, rest: bytes) -> bytes:
    """A ``TracePacket`` at a time, of 56 bits."""
    time = _CHUNK[ns & 16383] + _CHUNK[ns >> 14 & 16383] + _CHUNK[ns >> 28 & 16383] + _LAST[ns >> 42 & 16383]
    length = len(rest) + 9
    return (b"\x0a%c\x40" % length if length < 128 else b"\x0a" + _varint(length) + b"\x40") + time + rest


def first() -> bytes:
    """The first packet, with which names begin."""
    return _field(1, SEQUENCE + b"\x68\x01")


def track(uuid: int, name: str, parent: int, pid: int = 0) -> bytes:
    """A packet that describes a track.

    Args:
        uuid: Number of the track.
        name: Name of the track.
        parent: Number of the track that it is part of; 0: of none.
        pid: For a process's track: the process.
    """
    if pid:
        about = _field(3, _number(1, pid) + _field(6, name.encode()))
    else:
        about = _field(2, name.encode())
    return _field(1, SEQUENCE + _field(60, _number(1, uuid) + about + (_number(5, parent) if parent else b"")))


def event_name(iid: int, name: str) -> bytes:
    """A packet that gives a name a number."""
    return _field(1, SEQUENCE + NEEDS_NAMES + _field(12, _field(2, _number(1, iid) + _field(2, name.encode()))))


def event(kind: int, uuid: int, name: int = 0, more: bytes = b"") -> bytes:
    """What follows the time in the packet of an event on a track.

    Args:
        kind: ``BEGIN``, ``END`` or ``INSTANT``.
        uuid: The track.
        name: Number of the name; 0: none.
        more: :func:`flow` and :func:`annotated`.
    """
    inside = _number(9, kind) + _number(11, uuid) + (_number(10, name) if name else b"") + more
    return SEQUENCE + NEEDS_NAMES + _field(11, inside)


def flow(number: int, *, ends: bool = False) -> bytes:
    """An arrow from the event before to the event after with the same number."""
    return (b"\x81\x03" if ends else b"\xf9\x02") + number.to_bytes(8, "little")


def annotated(name: str, value: str) -> bytes:
    """A text that the view shows for the event."""
    return _field(4, _field(10, name.encode()) + _field(6, value.encode()))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _field(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content
