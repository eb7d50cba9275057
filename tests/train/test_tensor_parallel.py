"""``TensorParallelTrainer``: losses, failures on one shard, other numbers of shards, and plans that cannot be."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from tests.train.training_lab import batches, plain

import callboard as cb
from callboard.train.states import unpack
from callboard.train.tensor.cuts import even, in_groups
from callboard.train.tensor.shard import TensorShard

torch = pytest.importorskip("torch")
nn = torch.nn

ADAM = cb.OptimizerKind.AdamW(lr=0.01)
CROSS = cb.LossKind.CrossEntropy()
PAIR = {"0": "column", "3": "row"}


@pytest.fixture
async def devices(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[cb.Device]]:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "3")
    async with cb.System() as system:
        yield [await system.device(f"cpu:{index}", isolation="thread") for index in range(3)]


def trainer(devices: Any, model: Any, **settings: Any) -> cb.TensorParallelTrainer:
    given = {"plan": PAIR, "optimizer": ADAM, "loss": CROSS, **settings}
    return cb.TensorParallelTrainer(model, devices=devices, **given)


def wide(dropout: float = 0.0) -> Any:
    kept = nn.Dropout(dropout) if dropout else nn.Identity()
    last = nn.Dropout(dropout) if dropout else nn.Identity()
    return nn.Sequential(nn.Linear(6, 41), nn.Tanh(), kept, nn.Linear(41, 8), last, nn.Linear(8, 3)).double()


def dropping() -> Any:
    return wide(0.3)


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_lost_shard_changes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    data = batches(5, 7, "f8")

    async def run(training: cb.TensorParallelTrainer, kills: dict[int, int]) -> list[tuple[float, float]]:
        numbers = []
        for number, batch in enumerate(data):
            step = asyncio.ensure_future(training.step(batch))
            await asyncio.sleep(0)
            if number in kills:
                victim = training.devices[kills[number]].health().host_pid
                assert victim is not None
                os.kill(victim, signal.SIGKILL)
            stats = await step
            numbers.append((stats.loss, stats.grad_norm))
        return numbers

    async with cb.System() as system:
        pair = [await system.device(f"cpu:{rank}", isolation="process", standby=None) for rank in range(2)]
        async with trainer(pair, dropping) as training:
            calm = await run(training, {})
            expected = await training.state_dict()
            shards = training._training().actors  # type: ignore[attr-defined]
            models = [unpack(await shard.call(TensorShard.state, True))[0] for shard in shards]
        async with trainer(pair, dropping, snapshot_every=2) as training:
            disturbed = await run(training, {3: 1})
            found = await training.state_dict()
    assert disturbed == calm
    assert pair[1].health().ordinal > 1  # else only the snapshot behind a step met it
    assert equal(found, expected)
    whole = "5.weight", "3.bias"  # behind dropout of which all shards drew the same
    assert all(torch.equal(models[0][name], models[1][name]) for name in whole)


class Failing(nn.Linear):
    """Fails on one shard, when it is told to."""

    fails: bool = False

    def forward(self, x: Any) -> Any:
        if Failing.fails:
            Failing.fails = False
            raise ArithmeticError("midway")
        return super().forward(x)


def failing() -> Any:
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Identity(), nn.Linear(9, 8), Failing(8, 3)).double()


async def test_a_failure_on_one_shard_ends_the_step_on_all(devices: list[cb.Device]) -> None:
    data = batches(3, 5, "f8")
    model = failing()
    async with trainer(devices[:2], model) as training:
        await training.step(data[0])
        before = await training.state_dict()
        Failing.fails = True
        with pytest.raises(ArithmeticError, match="midway"):
            await training.step(data[1])
        assert equal(before, await training.state_dict())
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            await training.step((data[1][0][:, :4], data[1][1]))
        losses = [(await training.step(batch)).loss for batch in data[1:]]
    assert np.allclose(losses, plain(model, data, ADAM)[0][1:], rtol=0, atol=1e-12)


async def test_a_cancelled_step_was_not_done(devices: list[cb.Device]) -> None:
    data = batches(4, 5, "f8")
    model = wide()
    async with trainer(devices[:2], model) as training:
        await training.step(data[0])
        step = asyncio.ensure_future(training.step(data[3]))
        for _ in range(3):  # its calls are on their way
            await asyncio.sleep(0)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        losses = [(await training.step(batch)).loss for batch in data[1:3]]
    assert np.allclose(losses, plain(model, data[:3], ADAM)[0][1:], rtol=0, atol=1e-12)


async def test_a_checkpoint_is_loaded_by_other_numbers_of_shards(devices: list[cb.Device], tmp_path: Path) -> None:
    data = batches(8, 5, "f8")
    model = wide()
    losses = []

    async def some(training: Any, first: int) -> None:
        async with training:
            if first:
                assert await training.resume(tmp_path) == first
            losses.extend([(await training.step(batch)).loss for batch in data[first : first + 2]])
            await training.save(tmp_path)

    await some(trainer(devices[:2], model), 0)
    await some(trainer(devices, wide), 2)
    await some(trainer(devices[:1], wide), 4)
    await some(cb.DataParallelTrainer(wide, loss=CROSS, optimizer=ADAM, devices=devices[:2]), 6)
    expected, weights = plain(model, data, ADAM)
    assert np.allclose(losses, expected, rtol=0, atol=1e-12)
    async with trainer(devices[:2], wide) as training:
        await training.resume(tmp_path)
        assert training.shard_count == 2
        await training.set_devices(devices)
        assert training.shard_count == 3
        found = await training.state_dict()
    assert all(torch.allclose(found[name], value, rtol=0, atol=1e-12) for name, value in weights.items())


async def test_a_checkpoint_of_another_model_leaves_the_weights(devices: list[cb.Device], tmp_path: Path) -> None:
    other = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
    async with cb.DataParallelTrainer(other, loss=CROSS, optimizer=ADAM, devices=devices[:1]) as training:
        await training.save(tmp_path)
    async with trainer(devices[:2], wide) as training:
        before = await training.state_dict()
        with pytest.raises(RuntimeError, match=r"state_dict is of another model: it has no 3\."):
            await training.resume(tmp_path)
        assert equal(before, await training.state_dict())


def tied() -> Any:
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3))
    model[1].weight = model[0].weight
    return model.double()


def narrow() -> Any:
    return nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 1)).double()


def open_end() -> Any:
    return nn.Sequential(nn.Linear(6, 3)).double()


def unfollowed() -> Any:
    return nn.Sequential(nn.Linear(6, 10), nn.Linear(10, 10), nn.Linear(10, 3)).double()


def doubled() -> Any:
    return nn.Sequential(nn.Linear(6, 8), nn.GLU(), nn.Linear(4, 3)).double()


@pytest.mark.parametrize(
    "model, settings, message",
    [
        (wide, {"plan": {}}, "plan is empty"),
        (wide, {"plan": 3}, "plan is 3; pass 'auto', or a dict"),
        (wide, {"plan": {"0": "rows"}}, "'0'] is 'rows'; use one of column, row"),
        (wide, {"plan": {"0": "vocabulary"}, "loss": None}, "that needs LossKind.CrossEntropy"),
        (wide, {"plan": {"fc*": "row"}}, r"no module is named 'fc\*'; these are: 0, 1"),
        (wide, {"plan": {"0": "row", "[0]": "column"}}, "'0' is to be 'row', and 'column'"),
        (wide, {"plan": {"1": "row"}}, "'1' is a Tanh; 'row' is for torch.nn.Linear"),
        (wide, {"plan": {"1": "heads"}}, "'1' has no number of heads"),
        (wide, {"plan": {"1": "sequence"}}, "'sequence' is for LayerNorm, RMSNorm and Dropout"),
        (lambda: nn.Linear(6, 1), {"plan": {"": "row"}}, "no module is named ''"),
        (narrow, {"plan": {"1": "gathered"}}, r"of shape \[1, 8\], cannot be cut into 2 parts along axis 0"),
        (wide, {"plan": "auto"}, "plan='auto' finds no attention"),
        (tied, {"plan": {"0": "gathered"}}, "'0.weight' is tied to '1.weight', whose module is not in the plan"),
        (tied, {"plan": {"0": "gathered", "1": "row"}}, "is tied to a weight that is cut in another way"),
        (dropping, {}, "devices of one process share torch's random numbers"),
        (
            lambda: wide(),
            {"optimizer": lambda ps: torch.optim.Adafactor(ps)},
            "the update of Adafactor depends on whole",
        ),
        (open_end, {"plan": {"0": "column"}}, "the output of '0' is cut by features, and no 'row'"),
        (unfollowed, {"plan": {"0": "column", "2": "row"}}, "the output of '0' is cut by features, and no 'row'.*mat1"),
        (unfollowed, {"plan": {"[01]": "column", "2": "row"}}, "the output of '0' is cut by features, and no 'row'"),
        (doubled, {"plan": {"0": "column", "2": "row"}}, "'2' is a 'row' of 4 features, and the 'column' '0' in front"),
    ],
)
async def test_plans_that_cannot_be(
    devices: list[cb.Device], model: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):  # of the constructor, or later
        async with trainer(devices[:2], model, **settings) as training:
            await training.step(batches(1, 4, "f8")[0])


@limits(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 3), st.integers(1, 3), st.integers(0, 1))
def test_what_is_cut_is_joined(size: int, groups: int, width: int, repeats: int, axis: int) -> None:
    length = groups * width * repeats
    whole = torch.arange(float(length * 2)).reshape((length, 2) if axis == 0 else (2, length))
    cut = in_groups(axis, groups, width, size, repeats)
    parts = [cut.part(whole, rank) for rank in range(size)]
    assert torch.equal(cut.join(parts), whole)
    assert sum(part.shape[axis] for part in parts) == length
    assert all(part.shape[axis] % (width * repeats) == 0 for part in parts)
    assert even(axis, length, size).pieces == in_groups(axis, length, 1, size).pieces
