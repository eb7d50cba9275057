"""Long JSON in pieces: Python's lock is held for a few milliseconds at a time, while other requests are answered.

A decoder of JSON holds the lock until it is done. Flat lists of numbers, the bulk of long requests, are therefore cut
out of the text and read piece by piece. What is left is read at once, and so has a limit.
"""

import re
from collections.abc import Iterator

from callboard.serve.errors import HttpError

__all__ = ["LONG", "PIECE", "check_length", "cut", "pieces"]

LONG = 256 * 1024
"""Bytes of JSON from which on it is read, and written, on a thread and in pieces."""
PIECE = 64 * 1024
"""Bytes of a list that are read at once."""
MOST = 8 << 20
"""Bytes of JSON that are read at once, at most."""
MOST_VALUES = 3 << 17
"""Its values, about, at most: its commas, and two more for each list and object, which take that much longer."""

MOST_KEYS = 64
"""Lists that are looked at: each may be looked through to the end of the text."""

KEY = b'"data"'  # inside a text the quotes would be escaped
LIST = re.compile(rb'"data"[ \t\r\n]*:[ \t\r\n]*\[')


def cut(text: bytes) -> tuple[bytes, list[memoryview]]:
    """The text with ``{"": n}`` in place of its n-th long flat list named ``data``, and the insides of these lists."""
    view = memoryview(text)
    kept: list[bytes | memoryview] = []
    found: list[memoryview] = []
    done = at = 0
    for _ in range(MOST_KEYS):
        if (at := text.find(KEY, at)) < 0:
            break
        start = LIST.match(text, at, at + LONG)
        if start is None:
            at += len(KEY)
            continue
        begin = start.end()
        end = text.find(b"]", begin)
        if end < 0:
            break
        if end - begin >= LONG and all(text.find(other, begin, end) < 0 for other in (b"[", b'"', b"{")):
            kept += [view[done : begin - 1], b'{"":%d}' % len(found)]
            found.append(view[begin:end])
            done = end + 1
            at = end
        else:
            at = begin
    return b"".join([*kept, view[done:]]), found


def pieces(inside: memoryview) -> Iterator[bytes]:
    """The same list as several short ones, as JSON.

    Raises:
        ValueError: Too much is between two commas, or nothing behind the last one.
    """
    at = 0
    while at <= len(inside):
        piece = bytes(inside[at : at + PIECE])
        if at + PIECE < len(inside):
            last = piece.rfind(b",")
            if last < 0:
                raise ValueError(f"there is no comma in {PIECE} bytes")
            piece = piece[:last]
        elif at and not piece.strip():
            raise ValueError("there is no value after the last comma")
        at += len(piece) + 1
        yield b"[%b]" % piece


def check_length(text: bytes | memoryview, cure: str) -> None:
    """Refuse JSON that would be read for so long that other requests wait.

    Raises:
        HttpError: It is too long (413); ``cure`` says what to do.
    """
    if len(text) <= MOST_VALUES:
        return
    if len(text) > MOST:
        raise HttpError(f"{len(text)} bytes of JSON are more than are read at once: {cure}", 413)
    whole = bytes(text)
    values = whole.count(b",") + 2 * (whole.count(b"[") + whole.count(b"{"))
    if values > MOST_VALUES:
        raise HttpError(f"about {values} values of JSON are more than are read at once: {cure}", 413)
