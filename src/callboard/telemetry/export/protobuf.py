"""Packets of Perfetto's trace format: tracks, names, slices and arrows, as bytes.

A file is a ``Trace``: a sequence of ``TracePacket``. Written here are ``TrackDescriptor``, ``InternedData`` with
``EventName``, ``TrackEvent`` and ``DebugAnnotation``. Fields and their numbers are those of ``protos/perfetto/trace``.
Times have a fixed width, so that everything else of a packet is made once for each track and name.
"""

from typing import Final

__all__ = [
    "BEGIN",
    "END",
    "INSTANT",
    "Packets",
    "annotated",
    "closed",
    "event",
    "event_name",
    "flow",
    "track",
    "whole_packets",
]

BEGIN: Final = 1
END: Final = 2
INSTANT: Final = 3

_CHUNK: Final = [bytes((0x80 | low, 0x80 | high)) for high in range(128) for low in range(128)]
_LAST: Final = [bytes((0x80 | low, high)) for high in range(128) for low in range(128)]

SEQUENCE: Final = b"\x50\x01"  # TracePacket.trusted_packet_sequence_id = 1
NEEDS_NAMES: Final = b"\x68\x02"  # TracePacket.sequence_flags = SEQ_NEEDS_INCREMENTAL_STATE
EVENT: Final = SEQUENCE + NEEDS_NAMES + b"\x5a"  # and TracePacket.track_event


class Packets:
    """Packets in their order, as parts that are joined when they are written.

    Attributes:
        parts: The parts.
    """

    def __init__(self) -> None:
        self.parts: list[bytes] = [first()]
        self._high = -1
        self._high_bytes = b""

    def add(self, ns: int, event: bytes) -> None:
        """Add an :func:`event` at a time, of 56 bits."""
        high = ns >> 28
        if high != self._high:  # four times a second
            self._high, self._high_bytes = high, _CHUNK[high & 16383] + _LAST[high >> 14 & 16383]
        length = len(event)
        start = _STARTS[length] if length < 512 else _start(length)
        self.parts += (start, _CHUNK[ns & 16383], _CHUNK[ns >> 14 & 16383], self._high_bytes, event)

    def take(self) -> bytes:
        """All of them so far; they are dropped here."""
        data = b"".join(self.parts)
        self.parts.clear()
        return data


def whole_packets(data: bytes, written: int) -> int:
    """The number of the first bytes that hold whole packets only, of those that were written."""
    end = 0
    while True:
        length, shift, at = 0, 0, end + 1
        while at < written:
            length |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                break
        else:
            return end
        if at + length > written:
            return end
        end = at + length


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


def event(kind: int, uuid: int, name: int = 0) -> bytes:
    """The fields of an event on a track, which :func:`closed` makes a packet's.

    Args:
        kind: ``BEGIN``, ``END`` or ``INSTANT``.
        uuid: The track.
        name: Number of the name; 0: none.
    """
    return _number(9, kind) + _number(11, uuid) + (_number(10, name) if name else b"")


def closed(fields: bytes, more: bytes = b"") -> bytes:
    """What follows the time in the packet of an event, given its fields.

    Args:
        fields: What :func:`event` returns.
        more: :func:`flow` and :func:`annotated`.
    """
    return EVENT + _LENGTHS[(len(fields) + len(more)) & 16383] + fields + more


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


def _start(length: int) -> bytes:
    """The beginning of a packet that has so many bytes behind its time, up to that time."""
    return b"\x0a" + _varint(length + 9) + b"\x40"


_LENGTHS: Final = [_varint(length) for length in range(16384)]
_STARTS: Final = [_start(length) for length in range(512)]
