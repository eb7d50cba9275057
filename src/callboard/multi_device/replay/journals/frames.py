"""Records as frames of a file: magic, length (twice), CRC-32, sequence, and then the record.

The CRC covers the journal's identity, the sequence, the length and the record. The second length, in which each bit is
inverted, tells a frame that was cut off, which ends behind the file, from one whose length has changed.

Earlier versions wrote the length once, and a CRC of sequence and record. Their frames are read.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from zlib import crc32

from callboard.multi_device.replay.journals.seals import checksum

__all__ = ["HEADER", "OLD_MAGIC", "frames", "is_cut_off", "next_frame", "scan"]

MAGIC = b"\xcbJ2\n"
HEADER = struct.Struct("<4sIIIq")
MAX_RECORD = 1 << 30
INVERTED = 0xFFFFFFFF

OLD_MAGIC = b"\xcbJ1\n"
OLD_HEADER = struct.Struct("<4sIIQ")
_old_sequence = struct.Struct("<Q").pack

Frame = tuple[int, int, int]
"""Sequence, start and end of the record of a frame."""


def frames(first: int, records: Sequence[bytes], seed: int) -> bytes:
    """The frames of consecutive records; ``seed`` is :func:`.seed_of` the identity."""
    parts: list[bytes] = []
    pack, of = HEADER.pack, checksum
    for sequence, record in enumerate(records, first):
        length = len(record)
        parts += pack(MAGIC, length, length ^ INVERTED, of(seed, sequence, record), sequence), record
    return b"".join(parts)


def next_frame(data: bytes | memoryview, at: int, seed: int) -> Frame | None:
    """The valid frame at ``at``; None if there is none."""
    start = at + HEADER.size
    if start > len(data):
        return _old_frame(data, at)
    magic, length, inverted, crc, sequence = HEADER.unpack_from(data, at)
    if magic != MAGIC:
        return _old_frame(data, at)
    end = start + length
    if length ^ inverted != INVERTED or end > len(data):
        return None
    return (sequence, start, end) if checksum(seed, sequence, data[start:end]) == crc else None


def _old_frame(data: bytes | memoryview, at: int) -> Frame | None:
    start = at + OLD_HEADER.size
    if start > len(data):
        return None
    magic, length, crc, sequence = OLD_HEADER.unpack_from(data, at)
    end = start + length
    if magic != OLD_MAGIC or length > MAX_RECORD or end > len(data):
        return None
    return (sequence, start, end) if crc32(data[start:end], crc32(_old_sequence(sequence))) == crc else None


def scan(data: bytes | memoryview, seed: int, at: int = 0) -> Iterator[Frame]:
    """The frames up to the first invalid one."""
    while (found := next_frame(data, at, seed)) is not None:
        yield found
        at = found[2]


def is_cut_off(data: bytes, at: int, seed: int) -> bool:
    """True if the bytes after the last valid frame, from ``at`` on, are those of a write that did not end.

    They are the beginning of a frame, or zeros if the file became longer before its contents were written. A frame of
    an earlier version does not tell how long it is: it is cut off if no valid frame follows.
    """
    rest = len(data) - at
    if rest < HEADER.size or not data[at:].strip(b"\0"):
        return True
    magic, length, inverted, _, _ = HEADER.unpack_from(data, at)
    if magic == OLD_MAGIC:
        following = (found.start() for found in re.finditer(b"\xcbJ[12]\n", data) if found.start() > at)
        return all(next_frame(data, start, seed) is None for start in following)
    return bool(magic == MAGIC and length ^ inverted == INVERTED and rest < HEADER.size + length)
