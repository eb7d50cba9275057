"""GIF files of frames: 255 colours of their own, only what changes from frame to frame, compressed (LZW)."""

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from callboard.realtime.base.checks import number

__all__ = ["write_gif"]

Picture = NDArray[np.uint8]
COLOURS = 255
SAME = 255
"""The colour of pixels that are as in the frame before."""
CLEAR, END = 256, 257
MOST = 4096
"""Codes of a table."""


def write_gif(path: str | Path, frames: Sequence[Picture], fps: float = 30.0) -> int:
    """Write frames as a GIF that repeats for ever.

    Args:
        path: The file.
        frames: u8 ``[h, w, 3]``, all of one size.
        fps: Frames a second; a GIF counts in hundredths of a second.

    Returns:
        Bytes of the file.

    Raises:
        TypeError: Frames are not of u8.
        ValueError: There are no frames, or of several sizes; or they are too large, or too slow, for the format.
    """
    rate = number("fps", fps, least=100 / 65535)
    shapes = {frame.shape for frame in frames}
    if len(shapes) != 1 or next(iter(shapes))[2:] != (3,):
        raise ValueError(f"frames have the shapes {sorted(shapes)}; pass one or more of one shape [h, w, 3]")
    if any(frame.dtype != np.uint8 for frame in frames):
        raise TypeError("frames have other dtypes than u8; pass frames.astype('u1'), of 0 to 255")
    height, width, _ = shapes.pop()
    if not (0 < height < 1 << 16 and 0 < width < 1 << 16):
        raise ValueError(f"frames are {height} by {width}; a GIF has 1 to 65535 pixels each way")
    palette, places = _palette(frames)
    delay = max(2, round(100 / rate))
    before: Picture | None = None
    with open(path, "wb") as file:
        file.write(b"GIF89a" + struct.pack("<HHBBB", width, height, 0xF7, 0, 0) + palette.tobytes())
        file.write(b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00")
        for frame in frames:
            pixels = places[_key(frame)]
            y, x, shown = _changed(pixels, before)
            file.write(struct.pack("<4sHBB", b"\x21\xf9\x04\x05", delay, SAME, 0))  # what is below stays
            file.write(b"\x2c" + struct.pack("<HHHHBB", x, y, shown.shape[1], shown.shape[0], 0, 8))
            data = _compressed(shown.tobytes())
            file.write(b"".join(bytes([len(data[n : n + 255])]) + data[n : n + 255] for n in range(0, len(data), 255)))
            file.write(b"\0")
            before = pixels
        file.write(b";")
        return file.tell()


def _key(frame: Picture) -> NDArray[np.uint16]:
    """Colours in 15 bits."""
    r, g, b = (frame[..., n].astype(np.uint16) >> 3 for n in range(3))
    return np.asarray(r << 10 | g << 5 | b, np.uint16)


def _palette(frames: Sequence[Picture]) -> tuple[Picture, Picture]:
    """The most frequent colours, and which of them stands for each colour of 15 bits."""
    counts = sum(np.bincount(_key(frame).ravel(), minlength=1 << 15) for frame in frames)
    chosen = np.argsort(-np.asarray(counts), kind="stable")[:COLOURS]
    every = np.arange(1 << 15)
    of = np.stack([every >> 10, every >> 5 & 31, every & 31], 1).astype("i2")
    places = np.zeros(1 << 15, "u1")
    used = np.flatnonzero(counts)
    apart = ((of[used, None].astype("i4") - of[chosen]) ** 2).sum(2)
    places[used] = apart.argmin(1)
    return np.append(of[chosen] * 255 // 31, [[0, 0, 0]], axis=0).astype("u1"), places


def _changed(pixels: Picture, before: Picture | None) -> tuple[int, int, Picture]:
    """The smallest rectangle that differs from the frame before: its place, and its pixels."""
    if before is None:
        return 0, 0, pixels
    differs = pixels != before
    rows, columns = np.flatnonzero(differs.any(1)), np.flatnonzero(differs.any(0))
    if not rows.size:
        return 0, 0, np.full((1, 1), SAME, "u1")
    part = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    return int(rows[0]), int(columns[0]), np.where(differs[part], pixels[part], np.uint8(SAME))


def _compressed(pixels: bytes) -> bytes:
    """LZW codes (Welch, 1984) of 9 to 12 bits, least significant bits first; the table begins again when it is full."""
    out, held, bits, width = bytearray(), CLEAR, 9, 9
    table, free = {bytes([n]): n for n in range(256)}, END + 1
    word = pixels[:1]
    for n in range(1, len(pixels) + 1):
        longer = word + pixels[n : n + 1]
        if n < len(pixels) and longer in table:
            word = longer
            continue
        held |= table[word] << bits
        bits += width
        if n < len(pixels):
            table[longer] = free
            if free == 1 << width:
                width += 1
            free += 1
            if free == MOST:
                held |= CLEAR << bits
                bits, width = bits + width, 9
                table, free = {bytes([one]): one for one in range(256)}, END + 1
        word = pixels[n : n + 1]
        while bits >= 8:
            out.append(held & 255)
            held, bits = held >> 8, bits - 8
    held |= END << bits
    return bytes(out) + held.to_bytes((bits + width + 7) // 8, "little")
