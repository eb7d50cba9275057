"""Contexts that record the ops of callboard's own engine for each set of shapes."""

import asyncio
import itertools
import os
import signal
from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import B, W, linear, linear_of, model, node

import callboard as cb
from callboard.kernel.engine.mapped.recorded import MOST_RECORDINGS

X = np.random.default_rng(6).standard_normal((40, 4)).astype("f4")


@pytest.fixture
async def dev() -> Any:
    async with cb.device("cpu") as device:
        yield device


async def test_replays_give_each_call_its_own_results(dev: Any) -> None:
    plan = await dev.engine.build(linear(), engine="callboard")
    context = dev.engine.context(plan, record=dev.record)
    given = [X[at : at + rows] for at in range(4) for rows in (2, 5)]
    found = [context(x=dev.put(part)) for part in given] + [context(x=part) for part in given]
    for ref, part in zip(found, given * 2, strict=True):
        np.testing.assert_allclose(await ref.get(), linear_of(part), rtol=1e-5, atol=1e-6)
    assert len(context._runner) == 2


async def test_arrays_of_the_caller_are_left_as_they_are(dev: Any) -> None:
    context = dev.engine.context(await dev.engine.build(linear(), engine="callboard"), record=dev.record)
    x = dev.put(X[:3])
    for part in (x, x, x, X[3:6], X[6:9]):
        await context(x=part)
    np.testing.assert_array_equal(await x.get(), X[:3])


async def test_shapes_used_least_recently_give_way(dev: Any) -> None:
    context = dev.engine.context(await dev.engine.build(linear(), engine="callboard"), record=dev.record)
    for rows in range(1, MOST_RECORDINGS + 4):
        await context(x=X[:rows])
        y = context(x=X[:rows])
        np.testing.assert_allclose(await y.get(), linear_of(X[:rows]), rtol=1e-5, atol=1e-6)
    assert len(context._runner) == MOST_RECORDINGS


async def test_other_tasks_run_while_it_is_recorded(dev: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node pauses; the ops of the other task are not recorded."""
    monkeypatch.setattr("callboard.kernel.engine.inputs.budget.SLICE", 0.0)
    names = ["x", *(f"v{at}" for at in range(30)), "y"]
    nodes = [node("Add", [a, "w"], [b]) for a, b in itertools.pairwise(names)]
    data = model(nodes, {"x": ("f32", ["n", 4])}, {"y": ("f32", ["n", 4])}, {"w": np.ones(4, "f4")})
    context = dev.engine.context(await dev.engine.build(data, engine="callboard"), record=dev.record)
    sums = []

    async def other() -> None:
        total = dev.put(np.zeros(4, "f4"))
        while True:
            total = total + 1.0
            sums.append(total)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for at in range(4):
        begun = len(sums)
        found = await context.run({"x": X[at : at + 2]}, room=lambda: dev.room(100))
        np.testing.assert_allclose(await found.get(), X[at : at + 2] + 31, rtol=1e-5)
        if at == 1:  # recorded just now
            assert len(sums) - begun >= 30
    task.cancel()
    assert len(context._runner) == 1
    np.testing.assert_array_equal(await sums[-1].get(), np.full(4, len(sums), "f4"))


async def test_a_cancelled_recording_is_left_out(dev: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.kernel.engine.inputs.budget.SLICE", 0.0)
    context = dev.engine.context(await dev.engine.build(linear(), engine="callboard"), record=dev.record)
    await context(x=X[:2])
    task = asyncio.create_task(context.run({"x": X[:2]}))
    await asyncio.sleep(0)  # it has paused in its first recording
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(context._runner) == 0
    for _ in range(3):
        np.testing.assert_allclose(await context(x=X[:2]).get(), linear_of(X[:2]), rtol=1e-5, atol=1e-6)
    assert len(context._runner) == 1


async def test_values_that_shapes_depend_on_are_told_apart(dev: Any) -> None:
    data = model([node("Reshape", ["x", "s"], ["y"])], {"x": ("f32", [2, 6]), "s": ("i64", [2])}, {"y": ("f32", None)})
    context = dev.engine.context(await dev.engine.build(data, engine="callboard"), record=dev.record)
    for _ in range(3):
        for shape in ((3, 4), (12, 1)):
            y = await context(x=X[:3].reshape(2, 6), s=np.array(shape)).get()
            np.testing.assert_array_equal(y, X[:3].reshape(shape))


async def test_new_weights_and_a_new_generation_are_recorded_again() -> None:
    runner: Any
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        plan = await dev.engine.build(linear(), engine="callboard", refit=True)
        context = dev.engine.context(plan, record=dev.record)
        for _ in range(3):
            await context(x=X[:2])
        plan.refit({"w": 2 * W})
        for _ in range(3):
            np.testing.assert_allclose(await context(x=X[:2]).get(), linear_of(X[:2], 2 * W, B), rtol=1e-5, atol=1e-5)
        generation = dev.watch_generation().value
        pid = dev.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await dev.watch_generation().changed(generation)
        for _ in range(3):
            np.testing.assert_allclose(await context(x=X[:2]).get(), linear_of(X[:2], 2 * W, B), rtol=1e-5, atol=1e-5)
        runner = context._runner
        assert len(runner) == 1


async def test_arrays_given_again_are_read_again(dev: Any) -> None:
    """Also after others, and after they have been written."""
    context = dev.engine.context(await dev.engine.build(linear(), engine="callboard"), record=dev.record)
    a, b = dev.put(X[:3]), dev.put(X[3:6])
    for ref, part in ((a, X[:3]),) * 4 + ((b, X[3:6]),) * 2 + ((a, X[:3]),) * 2:
        np.testing.assert_allclose(await context(x=ref).get(), linear_of(part), rtol=1e-5, atol=1e-6)
    dev.put(X[6:9], out=a)
    np.testing.assert_allclose(await context(x=a).get(), linear_of(X[6:9]), rtol=1e-5, atol=1e-6)
    b.free()
    with pytest.raises(cb.AccelError):
        await context(x=b)
    np.testing.assert_allclose(await context(x=a).get(), linear_of(X[6:9]), rtol=1e-5, atol=1e-6)
