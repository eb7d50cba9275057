"""A sparse matrix that changes between its products, drawn to a GIF: heat in a plate, with a wall whose door opens."""

import asyncio
import sys
import tempfile
from pathlib import Path

import numpy as np

import callboard as cb
from callboard.realtime.base.drawing import coloured
from callboard.realtime.play.gif import write_gif

SIDE, WALL, DOOR = 40, 20, slice(17, 23)


def neighbours() -> tuple[np.ndarray, np.ndarray]:
    """Pairs of neighbours, ``[2, pairs]``, and whether the wall is between them."""
    cells = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
    across = np.stack([cells[:, :-1].ravel(), cells[:, 1:].ravel()])
    pairs = np.concatenate([across, np.stack([cells[:-1].ravel(), cells[1:].ravel()])], 1)
    between = (pairs[1] - pairs[0] == 1) & (pairs[0] % SIDE == WALL - 1)
    return pairs, between


async def main(name: str, file: Path, frames: int = 20) -> None:
    (a, b), wall = neighbours()
    flow = np.where(wall, 0.0, 0.2)
    rows, columns = np.concatenate([a, b, a, b]), np.concatenate([b, a, a, b])
    opened = wall & np.isin(a // SIDE, np.arange(SIDE)[DOOR])
    pictures, right = [], []
    async with cb.device(name) as gpu:
        laplace = cb.GpuSparseStructureActor(gpu, SIDE * SIDE, SIDE * SIDE)
        heat = np.zeros((SIDE, SIDE), "f4")
        heat[12:28, 4:12] = 1.0
        for number in range(frames):
            if number in (0, frames // 2):  # values for one place are added, so the diagonal collects its neighbours
                flow[opened] = 0.2 * (number > 0)
                laplace.set_entries(rows, columns, np.concatenate([flow, flow, -flow, -flow]))
            for _ in range(10):
                heat = heat + (await laplace.spmv(heat.ravel())).reshape(SIDE, SIDE).astype("f4")
            right.append(float(heat[:, WALL:].sum()))
            pictures.append(coloured(np.kron(np.sqrt(np.clip(heat, 0, 1)), np.ones((3, 3))), 0.0, 1.0))
    write_gif(file, pictures, fps=10)
    assert right[frames // 2 - 1] < 1e-6 < right[-1]
    print(f"heat behind the wall: {right[frames // 2 - 1]:.1f} before the door opens, {right[-1]:.1f} at the end")


if __name__ == "__main__":
    where = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tempfile.gettempdir()) / "plate.gif"
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto", where))
