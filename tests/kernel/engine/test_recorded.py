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


async def test_the_recording_that_is_repeated_stays(dev: Any) -> None:
    """Calls with the same refs are found without their layouts."""
    context = dev.engine.context(await dev.engine.build(linear(), engine="callboard"), record=dev.record)
    x = dev.put(X[:3])
    for _ in range(4):
        await context(x=x)
    repeated = context._recorded._last
    assert repeated.named == {"x": x}
    for rows in range(4, MOST_RECORDINGS + 6):
        for _ in range(2):
            await context(x=dev.put(X[:rows]))
        np.testing.assert_allclose(await context(x=x).get(), linear_of(X[:3]), rtol=1e-5, atol=1e-6)
    assert context._recorded._last.instance is repeated.instance
    other = dev.put(X[3:6])
    for _ in range(3):
        first, second = context(x=x), context(x=other)
        np.testing.assert_allclose(await second.get(), linear_of(X[3:6]), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(await first.get(), linear_of(X[:3]), rtol=1e-5, atol=1e-6)
    held = [context(x=x) for _ in range(3)]  # the first one lends, the others are copies
    dev.blas.scal(x, alpha=0.0)
    for y in (*held, context(x=x)):
        want = X[:3] if any(y is each for each in held) else 0 * X[:3]
        np.testing.assert_allclose(await y.get(), linear_of(want), rtol=1e-5, atol=1e-6)


async def test_several_outputs_are_a_tuple(dev: Any) -> None:
    nodes = [node("Neg", ["x"], ["y"]), node("Exp", ["x"], ["z"])]
    ports: Any = {"y": ("f32", ["n", 4]), "z": ("f32", ["n", 4])}
    plan = await dev.engine.build(model(nodes, {"x": ("f32", ["n", 4])}, ports), engine="callboard")
    context, x = dev.engine.context(plan, record=dev.record), dev.put(X[:3])
    for given in (x, X[:3], x, x, X[:3]):
        found = context(x=given)
        assert isinstance(found, tuple)
        np.testing.assert_allclose(await found[0].get(), -X[:3], rtol=1e-6)
        np.testing.assert_allclose(await found[1].get(), np.exp(X[:3]), rtol=1e-5)


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


async def test_results_in_use_are_not_written_again(dev: Any) -> None:
    """Refs, views and parts of later ops keep a result; without them its memory is used again, without a copy."""
    context = dev.engine.context(await dev.engine.build(linear(), engine="callboard"), record=dev.record)
    given = [X[at : at + 2] for at in range(12)]
    kept = [context(x=part) for part in given[:6]]
    views = [context(x=part)[1:] for part in given]
    sums = [context(x=part) + 1.0 for part in given]
    for ref, part in zip(kept, given, strict=False):
        np.testing.assert_allclose(await ref.get(), linear_of(part), rtol=1e-5, atol=1e-6)
    for ref, part in zip(views, given, strict=True):
        np.testing.assert_allclose(await ref.get(), linear_of(part)[1:], rtol=1e-5, atol=1e-6)
    for ref, part in zip(sums, given, strict=True):
        np.testing.assert_allclose(await ref.get(), linear_of(part) + 1, rtol=1e-5, atol=1e-6)
    assert [len(each) for each in context._runner._recordings.values()] == [2]


async def test_results_are_given_without_a_copy(dev: Any) -> None:
    context = dev.engine.context(await dev.engine.build(linear(), engine="callboard"), record=dev.record)
    for part in (X[:2], X[2:4], X[4:6], X[6:8]):
        np.testing.assert_allclose(await context(x=part).get(), linear_of(part), rtol=1e-5, atol=1e-6)
    (found,) = context._runner._recordings.values()
    assert len(found) == 1
    first = context(x=X[:2])
    assert first.allocation.id == found[0].recording.replay().allocation.id
    ref = context(x=X[2:4])  # the first one is in use
    assert ref.allocation.id != first.allocation.id
    first.free()
    again = context(x=X[4:6])
    assert again.allocation.id == first.allocation.id
    with pytest.raises(cb.GpuRefStale):
        await first.get()
    np.testing.assert_allclose(await again.get(), linear_of(X[4:6]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(await ref.get(), linear_of(X[2:4]), rtol=1e-5, atol=1e-6)


async def test_results_are_inputs_of_the_next_call(dev: Any) -> None:
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["y"])]
    w = np.random.default_rng(8).standard_normal((4, 4)).astype("f4") * 0.5
    data = model(nodes, {"x": ("f32", ["n", 4])}, {"y": ("f32", ["n", 4])}, {"w": w})
    context = dev.engine.context(await dev.engine.build(data, engine="callboard"), record=dev.record)
    y, want = dev.put(X[:3]), X[:3]
    for _ in range(8):
        y, want = context(x=y), np.maximum(want @ w, 0)
    np.testing.assert_allclose(await y.get(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("nodes", [[("Identity", "x", "y")], [("Relu", "x", "y"), ("Identity", "y", "z")]])
async def test_outputs_that_share_memory_or_are_inputs_are_copied(dev: Any, nodes: list[tuple[str, str, str]]) -> None:
    given = [node(op, [a], [b]) for op, a, b in nodes]
    ports = {b: ("f32", ["n", 4]) for _, _, b in nodes}
    data = model([*given, node("Neg", ["x"], ["e"])], {"x": ("f32", ["n", 4])}, {**ports, "e": ("f32", ["n", 4])})
    context = dev.engine.context(await dev.engine.build(data, engine="callboard"), record=dev.record)
    x = dev.put(X[:2])
    for _ in range(4):
        outs = list(context(x=x))
        outs[0] += 1.0
        for out in outs[1:-1]:
            np.testing.assert_array_equal(await out.get(), np.maximum(X[:2], 0))
        np.testing.assert_array_equal(await outs[-1].get(), -X[:2])
    np.testing.assert_array_equal(await x.get(), X[:2])


async def test_an_export_keeps_a_result(dev: Any) -> None:
    context = dev.engine.context(await dev.engine.build(linear(), engine="callboard"), record=dev.record)
    for _ in range(3):
        await context(x=X[:2]).get()
    exported = np.from_dlpack(await context(x=X[:2]))
    for at in range(3):
        await context(x=X[at : at + 2]).get()
    np.testing.assert_allclose(exported, linear_of(X[:2]), rtol=1e-5, atol=1e-6)
