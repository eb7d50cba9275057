"""``ParticleSystemActor``: against analytic solutions, and what the original did wrong."""

import numpy as np
import pytest

import callboard as cb


async def after(config: cb.ParticleConfig, x: object, v: object, dt: float, steps: int) -> cb.ParticleSnapshot:
    async with (
        cb.device("cpu", isolation=None) as gpu,
        cb.ParticleSystemActor(gpu, x, v, config=config, snapshot_every=10_000) as particles,
    ):
        await particles.step(dt, steps)
        return await particles.snapshot()


@pytest.mark.parametrize("method, error", [("symplectic", 2e-2), ("verlet", 5e-5), ("rk4", 5e-5)])
async def test_a_projectile(method: cb.ParticleMethod, error: float) -> None:
    found = await after(cb.ParticleConfig(method=method), [(0, 0, 0)], [(3, 4, 0)], 0.002, 500)
    np.testing.assert_allclose(found.positions[0], (3, 4 - 9.8 / 2, 0), atol=error)
    np.testing.assert_allclose(found.velocities[0], (3, 4 - 9.8, 0), atol=1e-4)


async def test_a_projectile_with_drag_loses_velocity_by_the_second_not_by_the_step() -> None:
    config, drag = cb.ParticleConfig(drag=0.5, method="rk4"), 0.5
    for steps in (50, 200):
        found = await after(config, [(0, 0, 0)], [(3, 4, 0)], 1 / steps, steps)
        limit = np.array([0, -9.8, 0]) / drag
        gone = np.exp(-drag)
        v = np.array([3, 4, 0])
        np.testing.assert_allclose(found.velocities[0], limit + (v - limit) * gone, rtol=1e-4)
        np.testing.assert_allclose(found.positions[0], limit + (v - limit) * (1 - gone) / drag, rtol=1e-4, atol=1e-6)
