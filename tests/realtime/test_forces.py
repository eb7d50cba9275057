"""Forces of expressions and functions: against analytic solutions, their parameters, and what is refused."""

from typing import Any

import numpy as np
import pytest
from tests.realtime.text_lab import run_text

import callboard as cb
from callboard.core.errors import ShapeError
from callboard.realtime.base import live
from callboard.realtime.particles.cuda import KICK
from callboard.realtime.particles.expressions import kicking

pytestmark = pytest.mark.timeout(180)  # where Numba is installed, it compiles a blueprint once

FREE = cb.ParticleConfig(gravity=(0, 0, 0), method="verlet")
DRIVEN = cb.ParticleConfig(
    gravity=(0, 0, 0),
    method="verlet",
    fields=(cb.Force("fx = -k * x\nfy = charge * e * sin(w * t)"),),
    parameters={"k": 4.0, "e": 1.0, "w": 2.0},
    attributes={"charge": 0.0},
)


def changed(config: cb.ParticleConfig, **fields: Any) -> cb.ParticleConfig:
    return cb.ParticleConfig(**{name: getattr(config, name) for name in config.__struct_fields__} | fields)


async def test_a_force_depends_on_time_mass_attributes_and_parameters() -> None:
    async with cb.device("cpu", isolation=None) as gpu:
        x = [(1, 0, 0), (1, 0, 0)]
        charged = {"charge": [1, 2]}
        async with cb.ParticleSystemActor(gpu, x, masses=[1, 4], attributes=charged, config=DRIVEN) as particles:
            await particles.step(1e-3, 1000)
            found = await particles.snapshot()
            swung = (1 - np.sin(2) / 2) / 2
            np.testing.assert_allclose(found.positions, [(np.cos(2), swung, 0), (np.cos(1), swung / 2, 0)], atol=1e-4)
            assert (found.masses.tolist(), found.attributes["charge"].tolist()) == ([1, 4], [1, 2])
            np.testing.assert_allclose(found.momentum[0], found.velocities[0, 0] + 4 * found.velocities[1, 0])
            async with cb.ParticleSystemActor(gpu, found, config=DRIVEN) as again:
                same = await again.snapshot()
                np.testing.assert_array_equal(same.masses, found.masses)
                np.testing.assert_array_equal(same.attributes["charge"], found.attributes["charge"])


async def test_a_parameter_may_have_any_name_of_python() -> None:
    config = changed(FREE, fields=(cb.Force("fx = self + \u03bc"),), parameters={"self": 1.0, "\u03bc": 2.0})
    async with cb.device("cpu", isolation=None) as gpu, cb.ParticleSystemActor(gpu, [(0, 0, 0)], config=config) as one:
        await one.step(0.5)
        assert (await one.snapshot()).velocities[0].tolist() == [1.5, 0, 0]


async def test_gravity_accelerates_all_alike_and_other_forces_by_mass() -> None:
    config = cb.ParticleConfig(gravity=(0, -2, 0), drag=1.0, fields=(cb.Spring(strength=2.0),))
    async with cb.device("cpu", isolation=None) as gpu:
        heavy = cb.ParticleSystemActor(gpu, [(1, 0, 0)] * 2, [(0, 0, 1)] * 2, masses=[1, 4], config=config)
        async with heavy as particles:
            await particles.step(1e-3)
            found = (await particles.snapshot()).velocities
            np.testing.assert_allclose(found, [(-2e-3, -2e-3, 0.999), (-5e-4, -2e-3, 0.99975)], atol=1e-7)


async def test_parameters_change_without_another_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[Any] = []
    prepare = live.Live.prepare

    def counted(self: Any) -> None:
        recorded.extend([1] * (self._step is None))
        prepare(self)

    monkeypatch.setattr(live.Live, "prepare", counted)
    asked = cb.elementwise("-k * x")
    async with cb.device("cpu", isolation=None) as gpu:
        config = changed(FREE, parameters={"k": 4.0})
        pull = lambda p: asked(p.parameters["k"], p.x)
        async with cb.ParticleSystemActor(gpu, [(1, 0, 0)], config=config, forces=[pull]) as particles:
            await particles.step(1e-3, 500)
            before = await particles.snapshot()
            np.testing.assert_allclose(before.positions[0, 0], np.cos(1), atol=1e-4)
            await particles.update_config(parameters={"k": 0.0})
            await particles.update_config(gravity=(0, -1, 0), drag=0.0)
            await particles.step(1e-3, 500)
            after = await particles.snapshot()
            np.testing.assert_allclose(
                after.positions[0, 0], before.positions[0, 0] + before.velocities[0, 0] / 2, atol=1e-4
            )
            np.testing.assert_allclose(after.positions[0, 1], -0.125, atol=1e-4)
            assert len(recorded) == 1
            await particles.update_config(method="symplectic")
            assert len(recorded) == 2


async def test_a_change_of_one_parameter_keeps_the_others() -> None:
    async with cb.device("cpu", isolation=None) as gpu:
        config = changed(FREE, parameters={"pull": 4.0, "push": 1.0}, attributes={"q": 1.0, "s": 2.0})
        async with cb.ParticleSystemActor(gpu, [(1, 0, 0)], config=config) as particles:
            await particles.update_config(parameters={"pull": 0.5}, attributes={"s": 3.0})
            await particles.update_config(gravity=(0, 0, 0))
            assert particles.config.parameters == {"pull": 0.5, "push": 1.0}
            assert particles.config.attributes == {"q": 1.0, "s": 3.0}
            for wrong in ({"pul": 1.0}, {"pull": 1.0, "pul": 1.0}):
                with pytest.raises(ValueError, match="parameters has no 'pul'; there are pull, push; the nearest name"):
                    await particles.update_config(parameters=wrong)
            assert particles.config.parameters["pull"] == 0.5
            await particles.update_config(fields=(cb.Force("fx = -new * x"),), parameters={"new": 1.0})
            assert particles.config.parameters == {"pull": 0.5, "push": 1.0, "new": 1.0}


async def test_functions_get_time_masses_and_attributes() -> None:
    push = cb.elementwise("q * m * sin(2 * t) + 0 * x")
    async with cb.device("cpu", isolation=None) as gpu:
        config = changed(FREE, attributes={"q": 1.0})
        way = lambda p: push(q=p.attributes["q"], m=p.mass, t=p.time, x=p.x)
        emitting = changed(config, emitters=(cb.Emitter(rate=1e-3),))
        for one in (config, emitting):  # which moves the clock elsewhere
            async with cb.ParticleSystemActor(gpu, [(0, 0, 0)], masses=3.0, config=one, forces=[way]) as particles:
                await particles.step(1e-3, 1000)
                found = await particles.snapshot()
                np.testing.assert_allclose(found.positions[0], [(1 - np.sin(2) / 2) / 2] * 3, atol=1e-4)


async def test_emitters_give_masses_and_attributes() -> None:
    source = cb.Emitter(rate=100.0, mass=2.0, attributes={"charge": -1.0}, velocity=(0, 0, 0))
    config = changed(DRIVEN, emitters=(source,), fields=(cb.Force("fz = charge"),), capacity=30)
    async with cb.device("cpu", isolation=None) as gpu:
        async with cb.ParticleSystemActor(gpu, [(0, 0, 0)], config=config) as particles:
            await particles.step(0.01, 21)
            found = await particles.snapshot()
    assert found.masses[0] == 1
    assert set(found.masses[1:]) == {2}
    assert found.attributes["charge"].tolist() == [0] + [-1] * (len(found) - 1)
    np.testing.assert_allclose(found.velocities[1, 2], -0.5 * 0.2, atol=0.011)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: cb.Force("a = 3"), "assign fx, fy or fz"),
        (lambda: cb.Force("x = 3"), "assigns x"),
        (lambda: cb.Force("fx = 1; dt_ = 7"), "assigns dt_; use a name without a _"),
        (lambda: cb.Force("fx = 1; part_ += 7"), "assigns part_"),
        (lambda: changed(FREE, fields=(cb.Force("k = 2; fx = k * x"),), parameters={"k": 1.0}), "assigns k, an attr"),
        (lambda: cb.Force(3), "pass an expression"),  # type: ignore[arg-type]
        (lambda: cb.Force("fx = sinus(x)"), "no function"),
        (lambda: changed(FREE, fields=(cb.Force("fx = q * x"),)), "parameters={'q': 1.0}"),
        (lambda: changed(FREE, fields=(cb.Force("fx = 1j * x"),)), "c64"),
        (lambda: changed(FREE, fields=(cb.Force("fx = x"),), method="rk4"), "rk4"),
        (lambda: changed(FREE, parameters={"x": 1.0}), "has a meaning"),
        (lambda: changed(FREE, parameters={"outs": 1.0}), "has a meaning"),
        (lambda: changed(FREE, parameters={"lambda": 1.0}), "as of a variable"),
        (lambda: changed(FREE, parameters={"\u00b5": 1.0}), "expressions read as '.u03bc'; write that"),
        (lambda: changed(FREE, parameters={"k": 1e300}), "at most|finite as f32"),
        (lambda: changed(FREE, gravity=(0, -(10**400), 0)), "gravity.1. is -1000.*finite as f32"),
        (lambda: changed(FREE, parameters={"k": "4"}), "must be a number"),
        (lambda: changed(FREE, parameters={"k": 1.0}, attributes={"k": 1.0}), "has a meaning"),
        (lambda: changed(FREE, emitters=(cb.Emitter(rate=1.0, attributes={"q": 1.0}),)), "attributes={'q': 0.0}"),
        (lambda: cb.Emitter(rate=1.0, mass=0.0), "Emitter.mass"),
    ],
)
@pytest.mark.few(20)
def test_expressions_that_cannot_be_forces_are_refused_when_they_are_written(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message.replace("{", "\\{")):
        make()


async def test_functions_that_cannot_be_forces_are_refused_before_a_step() -> None:
    async def later(p: Any) -> Any:
        return p.x

    wrong: Any
    async with cb.device("cpu", isolation=None) as gpu:
        for wrong, message in (
            ([lambda device, x, v: x], "takes .device, x, v."),
            ([3], "pass a function"),
            ([later], "coroutine"),
            ([cb.Force("fx = x")], "ParticleConfig"),
            (lambda p: p.x, "pass a sequence"),
        ):
            with pytest.raises(TypeError, match=message):
                cb.ParticleSystemActor(gpu, [(1, 0, 0)], forces=wrong)
        double = cb.elementwise("f64(x)")
        for function, kind, message in (
            (lambda p: p.x[0], ShapeError, r"forces\[0\] returned f32\[1\]; return forces f32\[3, 1\] .f32"),
            (lambda p: double(p.x), ShapeError, "f64"),
            (lambda p: 3.0, TypeError, "return a ref"),
            (lambda p: p.parameters["k"], KeyError, "parameters=.'k': 1.0."),
        ):
            with pytest.raises(kind, match=message):
                async with cb.ParticleSystemActor(gpu, [(1, 0, 0)], forces=[function]):
                    raise AssertionError("it has started")
        with pytest.raises(ValueError, match="rk4"):
            cb.ParticleSystemActor(gpu, [(1, 0, 0)], config=changed(FREE, method="rk4"), forces=[lambda p: p.x])
        for named, message in (
            ({"masses": [1, 2]}, "masses has shape"),
            ({"masses": [-1]}, "must be positive"),
            ({"attributes": {"q": [1]}}, "attributes={'q': 0.0}"),
        ):
            with pytest.raises(ValueError, match=message.replace("{", "\\{")):
                cb.ParticleSystemActor(gpu, [(1, 0, 0)], **named)
        async with cb.ParticleSystemActor(gpu, [(1, 0, 0)], config=DRIVEN) as particles:
            with pytest.raises(ValueError, match="reads 'k'"):
                await particles.update_config(changed(DRIVEN, parameters={}))
            with pytest.raises(ValueError, match="attributes has no 'other'"):
                await particles.update_config(attributes={"charge": 0.0, "other": 1.0})
            with pytest.raises(ValueError, match="keeps its names"):
                await particles.update_config(changed(DRIVEN, attributes={"charge": 0.0, "other": 1.0}))
            assert await particles.step(1e-3) == 1


def test_the_cuda_text_kicks_as_numpy() -> None:
    rng = np.random.default_rng(1)
    v, force = rng.normal(size=(2, 3, 40)).astype("f4")
    mass, step = rng.uniform(1, 2, 40).astype("f4"), np.full(1, 0.1, "f4")
    wanted = v + force * (step[0] * np.float32(0.5)) / mass
    run_text(KICK, "kick", v, force, mass, step, 40, 0.5, blocks=1, threads=128)
    np.testing.assert_allclose(v, wanted, rtol=1e-6)


def test_the_text_of_a_force_is_one_kernel() -> None:
    made = kicking("r = x * x; fy = r * t; fx = 2")
    assert (made.results, made.text.count("\n")) == (("vx", "vy"), 3)
