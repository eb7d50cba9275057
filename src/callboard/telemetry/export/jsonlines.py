"""``JsonLines``: events as lines of JSON, in a file."""

import os
import time
from typing import Any

from callboard.events.kinds import FIELDS, NAMES
from callboard.events.ring import Event
from callboard.telemetry.export.texts import json_bytes
from callboard.telemetry.export.wholefile import WholeFile

__all__ = ["JsonLines"]


class JsonLines:
    """A subscriber that writes each event as a line: ``{"at": …, "kind": "op", "device": "cpu:0", …}``.

    ``at`` is Unix seconds; other times are nanoseconds of the machine's monotonic clock.

    Args:
        path: The file, which is appended to.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        self._file = WholeFile(path, "ab", lambda piece, written: piece.rfind(b"\n", 0, written) + 1)
        self._offset = time.time_ns() - time.monotonic_ns()

    def take(self, events: list[Event]) -> None:
        """Write these."""
        offset = self._offset
        lines = []
        for _, ns, kind, *rest in events:
            fields = dict(zip(FIELDS[kind], rest, strict=False))
            lines.append(json_bytes({"at": (ns + offset) / 1e9, "kind": NAMES[kind], **fields}, _named))
        lines.append(b"")
        self._file.add(b"\n".join(lines))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _named(value: Any) -> str:
    """A class by its name."""
    return value.__qualname__ if isinstance(value, type) else str(value)
