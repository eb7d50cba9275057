"""How long an execution may take: loops whose counts come from a caller, other tasks meanwhile, ONNX Runtime."""

import asyncio
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import graph, model, node

import callboard as cb
from callboard.kernel.engine.context import ExecutionContext
from callboard.kernel.engine.inputs.budget import SLICE, Budget, Walk, finished
from callboard.kernel.engine.inputs.overtime import Overtime
from callboard.kernel.engine.mapped.recorded import MOST_PAUSES
from callboard.patterns.replicas.replica import fault_of_replica

TURN = graph(
    [node("Identity", ["go"], ["on"]), node("Add", ["now", "x"], ["next"])],
    {"turn": ("i64", []), "go": ("bool", []), "now": ("f32", ["a", "b"])},
    {"on": ("bool", []), "next": ("f32", ["a", "b"])},
)
LOOP = model(
    [node("Squeeze", ["n"], ["m"]), node("Loop", ["m", "", "x"], ["y"], body=TURN)],
    {"n": ("i64", [1]), "x": ("f32", ["a", "b"])},
    {"y": ("f32", ["a", "b"])},
)
"""``y = (n + 1) * x``, by a loop of n turns."""
X = np.ones((2, 3), "f4")


def given(turns: int) -> dict[str, Any]:
    return {"n": np.array([turns]), "x": X}


class Clock:
    """A second passes at each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_a_walk_is_ended_where_it_pauses() -> None:
    seen = []

    def walk() -> Walk[None]:
        try:
            for at in itertools.count():
                seen.append(at)
                yield
        except cb.BudgetSpent as e:
            raise cb.BudgetSpent(f"at {seen[-1]}: {e}") from e

    with pytest.raises(cb.BudgetSpent, match=r"at 2: .* its budget of 5 s"):
        finished(Budget(5, Clock()).slices(walk()))
    assert seen == [0, 1, 2]


def test_a_walk_pauses_once_in_a_slice() -> None:
    times: Iterator[float] = itertools.count(0, SLICE / 4)

    def walk() -> Walk[str]:
        for _ in range(40):
            yield
        return "done"

    pauses = 0

    def counted() -> Walk[str]:
        nonlocal pauses
        slices = Budget(math.inf, lambda: next(times)).slices(walk())
        while True:
            try:
                next(slices)
            except StopIteration as e:
                return str(e.value)
            pauses += 1
            yield

    assert finished(counted()) == "done"
    assert 5 < pauses < 20


async def test_a_loop_beyond_its_budget_fails_alone() -> None:
    async with cb.device("cpu") as dev:
        plan = await dev.engine.build(LOOP, engine="callboard")
        generation = dev.generation
        short = ExecutionContext(plan, dev.ask, None, 50.0, Clock())
        says = r"model: node 1 Loop: .*budget of 50 s.*, or pass .*inputs 'n'"
        with pytest.raises(cb.BudgetSpent, match=says):
            short(given(60_000))
        with pytest.raises(cb.BudgetSpent, match=says):
            await short.run(given(60_000))
        np.testing.assert_array_equal(await (await short.run(given(2))).get(), 3 * X)
        assert dev.generation == generation


async def test_other_tasks_run_during_a_long_loop() -> None:
    """Each pause of the loop lets the counter go on once."""
    async with cb.device("cpu") as dev:
        plan = await dev.engine.build(LOOP, engine="callboard")
        context = ExecutionContext(plan, dev.ask, dev.record, math.inf, Clock())
        counted = 0

        async def count() -> None:
            nonlocal counted
            while True:
                counted += 1
                await asyncio.sleep(0)

        counter = asyncio.create_task(count())
        y = await context.run(given(100), room=dev.room)
        counter.cancel()
        np.testing.assert_array_equal(await y.get(), 101 * X)
        assert counted > 100


async def test_a_cancelled_run_ends() -> None:
    async with cb.device("cpu") as dev:
        plan = await dev.engine.build(LOOP, engine="callboard")
        context = ExecutionContext(plan, dev.ask, None, math.inf, Clock())
        task = asyncio.create_task(context.run(given(60_000)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        np.testing.assert_array_equal(await context(given(1)).get(), 2 * X)


async def test_a_long_execution_is_not_recorded() -> None:
    async with cb.device("cpu") as dev:
        plan = await dev.engine.build(LOOP, engine="callboard")
        context = dev.engine.context(plan, record=dev.record)
        turns = MOST_PAUSES // 3 + 10
        for _ in range(3):
            np.testing.assert_array_equal(await context(given(turns)).get(), (turns + 1) * X)
            np.testing.assert_array_equal(await context(given(3)).get(), 4 * X)
        recorded: Any = context._runner
        assert len(recorded) == 1


@pytest.mark.parametrize("isolation", ["thread", pytest.param("process", marks=pytest.mark.slow)])
async def test_onnx_runtime_is_ended_between_nodes(isolation: Any) -> None:
    pytest.importorskip("onnxruntime", reason="for the extra onnx")
    async with cb.device("cpu", isolation=isolation) as dev:
        plan = await dev.engine.build(LOOP, engine="onnxruntime")
        generation = dev.generation
        context = dev.engine.context(plan, budget=0.2)
        endless, other = context(given(1 << 60)), context(given(2))
        with pytest.raises(cb.BudgetSpent, match=r"model: .*budget of 0\.2 s"):
            await endless
        np.testing.assert_array_equal(await other.get(), 3 * X)
        assert dev.generation == generation


def test_a_replica_is_not_at_fault() -> None:
    assert not fault_of_replica(cb.BudgetSpent("30 s"))


def test_overtime_ends_what_is_late() -> None:
    class Options:
        terminate = False

    clock = Clock()
    overtime, late, early = Overtime(clock), Options(), Options()

    def run() -> None:
        with overtime.watch("m", 3, late), overtime.watch("m", 1e9, early):
            clock.now += 10
            overtime.end_late()
            assert late.terminate
            raise RuntimeError("Exiting due to terminate flag being set to true.")

    with pytest.raises(cb.BudgetSpent, match=r"m: .*budget of 3 s"):
        run()
    assert not early.terminate
    with pytest.raises(RuntimeError, match="own"), overtime.watch("m", math.inf, early):
        raise RuntimeError("own")


@pytest.mark.parametrize("budget", [0, -1, math.nan, True, "1"])
async def test_a_budget_is_a_positive_number(budget: Any) -> None:
    async with cb.device("cpu") as dev:
        plan = await dev.engine.build(LOOP, engine="callboard")
        with pytest.raises(cb.ShapeError, match=r"budget is .*pass a positive number of seconds"):
            dev.engine.context(plan, budget=budget)
