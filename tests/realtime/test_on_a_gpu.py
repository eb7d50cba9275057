"""A real GPU: the same simulations as on a CPU, the same bits when repeated, and a context that is lost midway."""

import asyncio
import os
import signal
from typing import Any

import numpy as np
import pytest
from scipy.spatial import cKDTree
from tests.realtime.scenarios import SCENARIOS
from tests.realtime.test_distance_fields import ball_of
from tests.realtime.test_particles import ALL

import callboard as cb
from callboard.realtime.images import plain
from callboard.realtime.video import effects

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SMALL, MIDDLE = np.full((3, 3), 1 / 9), np.arange(25).reshape(5, 5) / 300
LINE = np.exp(-(np.arange(-4, 5) ** 2) / 8)
LARGE = np.outer(LINE, LINE) / LINE.sum() ** 2


async def ended(where: str, method: cb.ParticleMethod) -> cb.ParticleSnapshot:
    x, v = np.random.default_rng(1).uniform(-0.9, 0.9, (2, 1000, 3))
    config = cb.ParticleConfig(
        method=method, capacity=1500, drag=0.1, fields=ALL.fields, colliders=ALL.colliders, emitters=ALL.emitters
    )
    async with cb.device(where) as gpu, cb.ParticleSystemActor(gpu, x, v, config=config) as particles:
        await particles.step(0.005, 5)
        return await particles.snapshot()


@pytest.mark.parametrize("method", ["symplectic", "verlet", "rk4"])
@pytest.mark.few(3)
async def test_particles_as_on_a_cpu(method: cb.ParticleMethod) -> None:
    cpu, gpu, again = [await ended(where, method) for where in ("cpu", "cuda", "cuda")]
    np.testing.assert_array_equal(gpu.slots, cpu.slots)
    assert (gpu.emitted, gpu.suppressed) == (cpu.emitted, cpu.suppressed)
    near = np.isclose(gpu.positions, cpu.positions, atol=1e-4).all(1)
    assert near.mean() > 0.99  # a collision may fall in another step
    np.testing.assert_array_equal(gpu.positions, again.positions)


async def forced(where: str) -> cb.ParticleSnapshot:
    rng = np.random.default_rng(5)
    pull = cb.elementwise("-k * x")
    config = cb.ParticleConfig(
        method="verlet",
        capacity=1500,
        fields=(cb.Force("fx = charge * sin(w * t) - vx\nfz = -z"),),
        parameters={"w": 3.0, "k": 2.0},
        attributes={"charge": 0.5},
        emitters=(cb.Emitter(rate=500.0, mass=2.0, attributes={"charge": -1.0}),),
    )
    function = lambda particles: pull(k=particles.parameters["k"], x=particles.x)
    x, mass = rng.uniform(-0.9, 0.9, (1000, 3)), rng.uniform(0.5, 2, 1000)
    async with cb.device(where) as gpu:
        async with cb.ParticleSystemActor(gpu, x, masses=mass, config=config, forces=[function]) as particles:
            await particles.step(0.005, 5)
            await particles.update_config(parameters={"w": 2.0, "k": 1.0})
            assert await particles.spawn(x[:20], lives=3.0, masses=0.1) == 20
            await particles.step(0.005, 5)
            return await particles.snapshot()


async def test_forces_and_particles_on_request_as_on_a_cpu() -> None:
    cpu, gpu, again = [await forced(where) for where in ("cpu", "cuda", "cuda")]
    np.testing.assert_array_equal(gpu.slots, cpu.slots)
    np.testing.assert_array_equal(gpu.masses, cpu.masses)
    np.testing.assert_array_equal(gpu.attributes["charge"], cpu.attributes["charge"])
    np.testing.assert_allclose(gpu.positions, cpu.positions, atol=1e-4)
    np.testing.assert_array_equal(gpu.positions, again.positions)


@pytest.mark.parametrize("border", ["constant", "replicate", "reflect", "wrap", "mirror"])
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
@pytest.mark.few(15)
async def test_filters_as_on_a_cpu(border: cb.Border, dtype: str) -> None:
    """Rows that are whole vectors, and others."""
    draw = np.random.default_rng(2)
    async with cb.device("cpu") as cpu, cb.device("cuda") as gpu:
        pipes = [cb.ImageFilterPipeline(one, [SMALL, MIDDLE, LARGE], border=border) for one in (cpu, gpu)]
        for w, c in ((41, 3), (48, 3), (64, 1), (48, 4), (40, 2)):
            image = draw.uniform(0, 255, (2, 33, w, c)).astype(dtype)
            wanted, found = [(await pipe.process(image)).astype("f8") for pipe in pipes]
            np.testing.assert_allclose(found, wanted, atol=1e-2 if dtype == "f4" else 2)


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
async def test_filters_of_small_integers_to_the_last_bit(dtype: str) -> None:
    """Of any weights, and of a column and a row."""
    draw = np.random.default_rng(3)
    async with cb.device("cuda") as gpu:
        for k, c in ((3, 3), (5, 3), (3, 4), (5, 1), (7, 3)):
            column, row, other = draw.integers(-2, 4, k), draw.integers(-2, 4, k), draw.integers(-2, 4, (k, k))
            for weights in (np.outer(column, row), other):
                weights = weights / (1 if dtype == "f4" else 4)
                pipe = cb.ImageFilterPipeline(gpu, weights, border="mirror")
                for w in (47, 64):
                    image = draw.integers(0, 256, (40, w, c)).astype(dtype)
                    wanted = np.zeros((1, *image.shape), dtype)
                    plain.correlate(image[None], weights.astype("f4"), wanted, plain.BORDERS["mirror"], 0.0)
                    np.testing.assert_array_equal(await pipe.process(image), wanted[0])


@pytest.mark.parametrize(
    "shape, periodic",
    [
        ((1, 17, 21), (False, False, False)),
        ((1, 17, 21), (True, True, False)),
        ((6, 17, 21), (False, True, False)),
        ((1, 75, 90), (False, False, False)),
        ((1, 74, 100), (True, True, False)),
        ((12, 17, 21), (False, False, True)),
    ],
)
@pytest.mark.few(6)
async def test_a_fluid_as_on_a_cpu(shape: tuple[int, int, int], periodic: tuple[bool, bool, bool]) -> None:
    """Of small grids, which one block solves, and of larger ones, by tiles or colour by colour."""
    config = cb.FluidConfig(
        width=shape[2], height=shape[1], depth=shape[0], periodic=periodic, channels=2, buoyancy=(3.0, -1.0),
        vorticity=0.3, viscosity=0.2, solids=(cb.Ball(center=(12, 10, 3), radius=3),),
        sources=(cb.FluidSource(center=(6, 6, 3), radius=3, density=2.0, channel=1, acceleration=(9, 20, 3)),),
    )  # fmt: skip
    found = []
    for where in ("cpu", "cuda", "cuda"):
        async with cb.device(where) as gpu, cb.FluidSimulationActor(gpu, config) as fluid:
            await fluid.add_density(5, 5, 3.0)
            await fluid.add_velocity(5, 5, 6.0, 2.0)
            await fluid.step(0.05, 6)
            found.append(await fluid.snapshot())
    cpu, first, again = found
    assert first.divergence < 1e-3
    np.testing.assert_allclose(first.masses, cpu.masses, rtol=1e-4)
    np.testing.assert_allclose(first.faces, cpu.faces, atol=5e-3)
    np.testing.assert_allclose(first.density, cpu.density, atol=5e-3)
    np.testing.assert_array_equal(first.faces, again.faces)
    np.testing.assert_array_equal(first.density, again.density)


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
@pytest.mark.few(3)
async def test_effects_and_statistics_as_on_a_cpu(dtype: str) -> None:
    frames = np.random.default_rng(3).uniform(0, 255, (3, 70, 91, 3)).astype(dtype)
    nodes = {
        "soft": effects.blur(5),
        "lines": effects.edge("input"),
        "gray": effects.grayscale("soft"),
        "far": effects.merge("gray", "lines", "difference"),
        "dark": effects.threshold(40, 255, "far"),
        "mix": effects.blend("dark", "input", 0.3),
        "trail": effects.trail(2),
    }
    videos: list[Any] = []
    figures: list[Any] = []
    for where in ("cpu", "cuda"):
        async with cb.device(where) as gpu:
            graph = cb.VideoEffectsGraph(gpu, nodes, output=("soft", "lines", "mix", "trail"), measure_every=2)
            videos.append([await graph.process_frame(frame) for frame in frames])
            analysis = cb.MultiPassAnalysisActor(gpu, [cb.frame_statistics(bins=9, low=5, high=200)])
            figures.append((await analysis.analyze(frames))["0"])
    for one, other in zip(*videos, strict=True):
        for name, image in one.items():
            near = np.abs(image.astype("f8") - other[name]) <= (1 if dtype != "f4" else 0.1)
            assert near.mean() > 0.999, name  # a number may be on the other side of the threshold
    cpu, gpu_ = figures
    assert (cpu.min, cpu.max) == (gpu_.min, gpu_.max)
    np.testing.assert_allclose([gpu_.sum, gpu_.mean, gpu_.std], [cpu.sum, cpu.mean, cpu.std], rtol=1e-12)
    np.testing.assert_array_equal(gpu_.histogram, cpu.histogram)


@pytest.mark.parametrize("key, how", [("i8", "insert_and_add"), (12, "insert_or_assign"), ("u4", "insert")])
async def test_a_hash_map_as_on_a_cpu(key: Any, how: str) -> None:
    draw = np.random.default_rng(4)
    rows = [draw.integers(0, 3000, 5000) for _ in range(4)]
    values = [draw.normal(size=(5000, 3)).astype("f4") for _ in range(4)]
    held: list[Any] = []
    for where in ("cpu", "cuda"):
        async with cb.device(where) as gpu, cb.GpuHashMapActor(gpu, key=key, shape=(3,), capacity=10) as table:
            for n, (some, those) in enumerate(zip(rows, values, strict=True)):
                keys: Any = some
                if key == 12:
                    keys = np.zeros((5000, 12), "u1")
                    keys[:, 2:6] = some.astype("u4").view("u1").reshape(-1, 4)
                await getattr(table, how)(keys, those)
                if n == 1:
                    await table.erase(keys[:700])
            found = await table.find(keys[::-1])
            held.append([*await table.retrieve_all(), *found, (await table.stats()).size])
    for one, other in zip(*held, strict=True):
        np.testing.assert_array_equal(one, other)  # float sums too: they are in the order of the batch


@pytest.mark.parametrize("box, cell, far", [(0.0, 0.05, 1), (0.0, 0.05, 1e6), (1.0, 0.05, 1), (0.0, None, 1)])
async def test_neighbours_as_on_a_cpu(box: float, cell: float | None, far: float) -> None:
    x = np.random.default_rng(6).uniform(0, 1, (2000, 3))
    x[:9] *= far
    held: list[Any] = []
    for where in ("cpu", "cuda"):
        async with cb.device(where) as gpu:
            index = cb.SpatialIndexActor(gpu, cell, box=box)
            index.rebuild(x)
            held.append([*await index.within(x, 0.1), *await index.nearest(x, 7)])
            index.move([3], [(0.5, 0.5, 0.5)])
            held[-1] += [*(await index.inside(x, x + 0.1))[:2], await index.count_within(x, 0.2)]
    for one, other in zip(*held, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("box, cell, far", [(0.0, 0.05, 1.0), (0.0, 0.05, 1e6), (1.0, 0.05, 1.0), (0.0, None, 1.0)])
@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_many_searches_find_what_a_tree_finds(isolation: Any, box: float, cell: float | None, far: float) -> None:
    """So many that they are sorted by their cells, and in so much memory that the device reads it itself."""
    draw = np.random.default_rng(7)
    x, places, radii = draw.uniform(0, 1, (5000, 3)), draw.uniform(0, 1, (30_000, 3)), draw.uniform(0, 0.1, 30_000)
    x[:3] *= far
    tree = cKDTree(x, boxsize=box or None)
    async with cb.device("cuda", isolation=isolation) as gpu:
        index = cb.SpatialIndexActor(gpu, cell, box=box)
        index.rebuild(x)
        for radius in (0.05, radii):
            wanted = tree.query_ball_point(places, radius, return_length=True)
            np.testing.assert_array_equal(await index.count_within(places, radius), wanted)
        found = await index.within(places, radii)
        np.testing.assert_array_equal(np.diff(found.offsets), wanted)
        assert (found.distances <= np.repeat(radii, wanted)).all()
        np.testing.assert_array_equal((await index.nearest(places, 3)).ids, tree.query(places, 3)[1])
        boxes = await index.inside(places[:9000], places[:9000] + 0.05)
        ends = [np.split(boxes.ids, boxes.offsets[1:-1])[n] for n in (0, 4999)]
        for n, ids in zip((0, 4999), ends, strict=True):
            inside = np.mod(x - places[n], 1.0) <= 0.05 if box else (x >= places[n]) & (x <= places[n] + 0.05)
            assert sorted(ids.tolist()) == np.flatnonzero(inside.all(1)).tolist()


async def test_particles_that_touch_and_an_obstacle_of_any_shape_as_on_a_cpu() -> None:
    x, v = np.random.default_rng(4).uniform(-0.9, 0.9, (2, 500, 3))
    config = cb.ParticleConfig(
        contact=cb.Contact(diameter=0.1, stiffness=200.0, damping=1.0), colliders=(ball_of(0.5),), method="verlet"
    )
    found = []
    for where in ("cpu", "cuda", "cuda"):
        async with cb.device(where) as gpu, cb.ParticleSystemActor(gpu, x, v, config=config) as particles:
            await particles.step(0.002, 5)
            found.append((await particles.snapshot()).positions)
    assert np.isclose(found[0], found[1], atol=1e-4).all(1).mean() > 0.99
    np.testing.assert_array_equal(found[1], found[2])


async def test_a_cloth_as_on_a_cpu() -> None:
    config = cb.ClothConfig(
        width=20, height=20, pinned=(380, 399), wind=(0, 0, 3), air=0.5, thickness=0.02, tear=1.0,
        colliders=(cb.Ball(radius=0.5, center=(1, 0.5, 0.6)), ball_of(0.3)),
    )  # fmt: skip
    found = []
    for where in ("cpu", "cuda", "cuda"):
        async with cb.device(where) as gpu, cb.ClothSimulationActor(gpu, config) as cloth:
            await cloth.step(1 / 60, 10)
            found.append((await cloth.snapshot()).positions)
    np.testing.assert_allclose(found[0], found[1], atol=1e-2)
    np.testing.assert_array_equal(found[1], found[2])


async def test_a_sparse_structure_as_on_a_cpu() -> None:
    rng = np.random.default_rng(5)
    rows, cols = rng.integers(0, 300, (2, 3000))
    values, x = rng.random(3000, "f4"), rng.random(300, "f4")
    found = []
    for where in ("cpu", "cuda"):
        async with cb.device(where) as gpu:
            structure = cb.GpuSparseStructureActor(gpu, 300, 300)
            structure.set_entries(rows, cols, values)
            first = await structure.spmv(x)
            structure.update(rows[:50], cols[:50], values[:50])
            found.append((first, await structure.spmv(x, transpose=True), await structure.spmm(x[:, None])))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)


async def test_a_lost_context() -> None:
    async def quiet() -> None: ...

    async with cb.device("cuda", isolation="process") as gpu:
        undisturbed = await asyncio.gather(*(scenario(gpu, quiet) for scenario in SCENARIOS))
        together = asyncio.Barrier(len(SCENARIOS))

        async def lose() -> None:
            if await together.wait() == 0:
                pid = gpu.health().host_pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)

        found = await asyncio.gather(*(scenario(gpu, lose) for scenario in SCENARIOS))
    for name, one, other in zip(SCENARIOS, found, undisturbed, strict=True):
        for key, array in other.arrays.items():
            np.testing.assert_array_equal(one.arrays[key], array, err_msg=f"{name.__name__}: {key}")
        if one.stats is not None:
            assert (one.stats.losses, one.stats.lost_frames <= one.every) == (1, True), name
