"""A second device that is lost while a first loss is being repaired: the figures are those of an undisturbed run."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Generator
from typing import Any, TypeVar

import pytest
from tests.train.training_lab import batches, dropping

import callboard as cb
from callboard.device.client.residents.ref import ResidentRef
from callboard.train.job import Job
from callboard.train.pipeline.messages import Assigned
from callboard.train.pipeline.worker import Worker
from callboard.train.replicas.rates import Rates
from callboard.train.replicas.replica import Replica

torch = pytest.importorskip("torch")

SETTINGS: Any = {
    "optimizer": cb.OptimizerKind.AdamW(lr=0.01),
    "loss": cb.LossKind.CrossEntropy(),
    "gradient_clip": 0.5,
    "schedule": lambda updates: 1 / (1 + updates / 8),
    "snapshot_every": 3,
}
T = TypeVar("T")
PATIENCE = 120.0
DONE = "done"
"""The first device is lost when all have taken the step, with its answer."""

Loss = tuple[str, str, int]
"""When the first device is lost: as this call is sent, or :data:`DONE`. After whose answer the second one is; empty: at
the same time. Which that is."""


class Gate:
    """Lets the calls of a trainer's actors pass, and loses devices between two of them.

    A device that is lost second has its next context before the trainer's next call is made: that call reaches a new
    instance.
    """

    def __init__(self, trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._trainer = trainer
        self._loss: Loss | None = None
        self._answers = 0
        self._first = self._second = False
        self._call = call = ResidentRef.call
        monkeypatch.setattr(ResidentRef, "call", lambda ref, *args, **kwargs: self._passing(call, ref, args, kwargs))

    async def losing(self, work: Coroutine[Any, Any, T], loss: Loss) -> T:
        """What the trainer gives, with two losses on the way."""
        self._loss, self._answers, self._first, self._second = loss, 0, False, False
        async with asyncio.timeout(PATIENCE):
            result = await work
        assert (self._first, self._second) == (True, True), f"{loss}: no such call was made"
        self._loss = None
        return result

    def _passing(self, call: Any, ref: Any, args: Any, kwargs: Any) -> Any:
        name, reply = args[0].__name__, call(ref, *args, **kwargs)
        if self._loss is None:
            return reply
        first, after, victim = self._loss
        if not self._first and name == first:
            self._first = True
            self._kill(1)
            if not after:
                self._second = True
                self._kill(victim)
        return Passed(self, name, reply)

    async def answered(self, name: str) -> None:
        assert self._loss is not None
        first, after, victim = self._loss
        if self._first and not self._second and name == after:
            self._second = True
            await self._lose(victim)
        elif not self._first and first == DONE and name in ("take", "update"):
            self._answers += 1
            if self._answers == 2:
                self._first = True
                self._kill(1)
                raise cb.ContextLost("the answer was lost with its device")

    def _kill(self, rank: int) -> None:
        pid = self._trainer.devices[rank].health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    async def _lose(self, rank: int) -> None:
        device = self._trainer.devices[rank]
        watch = device.watch_generation()
        known = watch.value
        self._kill(rank)
        async with asyncio.timeout(PATIENCE):
            await watch.changed(known)


class Passed:
    """A reply that comes through the gate."""

    def __init__(self, gate: Gate, name: str, reply: Any) -> None:
        self._gate, self._name, self._reply = gate, name, reply
        self._seen = False

    def done(self) -> bool:
        return bool(self._reply.done())

    def __await__(self) -> Generator[Any, None, Any]:
        result = yield from self._reply.__await__()
        if not self._seen:
            self._seen = True
            yield from self._gate.answered(self._name).__await__()
        return result


def made(kind: str, devices: Any, **more: Any) -> Any:
    """A trainer of two devices."""
    settings = {**SETTINGS, **more}
    if kind in ("data", "zero"):
        return cb.DataParallelTrainer(dropping, devices=devices, shard=None if kind == "data" else "zero1", **settings)
    if kind == "tensor":
        plan = {"0": "column", "3": "row"}
        return cb.TensorParallelTrainer(cutting, devices=devices, plan=plan, **settings)
    return cb.PipelineParallelTrainer(dropping, devices=devices, stages=2, micro_batch_size=4, **settings)


@contextlib.asynccontextmanager
async def pair(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[cb.Device]]:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    opening: Any = {"isolation": "process", "standby": None, "max_restarts": None}
    async with cb.System() as system:
        yield [await system.device(f"cpu:{rank}", **opening) for rank in range(2)]


def cutting() -> torch.nn.Module:
    nn = torch.nn
    return nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Dropout(0.0), nn.Linear(40, 3))


def figures(stats: cb.StepStats) -> tuple[Any, ...]:
    return stats.step, stats.loss, stats.grad_norm, stats.lr, stats.skipped


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kind, losses",
    [
        ("data", [(DONE, "load", 0), (DONE, "offer", 0)]),
        pytest.param(
            "data",
            [("take", "", 0), *(("take", name, 0) for name in ("enter", "offer", "state", "load", "join", "take"))],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "data",
            [*((DONE, name, rank) for name in ("enter", "offer", "join") for rank in (0, 1)), (DONE, "load", 1)],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "zero",
            [("take", "", 0), *((DONE, name, 0) for name in ("enter", "offer", "load", "join", "take"))],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "tensor",
            [("take", "", 0), *((DONE, name, 0) for name in ("cut", "offer", "load", "join", "take"))],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "pipeline",
            [("run", "", 0), *((DONE, name, rank) for name in ("done", "load", "run") for rank in (0, 1))],
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_a_second_loss_changes_no_figure(kind: str, losses: list[Loss], monkeypatch: pytest.MonkeyPatch) -> None:
    data = batches(2 * len(losses) + 2, 7)
    async with pair(monkeypatch) as devices:
        async with made(kind, devices) as calm:
            expected = [figures(await calm.step(batch)) for batch in data]
            weights = await calm.state_dict()
        async with made(kind, devices) as disturbed:
            gate, found = Gate(disturbed, monkeypatch), []
            for at, batch in enumerate(data):
                lost = at % 2 and at // 2 < len(losses)
                stats = await (gate.losing(disturbed.step(batch), losses[at // 2]) if lost else disturbed.step(batch))
                found.append(figures(stats))
                assert len(stats.replica_micros) in (0, 2)
            after = await disturbed.state_dict()
    assert found == expected
    assert all(torch.equal(after[name], value) for name, value in weights.items())


def hits(outputs: Any, targets: Any) -> Any:
    return (outputs.argmax(1) == targets).double().mean()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kind, first, names",
    [
        ("data", "evaluate", ["enter", "offer", "load", "evaluate"]),
        ("tensor", "evaluate", ["cut", "load", "evaluate"]),
        ("pipeline", "run", ["done", "load", "run"]),
    ],
)
async def test_a_second_loss_changes_no_evaluation(
    kind: str, first: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, held_out = batches(2, 7), batches(3, 5)[2]
    settings: Any = {"batch_size": 5, "metrics": {"hits": hits}}
    async with pair(monkeypatch) as devices, made(kind, devices) as trainer:
        for batch in data:
            await trainer.step(batch)
        expected = await trainer.evaluate(held_out, **settings)
        gate = Gate(trainer, monkeypatch)
        for name in names:
            found = await gate.losing(trainer.evaluate(held_out, **settings), (first, name, 0))
            assert (found.step, found.loss, found.metrics) == (expected.step, expected.loss, expected.metrics), name


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind, names", [("data", ["offer", "load"]), ("tensor", ["cut", "load"])])
async def test_a_second_loss_while_updates_are_rolled_back(
    kind: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (x, y), *good = batches(2 + len(names), 7)
    bad = x * float("inf"), y
    settings: Any = {"not_finite": "roll_back", "snapshot_every": 100}
    async with pair(monkeypatch) as devices:
        async with made(kind, devices, **settings) as calm:
            expected = [figures(await calm.step(batch)) for each in good for batch in (each, bad)]
            weights = await calm.state_dict()
        async with made(kind, devices, **settings) as disturbed:
            gate, found = Gate(disturbed, monkeypatch), []
            for batch, name in zip(good, ["", *names], strict=True):
                found.append(figures(await disturbed.step(batch)))
                step = disturbed.step(bad)
                found.append(figures(await (gate.losing(step, ("load", name, 0)) if name else step)))
            after = await disturbed.state_dict()
    assert repr(found) == repr(expected)  # NaN equals itself
    assert all(torch.equal(after[name], value) for name, value in weights.items())


async def test_an_instance_without_the_step_before_takes_none() -> None:
    job = Job(dropping, SETTINGS["optimizer"], SETTINGS["loss"])
    rates = Rates()
    async with cb.device("cpu", isolation="thread") as device:
        replica = device.actor_of(cb.Props(Replica, job))
        with pytest.raises(cb.ContextLost, match="has no weights of step 4"):
            await replica.call(Replica.take, 5, 1.0, batches(1, 4)[0], rates)
        with pytest.raises(cb.ContextLost, match="has no weights yet"):
            await replica.call(Replica.state, True)
        worker = device.actor_of(cb.Props(Worker, Assigned(job, 1, None, 0, splits=False, stages=(0,))))
        with pytest.raises(cb.ContextLost, match="have no weights yet"):
            await worker.call(Worker.begin, 4)
