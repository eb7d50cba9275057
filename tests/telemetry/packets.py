"""A decoder of protobuf's wire format, and of Perfetto's packets with it: independent of what writes them."""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: an integer, or bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = varint()
        match tag & 7:
            case 0:
                yield tag >> 3, varint()
            case 1:
                yield tag >> 3, struct.unpack_from("<Q", data, at)[0]
                at += 8
            case 2:
                length = varint()
                assert at + length <= len(data)
                yield tag >> 3, data[at : at + length]
                at += length
            case wire:
                raise AssertionError(f"wire type {wire}")


class Slice(NamedTuple):
    """What a view shows on a track."""

    track: str
    name: str
    began: int
    ended: int | None
    out: list[int]
    into: list[int]


class Trace:
    """A trace file.

    Attributes:
        tracks: Name and parent's number by the track's number.
        slices: Slices and, without an end, instants, in the order of the file.
    """

    def __init__(self, data: bytes) -> None:
        self.tracks: dict[int, tuple[str, int]] = {}
        self.slices: list[Slice] = []
        names: dict[int, str] = {}
        open_: dict[int, list[int]] = {}
        for number, packet in fields(data):
            assert number == 1
            found = dict(fields(packet))
            if 60 in found:
                self._described(found[60])
            for kind, name in fields(found.get(12, b"")):
                assert kind == 2
                about = dict(fields(name))
                names[about[1]] = about[2].decode()
            if 11 in found:
                self._event(found[8], found[11], names, open_)
        assert not any(open_.values()), "a slice has no end"

    def _described(self, data: bytes) -> None:
        found = dict(fields(data))
        name = found[2] if 2 in found else dict(fields(found[3]))[6]
        assert found[1] not in self.tracks
        assert found.get(5, 0) in {0, *self.tracks}
        self.tracks[found[1]] = name.decode(), found.get(5, 0)

    def _event(self, at: int, data: bytes, names: dict[int, str], open_: dict[int, list[int]]) -> None:
        several = list(fields(data))
        found = dict(several)
        if found[9] == 2:
            index = open_[found[11]].pop()
            self.slices[index] = self.slices[index]._replace(ended=at)
            assert at >= self.slices[index].began
            return
        out = [value for number, value in several if number == 47]
        into = [value for number, value in several if number == 48]
        self.slices.append(Slice(self.tracks[found[11]][0], names[found[10]], at, None, out, into))
        if found[9] == 1:
            open_.setdefault(found[11], []).append(len(self.slices) - 1)
