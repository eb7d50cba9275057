"""A device that is lost in the middle of a simulation costs time, and nothing else."""

import asyncio
import os
import signal

import numpy as np

import callboard as cb

X = np.random.default_rng(3).uniform(-1, 1, (20, 3))
CONFIG = cb.ParticleConfig(
    fields=(cb.Spring(strength=3.0),),
    colliders=(cb.Plane(offset=-0.5),),
    emitters=(cb.Emitter(rate=200, spread=1.0, life=0.1),),
)


async def history(gpu: cb.Device, lose: bool) -> tuple[cb.ParticleSnapshot, cb.SimulationStats]:
    async with cb.ParticleSystemActor(gpu, X, config=CONFIG, snapshot_every=8) as particles:
        await particles.step(0.01, 13)
        await particles.update_config(gravity=(0, -1, 0))
        await particles.step(0.02, 1)
        if lose:
            pid = gpu.health().host_pid
            assert pid is not None
            steps = [particles.step(0.01, 2) for _ in range(4)]
            running = asyncio.gather(*steps)
            os.kill(pid, signal.SIGKILL)
            await running
        else:
            await asyncio.gather(*[particles.step(0.01, 2) for _ in range(4)])
        await particles.step(0.01, 3)
        return await particles.snapshot(), particles.stats()


async def test_a_lost_device_costs_at_most_the_steps_since_the_snapshot() -> None:
    async with cb.device("cpu", isolation="process") as gpu:
        undisturbed, _ = await history(gpu, lose=False)
        found, stats = await history(gpu, lose=True)
    for name in ("positions", "velocities", "lives", "slots"):
        np.testing.assert_array_equal(getattr(found, name), getattr(undisturbed, name))
    assert found.steps == undisturbed.steps == 25
    assert stats.losses == 1
    assert 0 < stats.lost_frames <= 8
