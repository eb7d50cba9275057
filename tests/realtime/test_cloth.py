"""``ClothSimulationActor``: against analytic solutions, and what the original did wrong."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from tests.realtime.text_lab import run_text

import callboard as cb
from callboard.realtime.cloth import cuda, plain
from callboard.realtime.cloth.mesh import grid, of_triangles

pytestmark = pytest.mark.timeout(180)  # where Numba is installed, it compiles a blueprint once

SQUARE = np.array([(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)], "f4")


async def after(config: cb.ClothConfig, steps: int, dt: float = 1 / 60, **mesh: Any) -> cb.ClothSnapshot:
    async with (
        cb.device("cpu", isolation=None) as gpu,
        cb.ClothSimulationActor(gpu, config, **mesh, snapshot_every=10_000) as cloth,
    ):
        await cloth.step(dt, steps)
        return await cloth.snapshot()


@pytest.mark.parametrize("substeps, iterations, dt", [(1, 6, 1 / 60), (1, 3, 1 / 120)])
async def test_how_far_a_rope_stretches_depends_on_neither_steps_nor_iterations(
    substeps: int, iterations: int, dt: float
) -> None:
    config = cb.ClothConfig(
        width=1, height=3, pinned=(2,), stretch=0.05, bend=1e9, damping=30, substeps=substeps, iterations=iterations
    )
    found = await after(config, 60, dt)
    weight = config.density * config.spacing**2 * 9.8
    longer = np.diff(found.positions[:, 1]) - config.spacing
    np.testing.assert_allclose(longer, [0.05 * weight, 0.05 * 2 * weight], rtol=0.02)


async def test_a_spring_with_one_pinned_end_is_as_long_as_it_should_be() -> None:
    """The original moves the free end half the way only."""
    found = await after(cb.ClothConfig(width=1, height=2, pinned=(1,), damping=0, substeps=1, iterations=1), 1, 0.1)
    assert abs(found.stretch[0] - 1) < 1e-5


@pytest.mark.slow
async def test_a_rope_between_two_nails_is_a_catenary() -> None:
    config = cb.ClothConfig(width=21, height=1, pinned=(0, 20), bend=1e9, damping=4.0, iterations=1, substeps=20)
    async with cb.device("cpu", isolation=None) as gpu, cb.ClothSimulationActor(gpu, config) as rope:
        for step in range(1, 21):
            await rope.move([20], [(2.0 - 0.02 * step, 0, 0)])
            await rope.step(1 / 60)
        await rope.step(1 / 60, 240)
        x, y, _ = (await rope.snapshot()).positions.T
    a = brentq(lambda a: 2 * a * np.sinh(0.8 / a) - 2.0, 0.2, 10)  # a rope of 2 m over 1.6 m
    np.testing.assert_allclose(y, a * (np.cosh((x - 0.8) / a) - np.cosh(0.8 / a)), atol=0.01)


async def test_a_free_cloth_falls_as_a_stone_does() -> None:
    found = await after(cb.ClothConfig(width=3, height=3, damping=0, substeps=2), 20, 0.01)
    at_rest = grid(3, 3, 0.1).positions
    np.testing.assert_allclose(found.positions - at_rest, np.tile((0, -9.8 * 0.2**2 / 2, 0), (9, 1)), atol=6e-3)
    np.testing.assert_allclose(found.velocities, np.tile((0, -9.8 * 0.2, 0), (9, 1)), atol=1e-3)
    np.testing.assert_allclose(found.stretch, 1, atol=1e-4)


async def test_pinned_particles_move_when_they_are_told_to() -> None:
    config = cb.ClothConfig(width=2, height=2, pinned=(2, 3))
    async with cb.device("cpu", isolation=None) as gpu, cb.ClothSimulationActor(gpu, config) as cloth:
        await cloth.step(steps=3)
        await cloth.move([3], [(0.1, 0.2, 0.0)])
        await cloth.step(steps=2)
        found = await cloth.snapshot()
        np.testing.assert_array_equal(found.positions[2:], np.array([(0, 0.1, 0), (0.1, 0.2, 0)], "f4"))
        with pytest.raises(ValueError, match=r"particle 0 is not pinned; pin it with update_config"):
            await cloth.move([0], [(0, 0, 0)])
        with pytest.raises(cb.ShapeError, match="2 rows for 1 particles"):
            await cloth.move([3], np.zeros((2, 3)))
        await cloth.update_config(pinned=())
        await cloth.step(steps=3)
        assert (await cloth.snapshot()).velocities[2, 1] < 0
        with pytest.raises(ValueError, match="width cannot be changed"):
            await cloth.update_config(width=7)


async def test_what_pulls_too_hard_tears_for_good() -> None:
    config = cb.ClothConfig(width=1, height=2, pinned=(1,), stretch=1.0, tear=0.1, density=100.0)
    found = await after(config, 20)
    assert found.broken == 1
    assert np.isnan(found.stretch).all()
    np.testing.assert_allclose(found.velocities[0, 1], -9.8 / 3, rtol=0.2)


@pytest.mark.parametrize("thickness, stays", [(0.0, False), (0.2, True)])
async def test_a_cloth_with_a_thickness_does_not_pass_through_itself(thickness: float, stays: bool) -> None:
    twice = np.concatenate([SQUARE, SQUARE + np.array([0, 0, 0.3], "f4")])
    corners = [(0, 1, 2), (3, 2, 1), (4, 5, 6), (7, 6, 5)]
    config = cb.ClothConfig(pinned=(0, 1, 2, 3), gravity=(0, 0, -9.8), thickness=thickness, substeps=4, iterations=1)
    found = await after(config, 30, positions=twice, triangles=corners)
    assert (found.positions[4:, 2].min() > 0.15) == stays


async def test_a_cloth_lies_on_what_is_below() -> None:
    config = cb.ClothConfig(
        width=3,
        height=3,
        gravity=(0, 0, -9.8),
        colliders=(
            cb.Plane(normal=(0, 0, 1), offset=-0.1, friction=0.5),
            cb.Ball(center=(0.1, 0.1, -0.2), radius=0.15),
        ),
        substeps=4,
        iterations=1,
    )
    found = await after(config, 20)
    assert found.positions[:, 2].min() >= -0.1 - 1e-4
    away = np.linalg.norm(found.positions - np.array([0.1, 0.1, -0.2]), axis=1)
    assert away.min() >= 0.15 - 1e-3


async def test_wind_pushes_a_cloth_that_is_across_it() -> None:
    config = cb.ClothConfig(width=3, height=3, gravity=(0, 0, 0), wind=(5, 0, 3), air=1.0)
    found = await after(config, 10)
    assert (found.velocities[:, 2] > 0.5).all()
    np.testing.assert_allclose(found.velocities[:, 0], 0, atol=1e-2)


def test_springs_of_a_colour_share_no_particle() -> None:
    draw = np.random.default_rng(0)
    triangles = np.array([sorted(draw.choice(30, 3, replace=False)) for _ in range(80)])
    used = np.unique(triangles)
    mesh = of_triangles(draw.normal(size=(len(used), 3)), np.searchsorted(used, triangles))
    for one in (mesh, grid(7, 5, 0.1), grid(1, 6, 0.1), grid(2, 2, 0.1)):
        assert one.colours[-1] == len(one.springs) == len(np.unique(np.sort(one.springs, axis=1), axis=0))
        for first, end in zip(one.colours, one.colours[1:], strict=False):
            ends = one.springs[first:end].reshape(-1)
            assert len(np.unique(ends)) == len(ends)
    assert len(grid(7, 5, 0.1).springs) == 6 * 5 + 7 * 4 + 2 * 6 * 4 + 5 * 5 + 7 * 3


def test_meshes_and_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="width is 0; it must be at least 1"):
        cb.ClothConfig(width=0)
    with pytest.raises(ValueError, match=r"pinned\[1\] is 256; it must be at least 0 and at most 255"):
        cb.ClothConfig(pinned=(0, 256))
    with pytest.raises(ValueError, match="triangles has 4; there are 4 positions"):
        of_triangles(SQUARE, [(0, 1, 4)])
    with pytest.raises(ValueError, match="position 3 is in no triangle"):
        of_triangles(SQUARE, [(0, 1, 2)])
    with pytest.raises(cb.ShapeError, match=r"triangles is int64\[3\]"):
        of_triangles(SQUARE, [0, 1, 2])


async def test_one_particle_is_a_cloth() -> None:
    found = await after(cb.ClothConfig(width=1, height=1, damping=0), 10, 0.01)
    np.testing.assert_allclose(found.velocities, [(0, -0.98, 0)], rtol=1e-4)


class Texts:
    """The CUDA texts, called as :mod:`.plain` is."""

    def predict(self, x: Any, v: Any, q: Any, w: Any, free: Any, starts: Any, fans: Any, h: Any, world: Any) -> None:
        n, f = x.shape[1], fans.shape[1]
        run(cuda.PREDICT, "predict", n, x, v, q, w, free, starts, fans, np.array([2 * h]), world, n, f, 2)

    def solve(self, q: Any, load: Any, springs: Any, rest: Any, kinds: Any, w: Any, free: Any, *more: Any) -> None:
        compliance, h, part, again = more
        first, count = part.start, part.stop - part.start
        numbers = q.shape[1], len(rest), first, count, 2, again
        run(cuda.SOLVE, "solve", count, q, load, springs, rest, kinds, w, free, compliance, np.array([2 * h]), *numbers)

    def stop(self, q: Any, x: Any, free: Any, colliders: Any, margin: Any) -> None:
        run(cuda.STOP, "stop", x.shape[1], q, x, free, colliders, x.shape[1], len(colliders), float(margin))

    def finish(self, x: Any, v: Any, q: Any, h: Any) -> None:
        run(cuda.FINISH, "finish", x.size, x, v, q, np.array([2 * h]), x.shape[1], 2)

    def torn(self, rest: Any, load: Any, x: Any, springs: Any, most: Any) -> None:
        run(cuda.TORN, "torn", len(rest), rest, load, x, springs, x.shape[1], len(rest), float(most))

    def buckets(self, q: Any, key: Any, cell: Any, size: int) -> None:
        run(cuda.BUCKETS, "buckets", len(key), q, key, len(key), float(cell), size)

    def begins(self, keys: Any, starts: Any) -> None:
        run(cuda.BEGINS, "begins", len(starts), keys, starts, len(keys), len(starts))

    def apart(self, q: Any, out: Any, order: Any, starts: Any, home: Any, w: Any, free: Any, thickness: Any) -> None:
        n = q.shape[1]
        run(cuda.APART, "apart", n, q, out, order, starts, home, w, free, n, len(starts), float(thickness))


def run(text: str, name: str, size: int, *args: Any) -> None:
    run_text(text, name, *args, blocks=-(-size // 8), threads=8)


def compiled() -> Any:
    pytest.importorskip("numba", reason="Numba compiles these: pip install 'callboard[realtime]'")
    return importlib.import_module("callboard.realtime.cloth.compiled")


@pytest.mark.parametrize("make", [compiled, Texts])
def test_the_other_bodies_compute_what_numpy_does(make: Callable[[], Any]) -> None:
    draw = np.random.default_rng(1)
    mesh = grid(4, 3, 0.1)
    n, m = len(mesh.positions), len(mesh.springs)
    x = np.ascontiguousarray(mesh.positions.T) + draw.normal(0, 0.02, (3, n)).astype("f4")
    free = np.ones(n, "f4")
    free[0] = 0
    starts, fans = mesh.fans()
    h, thickness = np.float32(0.01), np.float32(0.12)
    w, rest = np.full(n, 3, "f4"), np.full(m, 0.1, "f4")
    rest[1] = -0.1
    springs = np.ascontiguousarray(mesh.springs.T)
    compliance = np.array([0, 1e-4, 1e-2], "f4")
    colliders = np.zeros((3, 12), "f4")
    colliders[0, :9] = 1, 0, 1, 0, 0.05, 0, 0, 0, 0.3
    colliders[1, :9] = 2, 0.1, 0.1, 0, 0.08, 0, 0, 0, 0.1
    colliders[2, :9] = 3, 0.1, 0.1, 0, 0.15, 0, 0, 0, 0
    world = np.array([0, -9.8, 0, 0.5, 1, 2, 3, 1], "f4")
    found = []
    for code in (plain, make()):
        v, q, load = np.full((3, n), 0.1, "f4"), np.empty((3, n), "f4"), np.zeros(m, "f4")
        code.predict(x, v, q, w, free, starts, fans, h, world)
        for again in (0, 1):
            for first, end in zip(mesh.colours, mesh.colours[1:], strict=False):
                code.solve(q, load, springs, rest, mesh.kinds, w, free, compliance, h, slice(first, end), again)
        key, begins, out = np.empty(n, "u4"), np.zeros(17, "i4"), np.empty((3, n), "f4")
        code.buckets(q, key, thickness, 16)
        order = np.argsort(key, kind="stable").astype("i4")
        code.begins(key[order], begins)
        code.apart(q, out, order, begins, 10 * x, w, free, thickness)
        code.stop(out, x, free, colliders, np.float32(0.01))
        y, broken = x.copy(), rest.copy()
        code.finish(y, v, out, h)
        code.torn(broken, load, y, springs, np.float32(1.1))
        found.append((q, load, key, begins, y, v, broken))
    assert not np.array_equal(found[0][0], found[0][4])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-3, atol=2e-3)


async def test_a_mesh_goes_through_an_obj_file(tmp_path: Path) -> None:
    async with cb.device("cpu", isolation=None) as gpu:
        async with cb.ClothSimulationActor(gpu, cb.ClothConfig(width=3, height=3, pinned=(6,))) as cloth:
            await cloth.step(0.01, 3)
            hung = await cloth.snapshot()
        hung.write_obj(tmp_path / "cloth.obj")
        mesh = cb.read_obj(tmp_path / "cloth.obj")
        np.testing.assert_array_equal(mesh.positions, hung.positions)
        np.testing.assert_array_equal(mesh.triangles, hung.triangles)
        async with cb.ClothSimulationActor(gpu, **mesh._asdict()) as again:
            await again.step(0.01)


def test_an_obj_file_of_another_program_is_read(tmp_path: Path) -> None:
    file = tmp_path / "other.obj"
    file.write_text(
        "# made\no Plane\nv 9 9 9\nv 0 0 0 1\nv 1 0 0\nv 1 1 0\nv 0 1 0\nvn 0 0 1\nf 2/1/1 3//1 4 -1 # quad\n"
    )
    mesh = cb.read_obj(file)
    assert mesh.positions.tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]
    assert mesh.triangles.tolist() == [[0, 1, 2], [0, 2, 3]]
    for text, message in (("v 0 0\n", "line 1"), ("v 0 0 0\nf 1 2 3\n", "line 2"), ("v 0 0 0\n", "no faces")):
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            cb.read_obj(file)
    with pytest.raises(ValueError, match="there are 1 positions"):
        cb.write_obj(file, [[0, 0, 0]], [[0, 1, 2]])


def test_marks_and_ends_of_lines_of_other_programs_change_no_mesh(tmp_path: Path) -> None:
    file = tmp_path / "cloth.obj"
    text = "v 0 0 0 # a\u2028v 9 9 9\x0cv 8 8 8\r\nv 1 0 0\r\nv 0 1 0\r\nv 5 5 5\r\nf 1 2 3\r\n"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    mesh = cb.read_obj(file)
    assert (mesh.positions.tolist(), mesh.triangles.tolist()) == ([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])
    for number in ("nan", "-inf", "1e300"):
        file.write_text(f"v 0 0 0\nv 0 {number} 0\n")
        with pytest.raises(ValueError, match=r"cloth\.obj, line 2"):
            cb.read_obj(file)
