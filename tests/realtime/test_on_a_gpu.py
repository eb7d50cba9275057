"""A real GPU: the same simulations as on a CPU, the same bits when repeated, and a context that is lost midway."""

import asyncio
import os
import signal
from typing import Any

import numpy as np
import pytest
from tests.realtime.scenarios import SCENARIOS
from tests.realtime.test_particles import ALL

import callboard as cb

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SMALL = np.full((3, 3), 1 / 9)
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


@pytest.mark.parametrize("border", ["constant", "replicate", "reflect", "wrap", "mirror"])
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
@pytest.mark.few(15)
async def test_filters_as_on_a_cpu(border: cb.Border, dtype: str) -> None:
    image = (np.random.default_rng(2).uniform(0, 255, (2, 33, 41, 3))).astype(dtype)
    found: list[Any] = []
    for where in ("cpu", "cuda"):
        async with cb.device(where) as gpu:
            pipe = cb.ImageFilterPipeline(gpu, [SMALL, LARGE], border=border)
            found.append(await pipe.process(image))
    np.testing.assert_allclose(found[0].astype("f8"), found[1].astype("f8"), atol=1e-2 if dtype == "f4" else 1)


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
