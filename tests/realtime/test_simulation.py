"""What all simulations share, shown with particles."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

import callboard as cb
from callboard.actors import ManualClock
from callboard.core.backend.announcing import announce
from callboard.realtime import Reset, Snapshot, Step, UpdateConfig
from callboard.realtime.base.pace import Pace
from callboard.realtime.particles.rule import Particles

pytestmark = pytest.mark.timeout(180)  # where Numba is installed, it compiles a blueprint once

X, V = np.zeros((3, 3)), np.ones((3, 3))


@pytest_asyncio.fixture
async def gpu() -> AsyncIterator[cb.Device]:
    async with cb.device("cpu", isolation=None) as device:
        yield device


async def test_messages_do_what_methods_do(gpu: cb.Device) -> None:
    async with cb.ParticleSystemActor(gpu, X, V, dt=0.5) as particles:
        assert await particles.ask(Step(dt=0.25, steps=2)) == 2
        await particles.ask(UpdateConfig(changes={"gravity": (0, 0, 0)}))
        assert await particles.ask(Step()) == 3
        found = await particles.ask(Snapshot())
        assert (found.steps, found.time) == (3, 1.0)
        assert await particles.ask(Reset()) == 3
        assert (await particles.snapshot()).steps == 0
        assert particles.config.gravity == (0, 0, 0)
        assert isinstance(particles.Step(), Step)


async def test_equal_runs_give_equal_bits(gpu: cb.Device) -> None:
    found = []
    for _ in range(2):
        config = cb.ParticleConfig(emitters=(cb.Emitter(rate=500, spread=1.0, life=0.2),), drag=0.1)
        async with cb.ParticleSystemActor(gpu, config=config) as particles:
            await particles.step(0.01, 50)
            found.append((await particles.snapshot()).positions.tobytes())
    assert found[0] == found[1]
    assert found[0]


async def test_a_file_goes_on_where_it_was(gpu: cb.Device, tmp_path: Path) -> None:
    numbers = cb.ParticleConfig(drag=np.float32(0.5), gravity=tuple(np.array([0, -9.5, 0])))
    async with cb.ParticleSystemActor(gpu, X, V, config=numbers) as first:
        await first.step(0.1, 3)
        await first.save(tmp_path / "a.npz")
        await first.step(0.1, 2)
        wanted = (await first.snapshot()).positions
    async with cb.ParticleSystemActor(gpu, X[:1]) as second:
        assert await second.load(tmp_path / "a.npz") == 3
        await second.step(0.1, 2)
        np.testing.assert_array_equal((await second.snapshot()).positions, wanted)
        data = bytearray((tmp_path / "a.npz").read_bytes())
        data[data.index(np.load(tmp_path / "a.npz")["x"].tobytes())] ^= 255
        (tmp_path / "b.npz").write_bytes(data)
        (tmp_path / "c.npz").write_text("no")
        for name in "bc":
            with pytest.raises(ValueError, match=r"save"):
                await second.load(tmp_path / f"{name}.npz")
        assert second.stats().steps == 5


async def test_a_state_that_is_not_finite_goes_back_to_the_snapshot(gpu: cb.Device) -> None:
    config = cb.ParticleConfig(fields=(cb.Spring(strength=1e30),))
    async with cb.ParticleSystemActor(gpu, X + 1, config=config, snapshot_every=5) as particles:
        with pytest.raises(cb.Diverged, match=r"x has numbers that are not finite by step 5; it went back to step 0"):
            await particles.step(1.0, 7)
        await particles.update_config(fields=())
        assert await particles.step(0.01, 2) == 2
        assert np.isfinite((await particles.snapshot()).positions).all()


async def test_large_states_are_read_and_drawn_on_threads(gpu: cb.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.realtime.base.rule.LARGE", 1)
    called: dict[str, set[bool]] = {}

    def noted(cls: Any, name: str) -> None:
        original = getattr(cls, name)

        def call(self: Any, *args: Any) -> Any:
            called.setdefault(name, set()).add(threading.current_thread() is threading.main_thread())
            return original(self, *args)

        monkeypatch.setattr(cls, name, call)

    noted(cb.ParticleSystemActor, "_snapshot_of")
    noted(cb.ParticleSystemActor, "_drawing")
    noted(Particles, "check_finite")
    async with cb.ParticleSystemActor(gpu, X, V, snapshot_every=1) as particles:
        await particles.step(0.5)
        assert (await particles.snapshot()).steps == 1
        assert (await particles.picture(8, 6)).shape == (6, 8, 3)
    assert called == {name: {False} for name in ("check_finite", "_snapshot_of", "_drawing")}


async def test_a_command_that_fails_counts_as_not_called(gpu: cb.Device) -> None:
    async with cb.ParticleSystemActor(gpu, X, V, config=cb.ParticleConfig(gravity=(0, 0, 0))) as particles:

        async def broken(live: Any) -> None:
            raise KeyError("mine")

        before = particles.step(0.5)
        results = await asyncio.gather(before, particles.call(broken), particles.step(0.5), return_exceptions=True)
        assert [type(one) for one in results] == [int, KeyError, int]
        np.testing.assert_array_equal((await particles.snapshot()).positions, X + 1)
        assert particles.stats().losses == 0


async def test_a_step_that_is_cancelled_is_taken_and_does_not_put_off_the_copy(gpu: cb.Device) -> None:
    async with cb.ParticleSystemActor(gpu, X, V, snapshot_every=4) as particles:
        await particles.step(0.5, 3)
        step = asyncio.ensure_future(particles.step(0.5))
        while not particles.stats().in_flight:  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0)
        step.cancel()
        await asyncio.wait([step])
        assert step.cancelled()
        assert await particles.step(0.5) == 5
        assert particles.stats().snapshot == 5


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda gpu: cb.ParticleSystemActor(gpu, np.zeros((2, 2))), r"positions has shape \[2, 2\]; expected"),
        (lambda gpu: cb.ParticleSystemActor(gpu, [[0, np.nan, 0]]), r"positions: row 0 is .*nan.*; pass finite"),
        (lambda gpu: cb.ParticleSystemActor(gpu, X, V[:2]), r"velocities has 2 rows for 3 positions"),
        (lambda gpu: cb.ParticleSystemActor(gpu, X, lives=[1, 0, 1]), r"lives has 0.0 at 1; it must be positive"),
        (lambda gpu: cb.ParticleSystemActor(gpu, X, dt=0), r"dt is 0; it must be above 0"),
        (lambda gpu: cb.ParticleSystemActor(gpu, X, snapshot_every=0), r"snapshot_every is 0; it must be at least 1"),
        (lambda gpu: cb.ParticleSystemActor("cpu", X), r"device is 'cpu'; pass an open device"),
        (lambda gpu: cb.ParticleSystemActor(gpu), r"there are no particles"),
        (lambda gpu: cb.ParticleConfig(drag=-1), r"drag is -1; it must be at least 0"),
        (lambda gpu: cb.ParticleConfig(gravity=(0, 1)), r"gravity is \(0, 1\); pass 3 numbers"),
        (lambda gpu: cb.ParticleConfig(method="euler"), r"method is 'euler'; use one of 'symplectic'"),
        (lambda gpu: cb.ParticleConfig(bounds=((0, 0, 0), (1, 0, 1))), r"bounds is .*below the second"),
        (lambda gpu: cb.ParticleConfig(fields=(cb.Plane(),)), r"fields\[0\] is Plane.*pass objects of Attractor"),
        (lambda gpu: cb.Plane(normal=(0, 0, 0)), r"normal is \(0, 0, 0\); it must have a direction"),
    ],
)
@pytest.mark.few(14)
async def test_what_is_refused_is_named(gpu: cb.Device, make: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        make(gpu)


async def test_a_change_that_is_refused_changes_nothing(gpu: cb.Device) -> None:
    async with cb.ParticleSystemActor(gpu, X) as particles:
        for changes, words in (
            ({"weight": 1}, "has no field 'weight'; it has gravity"),
            ({"drag": "x"}, "drag is 'x'; it must be a number"),
            ({"capacity": 9}, "capacity is 9; a system that exists keeps its slots: 3"),
        ):
            with pytest.raises((TypeError, ValueError), match=words):
                await particles.update_config(**changes)
        assert await particles.step() == 1
    with pytest.raises(cb.ActorStopped, match="has stopped"):
        await particles.step()


def test_late_frames_are_skipped_then_time_is_dropped() -> None:
    pace = Pace(10.0, "skip", 0.0)
    assert pace.next(0.0) == (0.0, 1, 0)
    assert pace.next(0.05) == (pytest.approx(0.05), 1, 0)
    assert pace.next(0.45) == (0.0, 3, 0)  # those of 0.2, 0.3 and 0.4
    assert pace.next(1.25) == (0.0, 5, 3)  # 0.5 to 0.9; the next is due 0.1 s later
    assert pace.next(1.25) == (pytest.approx(0.05), 1, 0)


def test_slow_frames_are_all_drawn() -> None:
    pace = Pace(10.0, "slow", 0.0)
    pace.next(0.0)
    assert pace.next(0.45) == (0.0, 1, 3)
    assert pace.next(0.45) == (pytest.approx(0.05), 1, 0)


async def test_frames_come_at_their_time(gpu: cb.Device) -> None:
    clock = ManualClock()
    async with cb.ParticleSystemActor(gpu, X, V, clock=clock) as particles:
        frames = particles.run(10.0, steps_per_frame=2, frames=4)
        first = await anext(frames)
        assert (first.number, first.steps, round(first.time, 9)) == (0, 2, 0.1)
        second = asyncio.ensure_future(anext(frames))
        while not clock.pending:  # noqa: ASYNC110 -- the clock tells nobody
            await asyncio.sleep(0)
        assert particles.stats().steps == 2
        clock.advance(0.1)
        assert (await second).steps == 4
        clock.advance(0.3)  # a slow consumer
        third = await anext(frames)
        assert (third.number, third.steps, third.skipped) == (2, 10, 2)
        await frames.aclose()
        assert (particles.stats().drawn, particles.stats().skipped) == (3, 2)


def test_what_is_compiled_is_said_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for _ in range(2):
        announce("a test", tmp_path)
    assert capsys.readouterr().err == f"callboard: compiling a test, once; kept in {tmp_path}\n"


def test_numba_says_what_it_compiles_and_not_what_it_loads(tmp_path: Path) -> None:
    pytest.importorskip("numba", reason="the extra realtime")
    program = (
        "import numpy as np; from callboard.realtime.particles.compiled import sum_of; a = np.ones((3, 4), 'f4'); "
        "r = (a[0], a[1], a[2]); sum_of(r, r, np.float32(1), r); print(a.sum())"
    )
    for wanted in ("callboard: compiling real-time loops with Numba, once; kept in ", ""):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=150)
        assert done.stderr.startswith(wanted)
        assert (done.stdout, bool(done.stderr)) == ("24.0\n", bool(wanted))
