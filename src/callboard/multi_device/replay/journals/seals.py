"""Checksums of records, and the check of what a store returns.

A checksum covers identity, sequence, length and bytes of a record, so a record that has changed, or that stands in the
place of another, is noticed. A missing or additional record is noticed by its sequence: a store also keeps the range of
sequences that it must have, with a checksum.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Any
from zlib import crc32

from callboard.multi_device.replay.errors import JournalCorrupt

__all__ = ["CURE", "OLDER", "Seal", "checksum", "seed_of"]

_numbers = Struct("<qq").pack
CURE = "Restore the journal from a copy, or record under another identity"
OLDER = (
    "its records are of a version of callboard without checksums: copy them into a new journal, as the guide to "
    "recording and replaying shows under 'Journals of earlier versions'"
)


def seed_of(identity: str) -> int:
    """The checksum of an identity, from which those of its records continue."""
    return crc32(identity.encode())


def checksum(seed: int, sequence: int, record: bytes | memoryview) -> int:
    """CRC-32 of identity (``seed``), sequence, length and bytes of a record."""
    return crc32(record, crc32(_numbers(sequence, len(record)), seed))


class Seal:
    """Makes the checksums of one identity, and checks what its store returns.

    Args:
        place: The place of its records, for errors: ``table journal_records in journal.db``.
        identity: Their identity.
    """

    def __init__(self, place: str, identity: str) -> None:
        self._place = f"{place}, identity {identity}"
        self._seed = seed_of(identity)

    def of(self, sequence: int, record: bytes) -> int:
        """The checksum of a record."""
        return checksum(self._seed, sequence, record)

    def of_range(self, last: int, discarded: int) -> int:
        """The checksum of the range of sequences: the last one, and the one up to which records were discarded."""
        return crc32(b"range", crc32(_numbers(last, discarded), self._seed))

    def corrupt(self, problem: str) -> JournalCorrupt:
        """The error for damaged records of this identity."""
        return JournalCorrupt(f"{self._place}: {problem}. {CURE}")

    def range(self, last: Any, discarded: Any, crc: Any) -> tuple[int, int]:
        """``(last, discarded)`` as the store returned them.

        Raises:
            JournalCorrupt: They do not match their checksum.
        """
        whole = type(last) is type(discarded) is int and 0 <= discarded <= last < 1 << 63
        if not whole or crc != self.of_range(last, discarded):
            raise self.corrupt(
                f"the range of its records ({last!r}, {discarded!r}) does not match its checksum {crc!r}"
            )
        return last, discarded

    def check_ends(self, last: int, discarded: int, lowest: Any, highest: Any) -> None:
        """Compare the range with the lowest and highest sequence in the store, None for no record.

        Raises:
            JournalCorrupt: Records are missing at an end, or are too many.
        """
        expected = (discarded + 1, last) if discarded < last else (None, None)
        if (lowest, highest) != expected:
            there = "no records" if lowest is None else f"records {lowest} to {highest}"
            right = "none" if discarded == last else f"records {discarded + 1} to {last}"
            raise self.corrupt(f"there are {there}, and {right} must be there")

    def check_page(
        self, rows: Iterable[tuple[Any, Any, Any]], first: int, count: int, last: int, discarded: int
    ) -> list[tuple[int, bytes]]:
        """The records that the store returned for ``read(first, count)``, as ``(sequence, record, checksum)``.

        Raises:
            JournalCorrupt: One has changed or is missing.
        """
        expected = max(first, discarded + 1)
        end = min(last, expected + count - 1)
        found: list[tuple[int, bytes]] = []
        for sequence, record, crc in rows:
            if sequence != expected or sequence > end:
                break
            data = record if type(record) is bytes else _as_bytes(record)
            if data is None or checksum(self._seed, sequence, data) != crc:
                raise self.corrupt(f"record {sequence} does not match its checksum {crc!r}")
            found.append((sequence, data))
            expected += 1
        if expected <= end:
            raise self.corrupt(f"record {expected} is missing; the journal has records {discarded + 1} to {last}")
        return found


def _as_bytes(record: Any) -> bytes | None:
    return bytes(record) if isinstance(record, memoryview | bytearray) else None
