"""``FluidSimulationActor``: against analytic solutions, and what the original did wrong."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.realtime.text_lab import run_text

import callboard as cb
from callboard.realtime.fluid import cuda, plain
from callboard.realtime.fluid.config import is_fluid
from callboard.realtime.fluid.rule import _coarser, open_faces

pytestmark = pytest.mark.timeout(180)  # where Numba is installed, it compiles a blueprint once

SMALL = cb.FluidConfig(width=8, height=6)


async def after(config: cb.FluidConfig, steps: int, dt: float = 0.02, **start: Any) -> cb.FluidSnapshot:
    async with (
        cb.device("cpu", isolation=None) as gpu,
        cb.FluidSimulationActor(gpu, config, **start, snapshot_every=10_000) as fluid,
    ):
        await fluid.step(dt, steps)
        return await fluid.snapshot()


async def test_taylor_and_greens_vortices_decay_as_they_should() -> None:
    n, viscosity = 16, 0.1
    spacing = 2 * np.pi / n
    edge, middle = np.arange(n) * spacing, (np.arange(n) + 0.5) * spacing
    u = np.sin(edge)[None, :] * np.cos(middle)[:, None]
    v = -np.cos(middle)[None, :] * np.sin(edge)[:, None]
    config = cb.FluidConfig(
        width=n, height=n, spacing=spacing, periodic=(True, True, False), viscosity=viscosity, sweeps=4, cycles=1
    )
    found = await after(config, 8, 0.05, faces=np.stack([u, v])[:, None])
    wanted = u * np.exp(-2 * viscosity * 0.4)
    assert np.abs(found.faces[0, 0] - wanted).max() < 0.01 * np.abs(wanted).max()
    assert found.divergence < 1e-3


@pytest.mark.parametrize("shape, periodic", [((1, 9, 7), (True, False, False)), ((5, 4, 6), (False, True, True))])
async def test_a_flow_has_no_divergence_and_keeps_its_dye(
    shape: tuple[int, int, int], periodic: tuple[bool, bool, bool]
) -> None:
    draw = np.random.default_rng(0)
    depth, height, width = shape
    config = cb.FluidConfig(width=width, height=height, depth=depth, periodic=periodic, channels=2, buoyancy=(1.0, 0.0))
    dye = draw.uniform(0, 1, (2, *shape))
    speed = draw.normal(0, 5, (config.axes, *shape))
    found = await after(config, 4, 0.05, density=dye, faces=speed)
    np.testing.assert_allclose(found.masses, dye.sum((1, 2, 3)), rtol=1e-3)
    assert found.divergence < 1e-3
    assert np.abs(found.faces).max() > 0.5
    for axis, one in enumerate(found.faces):
        if not periodic[axis]:
            assert not np.moveaxis(one, 2 - axis, 0)[0].any()


async def test_nothing_goes_through_a_wall_of_one_cell() -> None:
    wall = np.zeros((6, 9), bool)
    wall[:, 4] = True
    wind = cb.FluidSource(center=(2, 3, 0), radius=2, density=1.0, acceleration=(500, 90, 0))
    found = await after(cb.FluidConfig(width=9, height=6, sources=(wind,), vorticity=0.5), 6, 0.1, solid=wall)
    assert np.abs(found.faces).max() * 0.1 > 3  # cells in a step
    assert found.masses[0] > 1
    assert not found.density[..., 4:].any()
    assert np.abs(found.faces[..., 5:]).max() < 1e-6
    assert found.solid[0, :, 4].all()


async def test_warm_dye_rises_and_a_ball_in_its_way_may_move() -> None:
    async with (
        cb.device("cpu", isolation=None) as gpu,
        cb.FluidSimulationActor(gpu, cb.FluidConfig(width=7, height=10, buoyancy=(9.0,), fading=0.5)) as fluid,
    ):
        await fluid.add_density(3, 1, 5.0)
        await fluid.step(0.1, 6)
        density = await fluid.snapshot_density()
        np.testing.assert_allclose(density, density[:, ::-1], atol=1e-4)  # the sweeps are not symmetric
        assert density.sum(1) @ np.arange(10) / density.sum() > 1.5
        assert density.sum() == pytest.approx(5 / 1.05**6, rel=1e-3)
        await fluid.update_config(solids=(cb.Ball(center=(3.5, 6, 0), radius=2),))
        await fluid.step(0.1, 2)
        found = await fluid.snapshot()
        assert found.solid.any()
        assert not found.density[0][found.solid].any()
        with pytest.raises(ValueError, match=r"cell \(3, 6, 0\) is solid; choose one with fluid"):
            await fluid.add_velocity(3, 6, 1.0, 0.0)
        before = await fluid.reset(found)
        again = await fluid.snapshot()
        assert (before, again.steps) == (8, 0)
        np.testing.assert_array_equal(again.faces, found.faces)
        assert (await fluid.picture(30, 20)).shape == (20, 30, 3)


async def test_a_velocity_moves_dye_and_cells_out_of_range_are_errors() -> None:
    async with cb.device("cpu", isolation=None) as gpu, cb.FluidSimulationActor(gpu, SMALL) as fluid:
        await fluid.add_density(2, 2, 1.0)
        await fluid.add_velocity(2, 2, 4.0, 0.0)
        assert (await fluid.snapshot()).velocities[0, 0, 2, 2] == 4
        await fluid.step(0.1)
        density = await fluid.snapshot_density()
        assert density[2, 3] > density[2, 1] >= 0
        with pytest.raises(ValueError, match="x is 8; it must be at least 0 and at most 7"):
            await fluid.add_density(8, 0, 1.0)
        with pytest.raises(ValueError, match="y is -1"):
            await fluid.add_velocity(0, -1, 1.0, 1.0)
        with pytest.raises(ValueError, match="channel is 1; it must be at least 0"):
            await fluid.add_density(0, 0, 1.0, channel=1)
        with pytest.raises(ValueError, match=r"vz is 1\.0; a fluid of depth 1"):
            await fluid.add_velocity(0, 0, 0.0, 0.0, 0, 1.0)
        with pytest.raises(ValueError, match="width cannot be changed"):
            await fluid.update_config(width=9)


async def test_one_cell_is_a_fluid() -> None:
    found = await after(cb.FluidConfig(width=1, height=1), 2, density=[[[[3.0]]]])
    assert found.density.tolist() == [[[[3.0]]]]


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="width is 0; it must be at least 1"):
        cb.FluidConfig(width=0)
    with pytest.raises(cb.ShapeError, match="buoyancy is"):
        cb.FluidConfig(buoyancy=(1.0, 2.0))
    with pytest.raises(ValueError, match=r"sources\[0\]\.channel is 1"):
        cb.FluidConfig(sources=(cb.FluidSource(center=(0, 0, 0), radius=1, channel=1),))


class Texts:
    """The CUDA texts, called as :mod:`.plain` is."""

    def advect(self, u: Any, fluid: Any, field: Any, out: Any, scale: Any, *path: int) -> None:
        run(cuda.ADVECT, "advect", fluid.size, u, fluid, field, out, ONE, *sizes(u, field), float(scale), *path)

    def correct(self, u: Any, fluid: Any, field: Any, a: Any, b: Any, out: Any, scale: Any, *path: int) -> None:
        numbers = *sizes(u, field), float(scale), *path
        run(cuda.CORRECT, "correct", fluid.size, u, fluid, field, a, b, out, ONE, *numbers)

    def rescale(self, dye: Any, before: Any, after: Any, fluid: Any, dt: Any, fading: Any) -> None:
        numbers = len(dye), fluid.size, float(fading)
        run(cuda.RESCALE, "rescale", fluid.size, dye, before, after, fluid, np.array([dt]), *numbers)

    def curl(self, u: Any, open_: Any, out: Any) -> None:
        run(cuda.CURL, "curl", out[0].size, u, open_, out, len(u), *u.shape[1:])

    def swirl(self, w: Any, open_: Any, force: Any, strength: Any) -> None:
        run(cuda.SWIRL, "swirl", w[0].size, w, open_, force, *force.shape, float(strength))

    def push(self, u: Any, open_: Any, dye: Any, force: Any, buoyancy: Any, dt: Any) -> None:
        run(cuda.PUSH, "push", u[0].size, u, open_, dye, force, buoyancy, np.array([dt]), *sizes(u, dye))

    def source(self, u: Any, open_: Any, dye: Any, fluid: Any, rows: Any, dt: Any, spacing: Any) -> None:
        numbers = *sizes(u, dye), len(rows), float(spacing)
        run(cuda.SOURCE, "source", fluid.size, u, open_, dye, fluid, rows, np.array([dt]), *numbers)

    def diffuse(self, u: Any, before: Any, open_: Any, rate: Any, odd: int, colour: int) -> None:
        run(cuda.DIFFUSE, "diffuse", u[0].size, u, before, open_, ONE, *u.shape, float(rate), odd, colour)

    def divergence(self, u: Any, out: Any) -> None:
        run(cuda.DIVERGENCE, "divergence", out.size, u, out, *u.shape)

    def smooth(self, p: Any, b: Any, weights: Any, odd: int, colour: int) -> None:
        run(cuda.SMOOTH, "smooth", p.size, p, b, weights, *weights.shape, odd, colour)

    def restrict(self, p: Any, b: Any, weights: Any, coarse: Any, start: Any) -> None:
        run(cuda.RESTRICT, "restricted", coarse.size, p, b, weights, coarse, start, *weights.shape, *coarse.shape)

    def prolong(self, p: Any, coarse: Any, weights: Any) -> None:
        run(cuda.PROLONG, "prolong", p.size, p, coarse, weights, len(weights), *p.shape, *coarse.shape)

    def project(self, u: Any, p: Any, open_: Any) -> None:
        run(cuda.PROJECT, "project", p.size, u, p, open_, *u.shape)


ONE = np.ones(1, "f4")


def sizes(u: Any, field: Any) -> tuple[int, ...]:
    return len(u), *field.shape


def run(text: str, name: str, size: int, *args: Any) -> None:
    run_text(text, name, *args, blocks=-(-size // 8), threads=8)


def compiled() -> Any:
    pytest.importorskip("numba", reason="Numba compiles these: pip install 'callboard[realtime]'")
    return importlib.import_module("callboard.realtime.fluid.compiled")


@pytest.mark.parametrize("make", [compiled, Texts])
@pytest.mark.parametrize("shape", [(1, 6, 9), (1, 4, 140), (5, 4, 3)])
def test_the_other_bodies_compute_what_numpy_does(make: Callable[[], Any], shape: tuple[int, int, int]) -> None:
    other, draw = make(), np.random.default_rng(2)
    config = cb.FluidConfig(
        width=shape[2], height=shape[1], depth=shape[0], periodic=(True, False, True), channels=2,
        solids=(cb.Ball(center=(2.2, 2.2, 2.2), radius=1.1),),
    )  # fmt: skip
    k, odd = config.axes, 1 | (shape[0] > 1) << 2
    fluid = is_fluid(config)
    open_ = open_faces(fluid, config)
    coarse = _coarser(open_)

    def some(*extents: int) -> Any:
        return draw.normal(0, 1, extents).astype("f4")

    u, dye, p, b = some(k, *shape), some(2, *shape), some(*shape), some(*shape)
    inside, rate, solid = fluid.astype("f4"), np.float32(0.7), 1
    rows = np.array([(2, 1, 1, 1.6, 2, 1, 5, 6, 7)], "f4")
    calls: list[tuple[str, Any]] = [
        *(("advect", (u, inside, field, np.zeros_like(field), np.float32(1.3), stagger, 5, solid))
          for field, stagger in ((u, 1), (dye, 0))),
        ("correct", (u, inside, u, some(*u.shape), some(*u.shape), np.zeros_like(u), np.float32(0.4), 1, 5, 0)),
        ("rescale", (dye.reshape(2, -1), ONE[[0, 0]], np.array([0.8, -1], "f4"), inside.reshape(-1), rate, rate)),
        ("curl", (u, open_, np.zeros((3, *shape), "f4"))),
        ("swirl", (some(3, *shape), open_, np.zeros_like(u), rate)),
        ("push", (u, open_, dye, some(*u.shape), np.array([1, 2], "f4"), rate)),
        ("source", (u, open_, dye, inside, rows, rate, np.float32(1))),
        *(("diffuse", (u, some(*u.shape), open_, rate, odd, colour)) for colour in range(3)),
        ("divergence", (u, np.zeros(shape, "f4"))),
        *(("smooth", (p, b, open_, odd, colour)) for colour in range(3)),
        ("smooth", (p, b, open_faces(fluid, cb.FluidConfig(width=shape[2], height=shape[1], depth=shape[0])), 0, 1)),
        ("restrict", (p, b, open_, some(*coarse.shape[1:]), some(*coarse.shape[1:]))),
        ("prolong", (p, some(*coarse.shape[1:]), coarse)),
        ("project", (u, p, open_)),
    ]  # fmt: skip
    for name, args in calls:
        wanted, found = ([one.copy() if isinstance(one, np.ndarray) else one for one in args] for _ in range(2))
        getattr(plain, name)(*wanted)
        getattr(other, name)(*found)
        for n, (one, reference) in enumerate(zip(found, wanted, strict=True)):
            np.testing.assert_allclose(one, reference, rtol=2e-4, atol=2e-5, err_msg=f"{name}, operand {n}")
