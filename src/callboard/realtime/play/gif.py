"""GIF files of frames: 127 colours of their own, without compression, so that NumPy alone writes them at once."""

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["write_gif"]

Picture = NDArray[np.uint8]
COLOURS = 128
CLEAR, END = COLOURS, COLOURS + 1
RUN = COLOURS - 3
"""Codes between two clears: so many that codes never become longer than 8 bits."""


def write_gif(path: str | Path, frames: Sequence[Picture], fps: float = 30.0) -> None:
    """Write frames as a GIF that repeats for ever.

    Args:
        path: The file.
        frames: u8 ``[h, w, 3]``, all of one size.
        fps: Frames a second; a GIF counts in hundredths of a second.

    Raises:
        ValueError: There are no frames, or of several sizes.
    """
    shapes = {frame.shape for frame in frames}
    if len(shapes) != 1 or next(iter(shapes))[2:] != (3,):
        raise ValueError(f"frames have the shapes {sorted(shapes)}; pass one or more of one shape [h, w, 3]")
    height, width, _ = shapes.pop()
    palette, places = _palette(frames)
    delay = max(2, round(100 / fps))
    with open(path, "wb") as file:
        file.write(b"GIF89a" + struct.pack("<HHBBB", width, height, 0xF0 | 6, 0, 0) + palette.tobytes())
        file.write(b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00")
        for frame in frames:
            file.write(struct.pack("<4sHBB", b"\x21\xf9\x04\x04", delay, 0, 0))
            file.write(b"\x2c" + struct.pack("<HHHHBB", 0, 0, width, height, 0, 7))
            data = _codes(places[_key(frame)].ravel()).tobytes()
            for start in range(0, len(data), 255):
                block = data[start : start + 255]
                file.write(bytes([len(block)]) + block)
            file.write(b"\0")
        file.write(b";")


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
    return (of[chosen] * 255 // 31).astype("u1"), places


def _codes(pixels: Picture) -> Picture:
    """Pixels as LZW codes of 8 bits, with a clear before the table would need longer ones."""
    runs = np.pad(pixels, (0, -len(pixels) % RUN)).reshape(-1, RUN)
    codes = np.insert(runs, 0, CLEAR, axis=1).ravel()
    return np.append(codes[: len(codes) - -len(pixels) % RUN], END).astype("u1")
