"""Records as frames of a file: magic, length, CRC-32, sequence, and then the record.

A frame is valid if all of its bytes are present and the CRC-32 of sequence and record matches. The bytes after the last
valid frame are a torn tail if no valid frame follows them, and damage otherwise.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence

__all__ = ["HEADER", "MAGIC", "frames", "next_frame", "scan"]

MAGIC = b"\xcbJ1\n"
HEADER = struct.Struct("<4sIIQ")
MAX_RECORD = 1 << 30
_sequence = struct.Struct("<Q").pack
_crc = zlib.crc32


def frames(first: int, records: Sequence[bytes]) -> bytes:
    """The frames of consecutive records."""
    parts: list[bytes] = []
    pack = HEADER.pack
    for sequence, record in enumerate(records, first):
        parts += pack(MAGIC, len(record), _crc(record, _crc(_sequence(sequence))), sequence), record
    return b"".join(parts)


def next_frame(data: bytes | memoryview, at: int) -> tuple[int, int, int] | None:
    """Sequence, start and end of the record of the valid frame at ``at``; None if there is none."""
    start = at + HEADER.size
    if start > len(data):
        return None
    magic, length, crc, sequence = HEADER.unpack_from(data, at)
    end = start + length
    if magic != MAGIC or length > MAX_RECORD or end > len(data):
        return None
    return (sequence, start, end) if _crc(data[start:end], _crc(_sequence(sequence))) == crc else None


def scan(data: bytes | memoryview, at: int = 0) -> Iterator[tuple[int, int, int]]:
    """Sequence, start and end of each record, up to the first invalid frame."""
    while (found := next_frame(data, at)) is not None:
        yield found
        at = found[2]
