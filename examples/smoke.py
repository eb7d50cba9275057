"""A fluid on a device, drawn to a GIF: smoke rises around a ball; its divergence, and how much dye there is."""

import asyncio
import sys
import tempfile
from pathlib import Path

import callboard as cb
from callboard.realtime.play.gif import write_gif

CHIMNEY = cb.FluidConfig(
    width=48,
    height=48,
    spacing=1 / 48,
    buoyancy=(3.0,),
    vorticity=0.2,
    sources=(cb.FluidSource(center=(0.5, 0.1, 0.0), radius=0.08, density=2.0, acceleration=(0.0, 2.0, 0.0)),),
    solids=(cb.Ball(center=(0.55, 0.55, 0.0), radius=0.12),),
)


async def main(name: str, file: Path, frames: int = 12) -> None:
    async with cb.device(name) as gpu, cb.FluidSimulationActor(gpu, CHIMNEY) as fluid:
        pictures = []
        for _ in range(frames):
            await fluid.step(1 / 30, steps=3)
            pictures.append(await fluid.picture(144, 144))
        await fluid.update_config(sources=())  # from now on dye is moved only
        before = float((await fluid.snapshot_density()).sum())
        await fluid.step(1 / 30, steps=5)
        after, flow = float((await fluid.snapshot_density()).sum()), await fluid.snapshot()
    write_gif(file, pictures, fps=15)
    assert abs(after - before) < 1e-3 * before
    assert flow.divergence < 1e-2
    print(f"dye kept to {abs(after / before - 1):.1e}, divergence {flow.divergence:.1e}, {file.name} written")


if __name__ == "__main__":
    where = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tempfile.gettempdir()) / "smoke.gif"
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto", where))
