"""Which engine is taken where none was asked for: measured by executions, kept on disk, named by ``explain``."""

import asyncio
import itertools
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import W, linear, linear_of

import callboard as cb
from callboard.kernel.engine.choice.contest import Contest
from callboard.kernel.engine.choice.kept import folder, keep, kept
from callboard.kernel.engine.choice.steps import Stepwise
from callboard.kernel.engine.inputs.budget import Walk
from callboard.kernel.engine.inputs.profiles import Port

ENGINES = ("onnxruntime", "callboard")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CACHE_DIR", str(tmp_path))


@dataclass
class Ready:
    """What is answered at once."""

    value: Any

    def __await__(self) -> Generator[Any, None, Any]:
        yield from asyncio.sleep(0).__await__()
        return self.value

    def result(self, timeout: float | None = None) -> Any:
        return self.value


@dataclass
class Plan:
    """A stand-in for a plan."""

    engine: str
    inputs: list[Port] = field(default_factory=lambda: [Port("x", "f32", (4, 3))])
    profiles: dict[str, Any] = field(default_factory=dict)
    version: str = "1"
    reason: str = ""


@dataclass
class Context:
    """A stand-in for a context."""

    bench: "Bench"
    engine: str

    def slices(self, inputs: Any) -> Walk[Ready]:
        return self.bench.execution(self.engine, inputs)


class Bench:
    """Engines that take as long as they are said to, by a clock of their own."""

    def __init__(self, *seconds: float, ports: list[Port] | None = None, fails: bool = False) -> None:
        self.seconds = dict(zip(ENGINES, seconds, strict=True))
        self.now = 0.0
        self.calls: list[str] = []
        self.released: list[str] = []
        self.built: list[str] = []
        self.ports, self.fails = ports, fails

    def build(self, name: str) -> Ready:
        self.built.append(name)
        if self.fails and name == "callboard":
            raise cb.UnsupportedOp("it lacks NonMaxSuppression")
        return Ready(Plan(name) if self.ports is None else Plan(name, self.ports))

    def context(self, plan: Any, budget: float) -> Any:
        assert budget == 1.0
        return Context(self, plan.engine)

    def execution(self, engine: str, inputs: Any) -> Walk[Ready]:
        """Of a context: it pauses once."""
        assert inputs["x"].shape == (4, 3)
        self.calls.append(engine)
        yield
        self.now += self.seconds[engine]
        return Ready(None)

    def chosen(self) -> Any:
        contest = Contest(
            self.build,
            self.context,
            lambda plan: self.released.append(plan.engine),
            lambda x: x,
            ENGINES,
            "the default",
            lambda: self.now,
        )
        return Stepwise(contest.steps(b"model", {}))


@pytest.mark.parametrize(
    "seconds, best", [((0.004, 0.001), "callboard"), ((0.001, 0.004), "onnxruntime"), ((0.01, 0.0095), "onnxruntime")]
)
async def test_the_fastest_is_taken_and_kept(seconds: tuple[float, float], best: str) -> None:
    bench = Bench(*seconds)
    plan = await bench.chosen()
    assert plan.engine == best
    assert plan.reason.startswith("measured now: onnxruntime ")
    assert plan.reason.endswith("ms for x [4, 3]")
    assert bench.calls == [*ENGINES] * 6
    assert bench.released == [name for name in ENGINES if name != best]
    again = Bench(9.0, 9.0)
    assert again.chosen().result().engine == best
    assert again.calls == []
    assert again.chosen().result().reason.startswith("measured as kept in the cache: onnxruntime ")


def test_a_measurement_is_bounded() -> None:
    slow = Bench(0.3, 0.001)
    plan = slow.chosen().result()
    assert (plan.engine, slow.calls) == ("onnxruntime", ["onnxruntime"])
    assert plan.reason == "the default; not measured: an execution takes 0.3 s"
    middle = Bench(0.2, 0.9)
    assert middle.chosen().result().engine == "onnxruntime"
    assert middle.calls == [*ENGINES] * 2


@pytest.mark.parametrize(
    "options, why",
    [
        ({"ports": [Port("x", "f32", ("n", 3))]}, "a shape is open; give a profile"),
        ({"fails": True}, "it lacks NonMaxSuppression"),
    ],
)
def test_what_cannot_be_measured_has_the_usual_engine(options: Any, why: str) -> None:
    plan = Bench(0.004, 0.001, **options).chosen().result()
    assert plan.engine == "onnxruntime"
    assert plan.reason == f"the default; not measured: {why}"
    assert list(folder().glob("*")) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[1, 2]", '{"a": 1}', '{"a": "x", "b": 2.0}', '{"a": -1.0, "b": 2.0}', "[" * 9999]
)
def test_a_damaged_choice_is_no_choice(text: str) -> None:
    keep("k", {"a": 1.0, "b": 2.0})
    assert kept("k") == {"a": 1.0, "b": 2.0}
    (folder() / "k.json").write_text(text)
    assert kept("k") is None


async def test_several_may_wait_for_one_answer() -> None:
    bench = Bench(0.004, 0.001)
    answer = bench.chosen()
    plans = await asyncio.gather(*(asyncio.wait_for(answer, 10) for _ in range(3)))
    assert len({id(plan) for plan in plans}) == 1
    assert bench.built == [*ENGINES]
    assert answer.done()
    assert answer.then(lambda plan: plan.engine).result() == "callboard"


async def test_an_error_reaches_each_who_waits() -> None:
    def steps() -> Generator[Any, Any, int]:
        for _ in itertools.repeat(0, 2):
            yield Ready(1)
        raise ValueError("no")

    answer = Stepwise(steps())
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await answer


async def test_other_tasks_run_where_steps_pause() -> None:
    counted: list[int] = []

    def steps() -> Generator[Any, Any, list[int]]:
        for _ in range(9):
            yield
        return [*counted]

    async def count() -> None:
        while True:
            counted.append(len(counted))
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    assert len(await Stepwise(steps())) >= 8
    counter.cancel()
    assert Stepwise(steps()).result() == counted


async def test_a_model_is_measured_when_it_is_built() -> None:
    pytest.importorskip("onnxruntime", reason="for the extra onnx")
    x = np.ones((8, 4), "f4")
    async with cb.device("cpu", isolation="thread") as dev:
        plan = await dev.engine.build(linear(), profiles={"x": ((1, 4), (8, 4), (64, 4))})
        assert "measured now: onnxruntime " in plan.explain()
        again = await dev.engine.build(linear(), profiles={"x": ((1, 4), (8, 4), (64, 4))})
        assert again.engine == plan.engine
        assert "as kept in the cache" in again.explain()
        np.testing.assert_allclose(await dev.engine.context(again)(x=x).get(), linear_of(x, W), rtol=1e-5)
        assert "a shape is open" in (await dev.engine.build(linear())).reason
