"""Particles on a device, drawn to a GIF: a fountain over a ball, which a lost context does not stop."""

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

import callboard as cb
from callboard.realtime.play.gif import write_gif

FOUNTAIN = cb.ParticleConfig(
    drag=0.2,
    bounds=((-1.33, -1, -0.5), (1.33, 1, 0.5)),
    colliders=(cb.Ball(center=(0, 0.1, 0), radius=0.25, restitution=0.7),),
    emitters=(cb.Emitter(position=(0, -0.9, 0), velocity=(0, 5.5, 0), rate=600, spread=0.7, life=2.0),),
    capacity=2000,
)


async def main(name: str, file: Path, frames: int = 12) -> None:
    async with cb.device(name, isolation="process") as gpu:
        async with cb.ParticleSystemActor(gpu, config=FOUNTAIN, snapshot_every=20) as particles:
            pictures = []
            for number in range(frames):
                await particles.step(1 / 240, steps=8)
                if number == frames // 2:  # the process in which the particles are
                    pid = gpu.health().host_pid
                    assert pid is not None
                    os.kill(pid, signal.SIGKILL)
                pictures.append(await particles.picture(320, 240))
            stats, found = particles.stats(), await particles.snapshot()
    write_gif(file, pictures, fps=30)
    assert (stats.losses, stats.lost_frames) == (1, 8)  # since the picture before
    print(f"{len(found)} particles, {stats.lost_frames} of {stats.steps} steps taken twice, {file.name} written")


if __name__ == "__main__":
    where = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tempfile.gettempdir()) / "fountain.gif"
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto", where))
