"""``ParticleSystemActor``: against analytic solutions, and what the original did wrong."""

from typing import Any

import msgspec
import numpy as np
import pytest
from tests.realtime.text_lab import run_text

import callboard as cb
from callboard.realtime.cloth import plain as cloth
from callboard.realtime.particles import plain
from callboard.realtime.particles.cuda import CONTACTS, EMITS, MOVES, PLACES, TICKS
from callboard.realtime.particles.kernels import place
from callboard.realtime.particles.packing import METHODS, packed

pytestmark = pytest.mark.timeout(180)  # where Numba is installed, it compiles a blueprint once

ALL = cb.ParticleConfig(
    drag=0.1,
    fields=(
        cb.Attractor(strength=0.5),
        cb.Spring(strength=1.0, center=(0.1, 0, 0)),
        cb.Vortex(strength=0.3),
        cb.Wind(velocity=(1, 0, 0), strength=0.2),
    ),
    colliders=(cb.Plane(normal=(0.1, 2, 0), offset=-0.4), cb.Ball(radius=0.3), cb.Bowl(radius=1.2, friction=0.1)),
    bounds=((-1, -1, -1), (1, 1, 1)),
    emitters=(cb.Emitter(rate=900, life=0.5, spread=0.3), cb.Emitter(rate=700, radius=0.1)),
)


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


async def test_energy_stays_within_bounds_over_ten_thousand_steps() -> None:
    config = cb.ParticleConfig(gravity=(0, 0, 0), fields=(cb.Spring(strength=4.0),))
    x = [(1, 0, 0), (0, 0.5, 0)]
    found = await after(config, x, [(0, 1, 0), (0, 0, 1)], 0.0005, 10_000)
    start = 0.5 * 2 + 0.5 * 4 * 1.25
    assert abs(found.energy(config) / start - 1) <= 1e-3
    angle = 2 * 5.0  # of a pendulum in small swings: x = cos(2 t)
    np.testing.assert_allclose(found.positions[0, 0], np.cos(angle), atol=3e-3)


async def test_obstacles_give_back_what_their_restitution_says() -> None:
    none = (0.0, 0.0, 0.0)
    for obstacle, x, v, wanted in (
        (cb.Plane(restitution=0.5), (0, 0.05, 0), (1, -1, 0), (1, 0.5, 0)),
        (cb.Plane(normal=(0, 2, 0), restitution=1.0, friction=0.25), (0, 0.05, 0), (1, -1, 0), (0.75, 1, 0)),
        (cb.Ball(radius=1.0, restitution=1.0), (1.05, 0, 0), (-1, 0, 0), (1, 0, 0)),
        (cb.Bowl(radius=1.0, restitution=0.5), (0.95, 0, 0), (1, 0, 0), (-0.5, 0, 0)),
    ):
        found = await after(cb.ParticleConfig(gravity=none, colliders=(obstacle,)), [x], [v], 0.1, 1)
        np.testing.assert_allclose(found.velocities[0], wanted, atol=1e-6)
    box = cb.ParticleConfig(gravity=none, bounds=((0, 0, 0), (1, 1, 1)), bounce=0.5)
    found = await after(box, [(0.5, 0.95, 0.5)], [(0, 1, 0)], 0.1, 1)
    np.testing.assert_allclose((found.positions[0], found.velocities[0]), ((0.5, 1, 0.5), (0, -0.5, 0)), atol=1e-6)


async def test_particles_that_touch_push_each_other_apart_and_keep_momentum_and_energy() -> None:
    touch = cb.Contact(diameter=0.5, stiffness=1000.0)
    config = cb.ParticleConfig(gravity=(0, 0, 0), contact=touch, method="verlet")
    head_on = await after(config, [(0, 0, 0), (1, 0, 0)], [(1, 0, 0), (-1, 0, 0)], 1e-3, 1000)
    np.testing.assert_allclose(head_on.velocities, [(-1, 0, 0), (1, 0, 0)], atol=2e-3)
    rng = np.random.default_rng(4)
    x, v = rng.uniform(0, 2, (40, 3)), rng.uniform(-1, 1, (40, 3))
    found = await after(config, x, v, 5e-4, 400)
    start = await after(config, x, v, 1e-9, 1)
    np.testing.assert_allclose(found.momentum, start.momentum, atol=1e-3)
    assert abs(found.energy(config) / start.energy(config) - 1) < 0.02
    damped = cb.ParticleConfig(gravity=(0, 0, 0), contact=cb.Contact(diameter=0.5, stiffness=1000.0, damping=20.0))
    slower = await after(damped, x, v, 5e-4, 400)
    assert slower.energy(damped) < 0.9 * found.energy(config)
    with pytest.raises(ValueError, match="rk4"):
        cb.ParticleConfig(contact=touch, method="rk4")


def touching(way: Any) -> Any:
    """Accelerations of particles in a box of about eight cells."""
    rng = np.random.default_rng(6)
    x, v = rng.uniform(-0.5, 0.5, (2, 3, 200)).astype("f4")
    life = np.where(rng.random(200) < 0.2, -1, 5).astype("f4")
    key, starts, out = np.zeros(200, "u4"), np.zeros(257, "i4"), np.zeros((3, 200), "f4")
    cloth.buckets(x, key, np.float32(0.3), 256)
    order = np.argsort(key, kind="stable").astype("i4")
    cloth.begins(key[order], starts)
    way(x, v, life, order, starts, out, *(np.float32(one) for one in (0.3, 50.0, 2.0)))
    return out[:, life > 0]


@pytest.mark.parametrize("way", ["CUDA", "Numba"])
def test_other_bodies_find_the_contacts_that_numpy_finds(way: str) -> None:
    def by_text(x: Any, v: Any, life: Any, order: Any, starts: Any, out: Any, *numbers: Any) -> None:
        run_text(
            CONTACTS, "contacts", x, v, life, order, starts, out, 200, 257, *map(float, numbers), blocks=2, threads=128
        )

    if way == "Numba":
        pytest.importorskip("numba", reason="the extra realtime")
        from callboard.realtime.particles import compiled

        by_text = compiled.contacts
    wanted = touching(plain.contacts)
    assert (np.abs(wanted) > 1).sum() > 100
    np.testing.assert_allclose(touching(by_text), wanted, rtol=1e-4, atol=1e-3)


async def test_emitters_use_free_slots_again_and_say_what_they_could_not_make() -> None:
    source = cb.Emitter(rate=100.0, life=0.1, spread=0.5, velocity=(0, 1, 0))
    config = cb.ParticleConfig(emitters=(source,), capacity=20, gravity=(0, 0, 0))
    found = await after(config, np.zeros((4, 3)), None, 0.01, 100)
    assert found.suppressed == 0
    assert 99 <= found.emitted <= 100
    assert set(range(4)) < set(found.slots.tolist()) <= set(range(16))
    moving = found.velocities[4:]
    assert (np.abs(moving - (0, 1, 0)) <= 0.5).all()
    assert len(np.unique(moving)) == moving.size
    few = await after(cb.ParticleConfig(emitters=(cb.Emitter(rate=100.0),), capacity=8), (), None, 0.01, 50)
    assert (len(few), few.emitted) == (8, 8)
    assert few.emitted + few.suppressed == 49


def moved(method: str, advance: Any, massive: bool = False) -> list[Any]:
    rng = np.random.default_rng(1)
    x, v = rng.uniform(-1, 1, (2, 3, 300)).astype("f4")
    life = np.where(rng.random(300) < 0.2, -1, 5).astype("f4")
    mass = rng.uniform(0.5, 3, 300).astype("f4") if massive else None
    arrays = packed(ALL)
    for _ in range(3):
        advance(x, v, life, mass, 0.01, arrays["world"], arrays["fields"], arrays["colliders"], METHODS[method], 1)
    alive = life > 0  # what is in a free slot does not count
    return [x[:, alive], v[:, alive], life]


@pytest.mark.parametrize("massive", [False, True])
@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.few(6)
def test_the_cuda_text_gives_what_numpy_gives(method: str, massive: bool) -> None:
    clock = np.array([2.0, 0, 0])

    def advance(x: Any, v: Any, life: Any, mass: Any, dt: float, world: Any, fields: Any, walls: Any, *f: int) -> None:
        step, masses = np.full(1, dt, "f4"), np.ones(300, "f4") if mass is None else mass
        sizes = 300, len(fields), len(walls), *f, int(massive), 1
        run_text(MOVES, "advance", x, v, life, clock, masses, step, world, fields, walls, *sizes, blocks=2, threads=256)

    for one, other in zip(moved(method, advance, massive), moved(method, plain.advance, massive), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)
    np.testing.assert_allclose(clock, (2.03, 0, 0), rtol=1e-6)


def test_the_cuda_text_emits_what_numpy_emits() -> None:
    charged = msgspec.structs.replace(ALL.emitters[1], mass=2.5, attributes={"charge": 3.0})
    config = msgspec.structs.replace(ALL, emitters=(ALL.emitters[0], charged), attributes={"age": 1.0, "charge": 0.5})
    n, step, arrays = 40, np.full(1, 0.01, "f4"), packed(config)
    emitters, born = arrays["emitters"], arrays["born"]
    found = []
    for way in ("numpy", "text"):
        rng = np.random.default_rng(2)
        x, v = rng.uniform(-1, 1, (2, 3, n)).astype("f4")
        life, clock = np.where(rng.random(n) < 0.6, -1, 5).astype("f4"), np.array([0.55, 3, 1])
        free = (life <= 0).astype("i4")
        rank = (np.cumsum(free) - free).astype("i4")
        mass, attributes = np.ones(n, "f4"), np.zeros((2, n), "f4")
        made = x, v, life, mass, attributes
        if way == "numpy":
            plain.emit(*made, clock, step[0], emitters, born, 7)
            plain.tick(clock, rank, free, step[0], emitters)
        else:
            run_text(EMITS, "emit", *made, rank, clock, step, emitters, born, n, 2, 2, n, 7, blocks=1, threads=64)
            run_text(TICKS, "tick", clock, rank, free, step, emitters, n, 2, blocks=1, threads=1)
        found.append((*made, clock))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
    assert found[0][5][1] > 3
    assert set(found[0][3]) == {1, 2.5}
    assert set(found[0][4][1]) == {0, 0.5, 3}


@pytest.mark.parametrize("massive", [False, True])
@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.few(6)
def test_numba_gives_what_numpy_gives(method: str, massive: bool) -> None:
    pytest.importorskip("numba", reason="the extra realtime")
    from callboard.realtime.particles import compiled

    for one, other in zip(moved(method, compiled.advance, massive), moved(method, plain.advance, massive), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


async def test_particles_are_made_in_free_slots_when_they_are_asked_for() -> None:
    config = cb.ParticleConfig(gravity=(0, 0, 0), capacity=5, attributes={"charge": 0.5})
    async with cb.device("cpu", isolation=None) as gpu:
        async with cb.ParticleSystemActor(gpu, [(0, 0, 0)] * 3, lives=[9, 0.05, 9], config=config) as particles:
            await particles.step(0.1)
            made = await particles.spawn([(1, 0, 0), (2, 0, 0)], (9, 8, 7) * np.ones((2, 1)), 4.0, masses=[2, 3])
            assert (made, particles.config.massive) == (2, True)
            assert await particles.spawn(np.ones((4, 3)), attributes={"charge": -1}) == 1
            assert await particles.spawn(np.ones((4, 3))) == await particles.spawn(()) == 0
            found = await particles.snapshot()
            assert found.slots.tolist() == [0, 1, 2, 3, 4]
            assert found.positions[:, 0].tolist() == [0, 1, 0, 2, 1]
            assert found.masses.tolist() == [1, 2, 1, 3, 1]
            assert found.attributes["charge"].tolist() == [0.5, 0.5, 0.5, 0.5, -1]
            assert (found.velocities[1].tolist(), found.lives[1]) == ([9, 8, 7], 4)
            with pytest.raises(ValueError, match=r"lives has -1\.0 at 0"):
                await particles.spawn([(0, 0, 0)], lives=-1)
            with pytest.raises(ValueError, match="keeps its slots: 5"):
                await particles.update_config(capacity=9)
        async with cb.ParticleSystemActor(gpu, [(0, 0, 0)]) as full:
            with pytest.raises(ValueError, match="capacity"):
                await full.spawn([(0, 0, 0)])


def test_the_cuda_text_places_what_numpy_places() -> None:
    found = []
    for way in ("numpy", "text"):
        rng = np.random.default_rng(3)
        x, v = rng.uniform(-1, 1, (2, 3, 30)).astype("f4")
        life = np.where(rng.random(30) < 0.5, -1, 5).astype("f4")
        state = x, v, life, np.ones(30, "f4"), np.zeros((2, 30), "f4")
        free = (life <= 0).astype("i4")
        rank, made = (np.cumsum(free) - free).astype("i4"), rng.uniform(1, 2, (10, 9)).astype("f4")
        if way == "numpy":
            place.body(*state, rank, made)
        else:
            run_text(PLACES, "place", *state, rank, made, 30, 2, 30, 10, 9, blocks=1, threads=64)
        found.append(state)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (found[0][3] != 1).sum() == 9
