"""Video files, read and written with FFmpeg's libraries by PyAV (extra ``realtime``)."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from fractions import Fraction
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.core.errors import ShapeError
from callboard.realtime.base.checks import number
from callboard.realtime.video.streams import each

__all__ = ["read_video", "write_video"]

TICKS = 90_000
"""Ticks of a second in which times are given to the encoder; a container may round them (Matroska: to 1 ms)."""
CODECS = {".avi": "ffv1", ".mkv": "ffv1", ".mov": "libx264", ".mp4": "libx264", ".webm": "libvpx"}
LAYOUTS = {1: ("gray", "gray"), 3: ("rgb24", "bgr0"), 4: ("rgba", "bgra")}
"""By channels: PyAV's name of a frame, and how FFV1 keeps the same numbers."""


async def read_video(path: str | PathLike[str], *, start: float = 0.0) -> AsyncGenerator[tuple[float, Any], None]:
    """Pairs of ``pts`` in seconds and a frame, u8 ``[h, w, 3]``, for :meth:`.VideoEffectsGraph.run`.

    Frames are decoded on a thread, one when it is asked for, so a file of any length takes the memory of one frame.

    Args:
        path: A file of any container and codec of FFmpeg.
        start: Frames before this time are left out.

    Raises:
        ImportError: PyAV is not installed.
        OSError, ValueError: There is no such file, or no video in it that can be read.
    """
    av = _av()
    container = await asyncio.to_thread(av.open, fspath(path))
    try:
        if not container.streams.video:
            raise ValueError(f"{fspath(path)} has no video; pass a file with one")
        stream = container.streams.video[0]
        if start > 0:
            await asyncio.to_thread(container.seek, round(number("start", start) / stream.time_base), stream=stream)
        decoded = container.decode(stream)
        while (frame := await asyncio.to_thread(next, decoded, None)) is not None:
            if frame.time is not None and frame.time >= start:
                yield float(frame.time), frame.to_ndarray(format="rgb24")
    finally:
        await asyncio.to_thread(container.close)


async def write_video(
    path: str | PathLike[str], frames: Iterable[Any] | AsyncIterable[Any], *, fps: float = 30.0, codec: str = ""
) -> int:
    """Write frames to a file, and return how many there were. What was written is kept when a frame is refused.

    Args:
        path: The ending says the container: ``.mkv`` and ``.avi`` keep every number (FFV1), ``.mp4`` and ``.mov`` are
            H.264, ``.webm`` is VP8.
        frames: Frames of :meth:`.VideoEffectsGraph.run`, or pairs of ``pts`` in seconds and a frame: u8 ``[h, w]``,
            ``[h, w, 1]``, ``[h, w, 3]`` or ``[h, w, 4]``, all of one shape, in the order of ``pts``.
        fps: The rate that the file names; ``pts`` decide when a frame is shown.
        codec: FFmpeg's name of another codec.

    Raises:
        ImportError: PyAV is not installed.
        ShapeError, TypeError, ValueError: A frame, a ``pts`` or the ending does not fit; names which one.
    """
    av = _av()
    rate = Fraction(number("fps", fps, above=0.0)).limit_denominator(1001)
    name = codec or CODECS.get(Path(fspath(path)).suffix.lower(), "")
    if name not in av.codecs_available:
        raise ValueError(f"{fspath(path)}: no codec for it; use one of the endings {', '.join(CODECS)}, or pass codec=")
    container = await asyncio.to_thread(av.open, fspath(path), "w")
    try:
        stream: Any = None
        shape: tuple[int, ...] = ()
        ticks = -1
        count = 0
        async for pts, frame, *_ in each(frames):
            pixels = _pixels(count, frame, shape)
            shape = pixels.shape
            before, ticks = ticks, round(number(f"pts of frame {count}", pts, least=0.0) * TICKS)
            if ticks <= before:
                raise ValueError(f"frame {count} has the pts {pts:g}, not after the one before; pass them in order")
            layout, kept = LAYOUTS[1 if pixels.ndim == 2 else pixels.shape[2]]
            if stream is None:
                stream = _stream(container, name, rate, pixels.shape, kept if name == "ffv1" else "yuv420p")
            picture = av.VideoFrame.from_ndarray(pixels, layout)
            picture.pts, picture.time_base = ticks, Fraction(1, TICKS)
            await asyncio.to_thread(_encode, container, stream, picture)
            count += 1
        if stream is not None:
            await asyncio.to_thread(_encode, container, stream, None)
        return count
    finally:
        await asyncio.to_thread(container.close)


def _av() -> Any:
    try:
        import av
    except ImportError as error:
        raise ImportError('PyAV is missing: pip install "callboard[realtime]"') from error
    return av


def _stream(container: Any, name: str, rate: Fraction, shape: tuple[int, ...], kept: str) -> Any:
    height, width = shape[:2]
    if kept == "yuv420p" and (height % 2 or width % 2):
        raise ShapeError(f"frames are {height} by {width}; {name} takes even extents: cut a row or column, or use .mkv")
    stream = container.add_stream(name, rate=rate)
    stream.width, stream.height, stream.pix_fmt = width, height, kept
    stream.codec_context.time_base = Fraction(1, TICKS)
    return stream


def _encode(container: Any, stream: Any, picture: Any) -> None:
    container.mux(stream.encode(picture))


def _pixels(number: int, frame: Any, before: tuple[int, ...]) -> NDArray[np.uint8]:
    pixels = np.ascontiguousarray(frame)
    if pixels.dtype != np.uint8:
        raise TypeError(f"frame {number} has dtype {pixels.dtype}; pass u8, such as frame.astype('u1')")
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    if pixels.ndim not in (2, 3) or 0 in pixels.shape or (pixels.ndim == 3 and pixels.shape[2] not in LAYOUTS):
        raise ShapeError(f"frame {number} has shape {list(pixels.shape)}; pass [h, w], [h, w, 3] or [h, w, 4]")
    if before and pixels.shape != before:
        raise ShapeError(f"frame {number} has shape {list(pixels.shape)}, those before {list(before)}; pass one shape")
    return pixels
