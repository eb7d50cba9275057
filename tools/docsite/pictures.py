"""Pictures that a program prints as half blocks in 256 colours, as PNG."""

import re
import struct
import zlib

__all__ = ["picture_in"]

CELL = re.compile("\033\\[38;5;(\\d+);48;5;(\\d+)m▀")
SCALE = 6
"""Pixels of the picture for one of the terminal's."""


def _colour(number: int) -> bytes:
    """Red, green and blue of an entry of xterm's table: a cube of 216 colours, then greys."""
    if number >= 232:
        return bytes([8 + 10 * (number - 232)] * 3)
    red, rest = divmod(max(number - 16, 0), 36)
    return bytes(0 if level == 0 else 55 + 40 * level for level in (red, *divmod(rest, 6)))


def _png(rows: list[bytes]) -> bytes:
    """A picture whose rows have three bytes for each pixel."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", len(rows[0]) // 3, len(rows), 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def picture_in(printed: str) -> tuple[bytes | None, str]:
    """The picture in a program's output, None if there is none, and the lines that are text."""
    rows: list[bytes] = []
    text: list[str] = []
    for line in printed.splitlines():
        cells = CELL.findall(line)
        if not cells:
            text.append(line)
        for half in (0, 1) if cells else ():
            rows += [b"".join(_colour(int(cell[half])) * SCALE for cell in cells)] * SCALE
    return (_png(rows) if rows else None), "\n".join(text).rstrip() + "\n"
