"""Packets of Perfetto's trace format: tracks, names, slices and arrows, as bytes.

A file is a ``Trace``: a sequence of ``TracePacket``. Written here are ``TrackDescriptor``, ``InternedData`` with
``EventName``, ``TrackEvent`` and ``DebugAnnotation``. Fields and their numbers are those of ``protos/perfetto/trace``.
Times have a fixed width, so that everything else of a packet is made once for each track and name.
"""

from struct import Struct
from typing import Final

__all__ = [
    "BEGIN",
    "END",
    "INSTANT",
    "Event",
    "Packets",
    "annotated",
    "arrowed",
    "closed",
    "event",
    "event_name",
    "flow",
    "number_of",
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


Event = tuple[bytes, bytes]
"""What stands before the time in the packet of an event, and what follows."""


class Packets:
    """Packets in their order, as parts that are joined when they are written.

    Attributes:
        parts: The parts.
    """

    def __init__(self) -> None:
        self.parts: list[bytes] = [first()]
        self._high = -1
        self._high_bytes = b""

    def add(self, ns: int, event: Event, end: int, ending: Event, chunk: list[bytes] = _CHUNK) -> None:
        """Add two events at their times, of 56 bits: the beginning of a slice, and its end."""
        if ns >> 28 != self._high:  # four times a second
            self._turn(ns >> 28)
        start, rest = event
        first, last = chunk[ns & 16383], chunk[ns >> 14 & 16383]
        high = self._high_bytes
        if end >> 28 != self._high:
            self._turn(end >> 28)
        begins, ends = ending
        self.parts += (
            *(start, first, last, high, rest),
            *(begins, chunk[end & 16383], chunk[end >> 14 & 16383], self._high_bytes, ends),
        )

    def add_one(self, ns: int, event: Event) -> None:
        """Add one event."""
        if ns >> 28 != self._high:
            self._turn(ns >> 28)
        self.parts += (event[0], _CHUNK[ns & 16383], _CHUNK[ns >> 14 & 16383], self._high_bytes, event[1])

    def _turn(self, high: int) -> None:
        self._high, self._high_bytes = high, _CHUNK[high & 16383] + _LAST[high >> 14 & 16383]

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
        about = _field(3, _number(1, pid) + _field(6, _text(name)))
    else:
        about = _field(2, _text(name))
    return _field(1, SEQUENCE + _field(60, _number(1, uuid) + about + (_number(5, parent) if parent else b"")))


def event_name(iid: int, name: str) -> bytes:
    """A packet that gives a name a number."""
    return _field(1, SEQUENCE + NEEDS_NAMES + _field(12, _field(2, _number(1, iid) + _field(2, _text(name)))))


def event(kind: int, uuid: int, name: int = 0) -> bytes:
    """The fields of an event on a track, which :func:`closed` makes a packet's.

    Args:
        kind: ``BEGIN``, ``END`` or ``INSTANT``.
        uuid: The track.
        name: Number of the name; 0: none.
    """
    return _number(9, kind) + _number(11, uuid) + (_number(10, name) if name else b"")


def closed(fields: bytes, more: bytes = b"") -> Event:
    """The packet of an event, given its fields.

    Args:
        fields: What :func:`event` returns.
        more: :func:`flow` and :func:`annotated`.
    """
    rest = EVENT + _LENGTHS[(len(fields) + len(more)) & 16383] + fields + more
    return _STARTS[len(rest)] if len(rest) < 512 else _start(len(rest)), rest


def arrowed(fields: bytes, *, ends: bool = False) -> Event:
    """Like :func:`closed`, of an event with one :func:`flow`, up to the number of it: :data:`number_of` makes that."""
    start, rest = closed(fields, flow(0, ends=ends))
    return start, rest[:-8]


number_of: Final = Struct("<Q").pack


def flow(number: int, *, ends: bool = False) -> bytes:
    """An arrow from the event before to the event after with the same number."""
    return (b"\x81\x03" if ends else b"\xf9\x02") + number.to_bytes(8, "little")


def annotated(name: str, value: str) -> bytes:
    """A text that the view shows for the event."""
    return _field(4, _field(10, _text(name)) + _field(6, _text(value)))


def _text(text: str) -> bytes:
    return text.encode(errors="replace")


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
