"""A chain of filters on a device: noise of a photo is smoothed, edges are sharpened; before and after as a GIF."""

import asyncio
import sys
import tempfile
from pathlib import Path

import numpy as np

import callboard as cb
from callboard.realtime.play.gif import write_gif

LINE = np.exp(-(np.arange(-3, 4) ** 2) / 2.0)
SMOOTH = np.outer(LINE, LINE) / LINE.sum() ** 2  # an outer product: two passes
SHARPEN = np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]])


def photo(height: int = 120, width: int = 160) -> np.ndarray:
    """Rings, with noise."""
    y, x = np.mgrid[:height, :width]
    rings = 127 + 100 * np.sin(np.hypot(y - height / 2, x - width / 2) / 6)
    noisy = rings[..., None] * (1.0, 0.8, 0.5) + np.random.default_rng(0).normal(0, 25, (height, width, 3))
    return np.asarray(np.clip(noisy, 0, 255), np.uint8)


async def main(name: str, file: Path) -> None:
    before = photo()
    async with cb.device(name) as gpu:
        pipe = cb.ImageFilterPipeline(gpu, [SMOOTH, SHARPEN], border="mirror")
        after = await pipe.process(before)
        stays = pipe.process_gpu(gpu.put(before))
        assert np.array_equal(await stays.get(), after)
    write_gif(file, [before, after], fps=1)
    noise = [float(np.abs(np.diff(image.astype("i2"), axis=0)).mean()) for image in (before, after)]
    assert noise[1] < noise[0] / 2
    print(f"differences of neighbours from {noise[0]:.1f} to {noise[1]:.1f}, {file.name} written")


if __name__ == "__main__":
    where = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tempfile.gettempdir()) / "sharpen.gif"
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto", where))
