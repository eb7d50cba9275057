"""Obstacles given as signed distances: as the obstacles whose distances they are, for particles, cloth and fluids."""

import re
from typing import Any

import numpy as np
import pytest
from tests.realtime.text_lab import run_text

import callboard as cb
from callboard.realtime.fluid.config import is_fluid
from callboard.realtime.particles.distances import TEXT, fence, hold, values_of
from callboard.realtime.particles.packing import packed_colliders

pytestmark = pytest.mark.timeout(180)


def ball_of(radius: float, **others: Any) -> cb.DistanceField:
    """A ball around the origin, in a grid from -1.5 to 1.5."""
    z, y, x = np.indices((49, 49, 49)) / 16 - 1.5
    return cb.DistanceField.of(np.sqrt(x * x + y * y + z * z) - radius, origin=(-1.5,) * 3, spacing=1 / 16, **others)


async def test_particles_bounce_as_from_the_ball_whose_distances_these_are() -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (60, 3))
    x *= 1.2 / np.linalg.norm(x, axis=1)[:, None]
    found = []
    async with cb.device("cpu", isolation=None) as gpu:
        for one in (cb.Ball(radius=1.0, friction=0.2), ball_of(1.0, friction=0.2)):
            config = cb.ParticleConfig(gravity=(0, 0, 0), colliders=(one,))
            async with cb.ParticleSystemActor(gpu, x, -x, config=config) as particles:
                await particles.step(0.01, 60)
                found.append(await particles.snapshot())
    assert (np.linalg.norm(found[1].positions, axis=1) > 0.995).all()
    np.testing.assert_allclose(found[1].positions, found[0].positions, atol=0.05)
    np.testing.assert_allclose(found[1].velocities, found[0].velocities, atol=0.05)


@pytest.mark.slow
async def test_a_cloth_lies_on_it() -> None:
    lowest = []
    async with cb.device("cpu", isolation=None) as gpu:
        for one in (cb.Ball(radius=1.0), ball_of(1.0)):
            config = cb.ClothConfig(width=9, height=9, spacing=0.1, gravity=(0, 0, -9.8), colliders=(one,))
            async with cb.ClothSimulationActor(gpu, config) as cloth:
                shot = await cloth.snapshot()
                await cloth.reset(shot.positions + np.array([-0.4, -0.4, 1.05], "f4"))
                await cloth.step(1 / 60, 30)
                positions = (await cloth.snapshot()).positions
                assert (np.linalg.norm(positions, axis=1) > 0.995).all()
                lowest.append(positions[:, 2].min())
    assert abs(lowest[0] - lowest[1]) < 0.05


async def test_a_fluid_flows_around_it_and_a_file_keeps_it(tmp_path: Any) -> None:
    field = cb.DistanceField.of(
        np.hypot(*(np.indices((20, 20)) - 9.5))[None].repeat(2, 0) - 4, origin=(0.5, 0.5, 0), spacing=1
    )
    ball = cb.Ball(center=(10, 10, 0), radius=4)
    grids = [is_fluid(cb.FluidConfig(width=20, height=20, solids=(one,))) for one in (field, ball)]
    assert np.array_equal(*grids)
    async with cb.device("cpu", isolation=None) as gpu:
        config = cb.FluidConfig(width=20, height=20, solids=(field,))
        async with cb.FluidSimulationActor(gpu, config) as fluid:
            await fluid.step(0.1)
            await fluid.save(tmp_path / "flow")
            await fluid.update_config(solids=())
            await fluid.load(tmp_path / "flow")
            assert fluid.config.solids == (field,)


def test_the_cuda_texts_give_what_numpy_gives() -> None:
    rng = np.random.default_rng(8)
    x, v = rng.uniform(-1.6, 1.6, (2, 3, 200)).astype("f4")
    way, free = x + v * np.float32(0.1), (rng.random(200) < 0.8).astype("f4")
    values = values_of(ball_of(1.0)).copy()
    grid, place = (200, 49, 49, 49), (-1.5, -1.5, -1.5, 1 / 16)
    numbers = [np.float32(one) for one in (*place, 0.5, 0.2)]
    one, other = (x.copy(), v.copy()), (x.copy(), v.copy())
    fence.body(*one, values, *numbers)
    run_text(TEXT, "fence", *other, values, *grid, *place, 0.5, 0.2, blocks=2, threads=128)
    assert (one[0] != x).any(0).sum() > 20
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    held = way.copy(), way.copy()
    hold.body(held[0], x, free, values, *numbers[:4], np.float32(0.3), np.float32(0.05))
    run_text(TEXT, "hold", held[1], x, free, values, *grid, *place, 0.3, 0.05, blocks=2, threads=128)
    np.testing.assert_allclose(*held, atol=1e-4)


def test_what_is_refused_is_named() -> None:
    with pytest.raises(cb.ShapeError, match=re.escape("pass numbers [z, y, x]")):
        cb.DistanceField.of(np.zeros((3, 3)), spacing=1)
    with pytest.raises(ValueError, match="at least 2"):
        cb.DistanceField.of(np.zeros((1, 3, 3)), spacing=1)
    with pytest.raises(ValueError, match="finite"):
        cb.DistanceField.of(np.full((2, 2, 2), np.nan), spacing=1)
    with pytest.raises(ValueError, match="bytes"):
        cb.DistanceField(values=b"", extents=(2, 2, 2), spacing=1)
    assert packed_colliders((ball_of(1.0),)).tolist() == [[0.0] * 12]  # it is no row
