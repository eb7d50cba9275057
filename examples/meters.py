"""Passes over frames on a device, drawn to a GIF: a ball is found in noise, and the statistics of each frame below."""

import asyncio
import sys
import tempfile
from pathlib import Path

import numpy as np

import callboard as cb
from callboard.realtime.base.drawing import coloured
from callboard.realtime.play.gif import write_gif

SIDE = 64
PASSES = {
    "bright": cb.AnalysisPass(lambda gpu, frame: gpu.xp.astype(gpu.xp.greater(frame, 0.6), "f32")),
    "rows": cb.AnalysisPass(lambda gpu, bright: gpu.xp.sum(bright, axis=1), ("bright",)),
    "columns": cb.AnalysisPass(lambda gpu, bright: gpu.xp.sum(bright, axis=0), ("bright",)),
    "all": cb.frame_statistics(bins=16, high=1.0),
}


async def main(name: str, file: Path, frames: int = 16) -> None:
    rng, (y, x) = np.random.default_rng(0), np.mgrid[:SIDE, :SIDE]
    pictures, errors = [], []
    async with cb.device(name) as gpu:
        passes = cb.MultiPassAnalysisActor(gpu, PASSES, results=("rows", "columns", "all"))
        for number in range(frames):
            at = np.array([32 + 20 * np.sin(number / 3), 32 + 20 * np.cos(number / 3)])
            ball = np.hypot(y - at[0], x - at[1]) < 6
            frame = (ball * 0.7 + rng.uniform(0, 0.5, (SIDE, SIDE))).astype("f4")
            told = await passes.analyze(frame)
            weights = np.stack([told["rows"], told["columns"]])
            found = (weights * np.arange(SIDE)).sum(1) / weights.sum(1)
            errors.append(float(np.abs(found - at).max()))
            shown = np.zeros((SIDE + 24, SIDE), "f4")
            shown[:SIDE] = frame
            shown[round(found[0]), :] = shown[:SIDE, round(found[1])] = 1.2
            heights = told["all"].histogram * 22 // told["all"].histogram.max()
            for column, height in enumerate(heights):
                shown[SIDE + 23 - height : SIDE + 23, 4 * column : 4 * column + 3] = 0.8
            pictures.append(coloured(shown, 0.0, 1.2))
    write_gif(file, pictures, fps=10)
    assert max(errors) < 1.0
    print(f"the ball was found to {max(errors):.2f} pixels, {file.name} written")


if __name__ == "__main__":
    where = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tempfile.gettempdir()) / "meters.gif"
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto", where))
