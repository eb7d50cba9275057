"""``PipelineParallelTrainer``: the bits of one device that computes the micro-batches one after the other."""

import asyncio
import copy
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.train.training_lab import batches, mlp, plain

import callboard as cb
from callboard.train.pipeline.crew import Crew
from callboard.train.pipeline.schedules.tables import SCHEDULES
from callboard.train.pipeline.values import Value

torch = pytest.importorskip("torch")
nn = torch.nn

SGD = cb.OptimizerKind.Sgd(lr=0.1, momentum=0.9)
CROSS = cb.LossKind.CrossEntropy()


@pytest.fixture
async def pair(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[cb.Device]]:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "3")
    async with cb.System() as system:
        yield [await system.device(f"cpu:{index}", isolation="thread") for index in range(2)]


def trainer(devices: Any, model: Any, **settings: Any) -> cb.PipelineParallelTrainer:
    given = {"optimizer": SGD, "loss": CROSS, "micro_batch_size": 3, **settings}
    return cb.PipelineParallelTrainer(model, devices=devices, **given)


class Skipping(nn.Module):
    """The first values are used again in every layer."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(6, 8)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        first = h = self.enter(x)
        for layer in self.layers:
            h = torch.tanh(layer(h)) + 0.1 * first
        return self.head(self.norm(h + first))


def serial(model: nn.Module, data: Any, size: int, optimizer: Any) -> list[float]:
    """One process, micro-batch after micro-batch."""
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        total = 0.0
        for start in range(0, len(x), size):
            xs, ys = torch.tensor(x[start : start + size]), torch.tensor(y[start : start + size])
            mean = nn.functional.cross_entropy(model(xs), ys)
            (mean * (len(xs) / len(x))).backward()
            total += float(mean.detach().double() * len(xs))
        optimizer.step()
        losses.append(total / len(x))
    return losses


@pytest.mark.few(4)
@pytest.mark.parametrize("schedule", SCHEDULES)
async def test_every_schedule_gives_the_bits_of_one_device(pair: list[cb.Device], schedule: str) -> None:
    data = [*batches(2, 11), *batches(1, 2)]  # parts of 3, 3, 3, 2; fewer micro-batches than stages
    model = Skipping()
    plainly = copy.deepcopy(model)
    expected = serial(plainly, data, 3, torch.optim.SGD(plainly.parameters(), 0.1, 0.9))
    async with trainer(pair, model, pipeline_schedule=schedule, stages=4) as training:
        losses = [(await training.step(batch)).loss for batch in data]
        weights = await training.state_dict()
    assert losses == expected
    assert weights.keys() == plainly.state_dict().keys()
    assert all(torch.equal(weights[name], value) for name, value in plainly.state_dict().items())


async def test_the_loss_curve_of_whole_batches(pair: list[cb.Device]) -> None:
    data = batches(20, 11, "f8")
    model = mlp().double()
    async with trainer(pair, model, gradient_clip=0.5, optimizer=cb.OptimizerKind.AdamW(lr=0.01)) as training:
        steps = [await training.step(batch) for batch in data]
        weights = await training.state_dict()
    losses, state = plain(model, data, cb.OptimizerKind.AdamW(lr=0.01), clip=0.5)
    assert np.allclose([one.loss for one in steps], losses, rtol=0, atol=1e-12)
    assert all(np.allclose(weights[name], value, rtol=0, atol=1e-12) for name, value in state.items())
    assert (steps[0].lr, steps[0].samples, len(steps[0].replica_micros)) == (0.01, 11, 2)


class First(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 8)

    def forward(self, x: Any, mask: Any = None) -> Any:
        h = self.inner(x)
        return {"h": torch.relu(h), "first": h}


class Middle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, h: Any) -> Any:
        return torch.tanh(self.inner(h))


class Last(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 3)

    def forward(self, h: Any, first: Any, mask: Any) -> Any:
        return self.inner(h + first * mask)


class Whole(nn.Module):
    def __init__(self, stages: Any) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)

    def forward(self, x: Any, mask: Any) -> Any:
        given = self.stages[0](x)
        return self.stages[2](self.stages[1](given["h"]), given["first"], mask)


async def test_stages_that_are_given_pass_values_by_name(pair: list[cb.Device]) -> None:
    (x, y), *_ = batches(1, 8)
    mask = np.random.default_rng(1).random((8, 1)).astype("f4")
    stages = [First(), Middle(), Last()]
    whole = Whole(copy.deepcopy(stages))
    optimizer = torch.optim.SGD(whole.parameters(), 0.1)
    for start in range(0, 8, 3):
        xs, ms, ys = (torch.tensor(one[start : start + 3]) for one in (x, mask, y))
        (nn.functional.cross_entropy(whole(xs, ms), ys) * (len(xs) / 8)).backward()
    optimizer.step()
    settings: dict[str, Any] = {"optimizer": cb.OptimizerKind.Sgd(lr=0.1), "pipeline_schedule": "zero-bubble"}
    async with trainer(pair, stages, **settings) as training:
        await training.step(((x, mask), y))
        found = await training.state_dict()
    assert all(torch.equal(found[name.removeprefix("stages.")], one) for name, one in whole.state_dict().items())
    async with trainer(pair, [First, Middle], **settings) as training:
        with pytest.raises(IndexError, match="out of bounds"):
            await training.step(((x, mask), y + 100))
        assert (await training.step(((x, mask), y))).step == 1
    async with trainer(pair, [Middle, Last], **settings) as training:
        with pytest.raises(TypeError, match="stage 1 takes 'first', which neither the batch nor a stage before gave"):
            await training.step((np.ones((2, 8), "f4"), y[:2]))


class Own(nn.Module):
    """Gives its loss, from tokens of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(9, 4), nn.Linear(4, 1)

    def forward(self, ids: Any) -> Any:
        return self.out(torch.tanh(self.embed(ids))).square().mean()


async def test_micro_batches_of_different_shapes(pair: list[cb.Device]) -> None:
    ids = np.array([[1, 2, 0, 0], [3, 0, 0, 0], [4, 5, 6, 7]])
    shapes = []

    def trim(some: Any) -> Any:
        longest = int((some["ids"] > 0).sum(axis=1).max())
        shapes.append(longest)
        return {"ids": some["ids"][:, :longest]}

    model = Own()
    expected = sum(float(model(torch.as_tensor(row[row > 0])).detach()) for row in ids) / 3
    async with trainer(pair, model, loss=None, micro_batch_size=1, trim=trim) as training:
        stats = await training.step({"ids": ids})
    assert shapes == [2, 1, 4]
    assert stats.loss == pytest.approx(expected, rel=1e-6)
    assert stats.tokens is None or stats.tokens == 12


async def test_bfloat16_between_stages(pair: list[cb.Device]) -> None:
    data = batches(4, 6)
    losses = {}
    for devices in (pair, pair[:1]):
        torch.manual_seed(0)
        model = mlp()
        async with trainer(devices, model, precision="bf16", stages=2) as training:
            losses[len(devices)] = [(await training.step(batch)).loss for batch in data]
    assert losses[1] == losses[2]
    async with trainer(pair, mlp().bfloat16(), stages=2) as training:
        assert (await training.step(data[0])).loss == pytest.approx(losses[1][0], rel=1)


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))


async def test_a_step_that_fails_or_is_skipped_leaves_everything(pair: list[cb.Device]) -> None:
    (x, y), good = batches(2, 6)
    async with trainer(pair, normed) as training:
        before = await training.state_dict()
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            await training.step((x[:, :2], y))
        failed = await training.state_dict()
        assert (await training.step((x * np.inf, y))).skipped
        skipped = await training.state_dict()
        assert all(torch.equal(before[name], one[name]) for name in before for one in (failed, skipped))
        begun = asyncio.ensure_future(training.step(good))
        await asyncio.sleep(0)
        begun.cancel()
        with pytest.raises(asyncio.CancelledError):
            await begun
        assert (await training.step(good)).step == 2
        with pytest.raises(TypeError, match="with a loss it is \\(inputs, targets\\)"):
            await training.step(x)
        with pytest.raises(TypeError, match="the batch has 2 inputs, but the model takes 1"):
            await training.step(((x, x), y))


async def test_a_loss_without_a_gradient_is_refused(pair: list[cb.Device]) -> None:
    def accuracy(outputs: Any, targets: Any) -> Any:
        return (outputs.argmax(-1) == targets).float().mean()

    async with trainer(pair, mlp, stages=2, loss=accuracy) as training:
        with pytest.raises(RuntimeError, match="the loss has no gradient"):
            await training.step(batches(1, 6)[0])


async def test_a_failed_copy_between_stages_is_what_the_step_raises(
    pair: list[cb.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, beside = batches(2, 18), Crew.beside

    def failing(crew: Crew, given: Any, stage: int) -> Value:
        value = beside(crew, given, stage)
        if stage == 0:
            return value
        bad: Any = pair[1].solver.cholesky(pair[1].full((8, 8), -1.0))
        return msgspec.structs.replace(value, array=bad)

    async with trainer(pair, mlp, stages=2, pipeline_schedule="1f1b") as training:
        first = await training.step(data[0])
        monkeypatch.setattr(Crew, "beside", failing)
        with pytest.raises(cb.NumericalError, match="positive definite"):
            await training.step(data[1])
        monkeypatch.undo()
        assert (await training.step(data[1])).step == first.step + 1


async def test_a_resumed_run_has_the_same_bits_with_other_stages(pair: list[cb.Device], tmp_path: Path) -> None:
    data = batches(6, 8)
    adam = {"optimizer": cb.OptimizerKind.AdamW(lr=0.01), "micro_batch_size": 4}
    async with trainer(pair, normed, **adam) as training:
        for batch in data[:3]:
            await training.step(batch)
        await training.save(tmp_path)
        expected = [(await training.step(batch)).loss for batch in data[3:]]
    for devices, stages in ((pair, 2), (pair, 5), (pair[:1], 1)):
        async with trainer(devices, normed, seed=5, stages=stages, **adam) as training:
            assert await training.resume(tmp_path) == 3
            assert [(await training.step(batch)).loss for batch in data[3:]] == expected
    async with trainer(pair, mlp, **adam) as training:
        with pytest.raises(RuntimeError):
            await training.resume(tmp_path)
        assert training.steps == 0


async def test_stages_of_a_stopped_device_are_dealt_out(pair: list[cb.Device]) -> None:
    data = batches(6, 8)
    async with trainer(pair, normed, stages=3) as training:
        calm = [(await training.step(batch)).loss for batch in data]
    async with cb.device("cpu:2", isolation="thread") as third:
        async with trainer([*pair, third], normed, stages=3, snapshot_every=2) as training:
            losses = [(await training.step(batch)).loss for batch in data[:3]]
            await third.close()
            losses += [(await training.step(batch)).loss for batch in data[3:]]
            assert training.devices == tuple(pair)
    assert losses == calm


async def test_operations_are_counted(pair: list[cb.Device]) -> None:
    batch = batches(1, 6)[0]
    async with trainer(pair, mlp, peak_flops=1e9) as training:
        stats = await training.step(batch)
    assert stats.flops == 6 * 2 * (6 * 40 * 2 + 40 * 3 * 3)  # no gradient of the batch


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"pipeline_schedule": "dualpipe"}, "pipeline_schedule is 'dualpipe'; use one of 'gpipe'"),
        ({"split": "1"}, "split is '1'; pass a list of names"),
        ({"split": ["1"], "stages": 2}, "pass split or stages, not both"),
        ({"stages": 0}, "stages is 0"),
        ({"stages": 1}, "2 devices for 1 stages"),
        ({"model": []}, "model is an empty list"),
        ({"model": [mlp, 3]}, "stage 1 is 3; pass a torch.nn.Module"),
        ({"model": [mlp, mlp], "stages": 2}, "leave split and stages out"),
        ({"model": [shared := nn.Linear(2, 2), shared]}, "stages 0 and 1 share a weight"),
        ({"trim": 3}, "trim is 3"),
        ({"micro_batch_size": 0}, "micro_batch_size is 0"),
        ({"snapshot_every": 0}, "snapshot_every is 0"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    given = {"model": mlp, **settings}
    with pytest.raises((TypeError, ValueError), match=message):
        trainer(["cpu:0", "cpu:1"], given.pop("model"), **given)


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 16), nn.Linear(16, 3))


async def losing(training: cb.PipelineParallelTrainer, data: Any, kills: dict[int, tuple[int, int]]) -> Any:
    """Train, with SIGKILL for the host of a device some iterations of the loop after a step has begun."""
    steps = []
    for number, batch in enumerate(data):
        begun = asyncio.ensure_future(training.step(batch))
        rank, iterations = kills.get(number, (0, -1))
        for _ in range(iterations):
            await asyncio.sleep(0)
        if iterations >= 0:
            victim = training.devices[rank].health().host_pid
            if victim is not None:
                os.kill(victim, signal.SIGKILL)
        steps.append(await begun)
    return [(one.loss, one.grad_norm) for one in steps], sum(one.repeats for one in steps)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_killed_stage_changes_no_number(pair: list[cb.Device]) -> None:
    data = batches(5, 8)
    async with trainer(pair, normed, pipeline_schedule="zero-bubble") as training:
        calm, _ = await losing(training, data, {})
        expected = await training.state_dict()
    async with cb.System() as system:
        devices = [await system.device(f"cpu:{rank}", isolation="process", standby=None) for rank in range(2)]
        async with trainer(devices, normed, snapshot_every=2) as training:
            disturbed, _ = await losing(training, data, {3: (1, 40)})
            found = await training.state_dict()
    assert disturbed == calm
    assert devices[1].health().ordinal > 1  # else only the snapshot behind a step met it
    assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("schedule", SCHEDULES)
async def test_stages_killed_at_random_change_no_number(monkeypatch: pytest.MonkeyPatch, schedule: str) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    data, draw = batches(30, 8), random.Random(7)
    devices = ["cpu:0", "cpu:1"]
    async with trainer(devices, dropping, pipeline_schedule=schedule, stages=4) as training:
        calm, _ = await losing(training, data, {})
        expected = await training.state_dict()
    kills = {number: (draw.randrange(2), draw.randrange(400)) for number in range(4, 30, 5)}
    async with trainer(devices, dropping, pipeline_schedule=schedule, stages=4, snapshot_every=3) as training:
        disturbed, _ = await losing(training, data, kills)
        found = await training.state_dict()
    assert disturbed == calm
    assert all(torch.equal(found[name], value) for name, value in expected.items())
