"""Neighbours on a device, drawn to a GIF: a swarm whose members fly as those do that are near them."""

import asyncio
import sys
import tempfile
from pathlib import Path

import numpy as np

import callboard as cb
from callboard.realtime.base.drawing import splatted
from callboard.realtime.play.gif import write_gif

MANY, RADIUS = 400, 0.12


async def main(name: str, file: Path, frames: int = 24) -> None:
    rng = np.random.default_rng(1)
    places, angles = rng.uniform(0, 2, (MANY, 2)), rng.uniform(-np.pi, np.pi, MANY)
    order, pictures = [], []
    async with cb.device(name) as gpu:
        index = cb.SpatialIndexActor(gpu, RADIUS, dims=2, box=2.0)  # what leaves at one end comes in at the other
        index.rebuild(places)
        for _ in range(frames):
            offsets, ids, _ = await index.within(places, RADIUS)
            heading = np.stack([np.cos(angles), np.sin(angles)], 1)
            mean = np.add.reduceat(heading[ids], offsets[:-1])  # each is its own neighbour, so none is empty
            angles = np.arctan2(mean[:, 1], mean[:, 0]) + rng.normal(0, 0.1, MANY)
            places = (places + 0.03 * heading) % 2.0
            index.move(np.arange(MANY), places)
            order.append(float(np.linalg.norm(heading.mean(0))))
            pictures.append(splatted(places - 1, np.diff(offsets), 120, 120))
    write_gif(file, pictures, fps=15)
    assert order[-1] > 2 * order[0]
    print(f"common direction of the swarm from {order[0]:.2f} to {order[-1]:.2f}, {file.name} written")


if __name__ == "__main__":
    where = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tempfile.gettempdir()) / "swarm.gif"
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto", where))
