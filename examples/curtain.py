"""Cloth on a device, drawn to a GIF: a curtain in the wind, one of whose hooks is moved, and which tears."""

import asyncio
import sys
import tempfile
from pathlib import Path

import callboard as cb
from callboard.realtime.play.gif import write_gif

SIDE = 16
TOP = SIDE * (SIDE - 1)
CURTAIN = cb.ClothConfig(
    width=SIDE,
    height=SIDE,
    spacing=0.06,
    pinned=(TOP, TOP + SIDE - 1),
    substeps=4,
    wind=(0.0, 0.0, 4.0),
    air=0.5,
    tear=1.0,
)


async def main(name: str, file: Path, frames: int = 16) -> None:
    async with cb.device(name) as gpu, cb.ClothSimulationActor(gpu, CURTAIN) as cloth:
        x, y, z = (await cloth.snapshot()).positions[TOP]
        pictures = []
        for number in range(frames):
            await cloth.move([TOP], [(x + 0.02 * number, y, z)])
            await cloth.step(1 / 60, steps=2)
            pictures.append(await cloth.picture(160, 120))
        whole = (await cloth.snapshot()).broken
        await cloth.move([TOP], [(x - 3.0, y, z)])  # too far
        await cloth.step(1 / 60, steps=4)
        torn = (await cloth.snapshot()).broken
    write_gif(file, pictures, fps=30)
    assert whole == 0 < torn
    print(f"{torn} springs broke when a hook was moved by 3 m, {file.name} written")


if __name__ == "__main__":
    where = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tempfile.gettempdir()) / "curtain.gif"
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto", where))
