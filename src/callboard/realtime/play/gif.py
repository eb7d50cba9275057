"""GIF files of frames: 255 colours of their own, only what changes from frame to frame, compressed (LZW)."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.realtime.base.checks import number

__all__ = ["check_fps", "write_gif"]

Picture = NDArray[np.uint8]
COLOURS = 255
SAME = 255
"""The colour of pixels that are as in the frame before."""
CLEAR, END = 256, 257
MOST = 4096
"""Codes of a table."""
SLOWEST, FASTEST = 0.002, 50.0
"""Frames a second: a delay has 16 bits, and viewers take one below 2 hundredths of a second as 10."""


def write_gif(path: str | Path, frames: Sequence[NDArray[Any]], fps: float = 30.0) -> int:
    """Write frames as a GIF that repeats for ever.

    Args:
        path: The file.
        frames: u8, or floats from 0 to 1, ``[h, w, 3]``, all of one size.
        fps: Frames a second, from 0.002 to 50. A GIF counts in hundredths of a second: where a frame's time is no whole
            number of them, some frames are shown for one more than others, and the time of all is right.

    Returns:
        Bytes of the file.

    Raises:
        TypeError, ValueError: There are no frames, of several sizes, or of other numbers; ``fps`` is out of range.
    """
    check_fps(fps)
    frames = [_picture(n, frame) for n, frame in enumerate(frames)]
    shapes = {frame.shape for frame in frames}
    if len(shapes) != 1 or next(iter(shapes))[2:] != (3,):
        raise ValueError(f"frames have the shapes {sorted(shapes)}; pass one or more of one shape [h, w, 3]")
    height, width, _ = shapes.pop()
    if not (0 < height < 1 << 16 and 0 < width < 1 << 16):
        raise ValueError(f"frames are {height} by {width}; a GIF has 1 to 65535 pixels each way")
    palette, places = _palette(frames)
    ends = [round(100 * n / fps) for n in range(len(frames) + 1)]
    before: Picture | None = None
    with open(path, "wb") as file:
        file.write(b"GIF89a" + struct.pack("<HHBBB", width, height, 0xF7, 0, 0) + palette.tobytes())
        file.write(b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00")
        for n, frame in enumerate(frames):
            delay = ends[n + 1] - ends[n]
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


def check_fps(fps: float) -> None:
    """Refuse what GIF files cannot have.

    Raises:
        TypeError, ValueError: Names the range.
    """
    if not SLOWEST <= number("fps", fps) <= FASTEST:
        raise ValueError(
            f"fps is {fps:g}; a GIF has {SLOWEST:g} to {FASTEST:g} frames a second (viewers show faster ones slowly): "
            "write fewer frames, or a video"
        )


def _picture(n: int, frame: Any) -> Picture:
    """A frame as bytes."""
    frame = np.asarray(frame)
    if frame.dtype == np.uint8:
        return np.asarray(frame, np.uint8)
    if frame.dtype.kind != "f":
        raise TypeError(f"frame {n} has the dtype {frame.dtype}; pass u8, or floats from 0 to 1")
    if frame.size and not (frame.min() >= 0 and frame.max() <= 1):
        raise ValueError(
            f"frame {n} has floats from {frame.min():g} to {frame.max():g}; pass floats from 0 to 1, or u8"
        )
    return np.asarray(np.rint(frame * 255), np.uint8)


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
