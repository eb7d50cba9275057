"""A video file on a device: frames are read, pass a graph of effects, and are written again (extra ``realtime``)."""

import asyncio
import importlib.util
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np

import callboard as cb
from callboard.realtime.video import effects
from callboard.realtime.video.files import read_video, write_video

NODES = {
    "soft": effects.blur(5, "input"),
    "lines": effects.edge("input"),
    "both": effects.merge("soft", "lines", "max"),
    "trail": effects.trail(3, "both"),
}


def filmed(frames: int = 12) -> list[tuple[float, Any]]:
    """A ball that moves over a ramp."""
    y, x = np.mgrid[:96, :128]
    ramp = np.stack([x, y, 160 - x], 2).astype("u1")
    balls = [np.hypot(y - 48, x - 20 - 8 * n) < 14 for n in range(frames)]
    return [(n / 24, np.where(ball[..., None], np.uint8(240), ramp)) for n, ball in enumerate(balls)]


async def main(name: str, file: Path) -> None:
    before = file.with_name(f"{file.stem}-before.mkv")
    await write_video(before, filmed(), fps=24)
    async with cb.device(name) as gpu:
        graph = cb.VideoEffectsGraph(gpu, NODES)

        async def shown() -> AsyncIterator[Any]:
            async for frame in graph.run(read_video(before)):
                yield frame

        count = await write_video(file, shown(), fps=24)
    found = [frame async for _, frame in read_video(file)]
    assert len(found) == count == 12
    print(f"{count} frames, {graph.stats().dropped} dropped, {file.name} written")


if __name__ == "__main__":
    if importlib.util.find_spec("av") is None:
        print('PyAV is not installed, so there is nothing to see: pip install "callboard[realtime]"')
    else:
        where = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tempfile.gettempdir()) / "film.mp4"
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto", where))
