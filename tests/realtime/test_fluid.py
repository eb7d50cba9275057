"""``FluidSimulationActor``: against analytic solutions, and what the original did wrong."""

import importlib
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.realtime.text_lab import run_text

import callboard as cb
from callboard.realtime.fluid import cuda, kernels, levels, plain, pressure
from callboard.realtime.fluid.config import is_fluid
from callboard.realtime.fluid.rule import Fluid, _coarser, open_faces

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

    def advect(self, u: Any, fluid: Any, field: Any, out: Any, scale: Any, stagger: int, *path: int) -> None:
        flow, dye, numbers = self._both(u, field, stagger, scale, path)
        outs = (out, dye.copy()) if stagger else (u.copy(), out)
        run(cuda.ADVECT, "advect", groups(u), u, fluid, flow, dye, *outs, ONE, *numbers)

    def correct(
        self, u: Any, fluid: Any, field: Any, a: Any, b: Any, out: Any, scale: Any, stagger: int, *path: int
    ) -> None:
        _, dye, numbers = self._both(u, field, stagger, scale, path)
        outs = (out, dye.copy()) if stagger else (u.copy(), out)
        between = (a, dye, b, dye) if stagger else (u, a, u, b)
        run(cuda.CORRECT, "correct", groups(u), u, fluid, dye, *between, *outs, ONE, *numbers)

    def _both(self, u: Any, field: Any, stagger: int, scale: Any, path: tuple[int, ...]) -> Any:
        """A flow and a dye, of which one is of interest."""
        flow, dye = (field, u[:1]) if stagger else (u, field)
        return flow, dye, (*sizes(u, dye), float(scale), *path)

    def settle(
        self, flowed: Any, dyed: Any, before: Any, after: Any, open_: Any, fluid: Any, rows: Any, u: Any, dye: Any,
        dt: Any, spacing: Any, fading: Any,
    ) -> None:  # fmt: skip
        arrays = flowed, dyed, before, after, open_, fluid, rows, u, dye, np.array([dt])
        numbers = *sizes(u, dye), len(rows), float(spacing), float(fading)
        run(cuda.SETTLE, "settle", cells(dye[0]), *arrays, *numbers)

    def curl(self, u: Any, open_: Any, out: Any) -> None:
        run(cuda.CURL, "curl", cells(out[0]), u, open_, out, len(u), *u.shape[1:])

    def swirl(self, w: Any, open_: Any, force: Any, strength: Any) -> None:
        run(cuda.SWIRL, "swirl", cells(w[0]), w, open_, force, *force.shape, float(strength))

    def push(self, u: Any, open_: Any, dye: Any, force: Any, buoyancy: Any, dt: Any) -> None:
        run(cuda.PUSH, "push", cells(u[0]), u, open_, dye, force, buoyancy, np.array([dt]), *sizes(u, dye))

    def diffuse(self, u: Any, before: Any, open_: Any, rate: Any, odd: int, colour: int) -> None:
        run(cuda.DIFFUSE, "diffuse", cells(u[0]), u, before, open_, ONE, *u.shape, float(rate), odd, colour)

    def divergence(self, u: Any, out: Any) -> None:
        run(cuda.DIVERGENCE, "divergence", cells(out), u, out, *u.shape)

    def smooth(self, p: Any, b: Any, weights: Any, odd: int, colour: int) -> None:
        run(levels.SMOOTH, "smooth", cells(p), p, b, weights, *weights.shape, odd, colour)

    def restrict(self, p: Any, b: Any, weights: Any, coarse: Any, start: Any) -> None:
        run(levels.RESTRICT, "restricted", cells(coarse), p, b, weights, coarse, start, *weights.shape, *coarse.shape)

    def prolong(self, p: Any, coarse: Any, weights: Any) -> None:
        run(levels.PROLONG, "prolong", cells(p), p, coarse, weights, len(weights), *p.shape, *coarse.shape)

    def project(self, u: Any, p: Any, open_: Any) -> None:
        run(cuda.PROJECT, "project", cells(p), u, p, open_, *u.shape)


ONE = np.ones(1, "f4")


def sizes(u: Any, field: Any) -> tuple[int, ...]:
    return len(u), *field.shape


def cells(field: Any) -> tuple[int, int, int]:
    return kernels._blocks(*field.shape)


def groups(u: Any) -> tuple[int, int, int]:
    return kernels._groups(*u.shape)


def run(text: str, name: str, blocks: tuple[int, int, int], *args: Any) -> None:
    run_text(text, name, *args, blocks=blocks, threads=256)


def settled(*args: Any) -> None:
    """What the op does without Numba."""
    flowed, dyed, before, after, open_, fluid, rows, u, dye, dt, spacing, fading = args
    np.multiply(flowed, open_, out=u)
    dye[...] = dyed
    plain.rescale(dye.reshape(len(dye), -1), before, after, fluid.reshape(-1), dt, fading)
    plain.source(u, open_, dye, fluid, rows, dt, spacing)


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
    totals = ONE[[0, 0]], np.array([0.8, -1], "f4")
    settling: list[tuple[str, Any]] = [
        ("rescale", (dye.reshape(2, -1), *totals, inside.reshape(-1), rate, rate)),
        ("source", (u, open_, dye, inside, rows, rate, np.float32(1))),
    ]
    if make is Texts:
        into = np.zeros_like(u), np.zeros_like(dye)
        settling = [("settle", (u, dye, *totals, open_, inside, rows, *into, rate, np.float32(1), rate))]
    calls: list[tuple[str, Any]] = [
        *(("advect", (u, inside, field, np.zeros_like(field), np.float32(1.3), stagger, 5, solid))
          for field, stagger in ((u, 1), (dye, 0))),
        *(("correct", (u, inside, f, some(*f.shape), some(*f.shape), np.zeros_like(f), np.float32(0.4), stagger, 5, 0))
          for f, stagger in ((u, 1), (dye, 0))),
        *settling,
        ("curl", (u, open_, np.zeros((3, *shape), "f4"))),
        ("swirl", (some(3, *shape), open_, np.zeros_like(u), rate)),
        ("push", (u, open_, dye, some(*u.shape), np.array([1, 2], "f4"), rate)),
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
        (settled if name == "settle" else getattr(plain, name))(*wanted)
        getattr(other, name)(*found)
        for n, (one, reference) in enumerate(zip(found, wanted, strict=True)):
            np.testing.assert_allclose(one, reference, rtol=2e-4, atol=2e-5, err_msg=f"{name}, operand {n}")


# -- levels that a launch goes over in one -----------------------------------------------------------------------------


@given(
    h=st.integers(1, 75), w=st.integers(1, 75), periodic=st.tuples(st.booleans(), st.booleans()),
    seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_a_tile_goes_down_and_up_a_level_as_its_sweeps_do(
    h: int, w: int, periodic: tuple[bool, bool], seed: int
) -> None:
    h, w = (n if n == 1 else max(n, levels.HALO) for n in (h, w))
    h, w = (n + (n > 1 and n % 2 and along) for n, along in zip((h, w), periodic[::-1], strict=True))  # of two colours
    draw = np.random.default_rng(seed)
    solid = draw.random((1, h, w)) < 0.2
    config = cb.FluidConfig(width=w, height=h, periodic=(*periodic, False))
    open_ = open_faces(~solid, config)
    coarse = _coarser(open_)
    p, b = draw.normal(0, 1, (2, 1, h, w)).astype("f4")
    low, start, more = draw.normal(0, 1, (3, *coarse.shape[1:])).astype("f4")
    extents = h, w, *low.shape[1:]
    blocks = (*pressure._tiles(h, w), 1)
    found = [one.copy() for one in (p, low, start, p)]
    run_text(levels.DESCEND, "descend", p, b, open_, *found[:3], *extents, blocks=blocks, threads=levels.TILE_THREADS)
    wanted = [one.copy() for one in (p, low, start, p)]
    pressure.descend.body(p, b, open_, *wanted[:3])
    arrays = p, b, open_, more, coarse
    run_text(levels.ASCEND, "ascend", *arrays, found[3], *extents, blocks=blocks, threads=levels.TILE_THREADS)
    pressure.ascend.body(*arrays, wanted[3])
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=5e-5)


@given(
    shape=st.one_of(
        st.tuples(st.just(1), st.integers(1, 32), st.integers(1, 32)), st.tuples(*[st.integers(2, 10)] * 3),
        st.sampled_from([(1, 1, 1023), (1, 1024, 1), (1, 3, 341)]),
    ),
    periodic=st.tuples(*[st.booleans()] * 3), seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_a_block_goes_over_all_small_levels(
    shape: tuple[int, int, int], periodic: tuple[bool, bool, bool], seed: int
) -> None:
    draw = np.random.default_rng(seed)
    depth, height, width = shape
    config = cb.FluidConfig(depth=depth, height=height, width=width, periodic=periodic)
    found = Fluid().constants(msgspec.structs.replace(config, solids=(cb.Ball(center=(3.2, 1.9, 1.1), radius=1.6),)))
    p, b = draw.normal(0, 1, (2, *shape)).astype("f4")
    b -= b.mean()
    values = [p.copy(), p.copy()]
    bits = sum(one << axis for axis, one in enumerate(periodic))
    numbers = config.axes, *shape, found["tail"].size, bits
    run_text(levels.BOTTOM, "bottom", values[0], b, found["tail"], *numbers, blocks=1, threads=levels.BOTTOM_THREADS)
    pressure.bottom.body(values[1], b, found["tail"], config.axes, bits)
    np.testing.assert_allclose(values[0], values[1], rtol=1e-3, atol=1e-3 * np.abs(values[1]).max())
