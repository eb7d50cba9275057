"""``DataParallelTrainer``: the numbers of one process on the whole batch, whatever is lost on the way."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.train.training_lab import batches, dropping, mlp, mlp64, plain

import callboard as cb
from callboard.train import checkpoints
from callboard.train.batches import as_arrays
from callboard.train.errors import NotFinite, TrainerClosed
from callboard.train.opening import Opened
from callboard.train.replicas.exchange import Exchange
from callboard.train.running import loop

torch = pytest.importorskip("torch")

ADAM = cb.OptimizerKind.AdamW(lr=0.01)
MOMENTUM = cb.OptimizerKind.Sgd(lr=0.05, momentum=0.9, weight_decay=0.01)
CROSS = cb.LossKind.CrossEntropy()


@pytest.fixture
async def pair(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[cb.Device]]:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "3")
    async with cb.System() as system:
        yield [await system.device(f"cpu:{index}", isolation="thread") for index in range(2)]


def trainer(devices: Any, model: Any = mlp, **settings: Any) -> cb.DataParallelTrainer:
    return cb.DataParallelTrainer(model, devices=devices, **{"optimizer": ADAM, "loss": CROSS, **settings})


@pytest.mark.parametrize("optimizer", [ADAM, MOMENTUM, lambda p: torch.optim.RMSprop(p, 0.01), torch.optim.Adagrad])
async def test_it_trains_as_one_process_does(pair: list[cb.Device], optimizer: Any) -> None:
    data = batches(30, 11, "f8")  # parts of 6 and 5 samples
    model = mlp64()
    async with trainer(pair, model, optimizer=optimizer, gradient_clip=0.5, micro_batch_size=4) as training:
        losses = [(await training.step(batch)).loss for batch in data]
        weights = await training.state_dict()
    expected, state = plain(model, data, optimizer, clip=0.5)
    assert np.allclose(losses, expected, rtol=0, atol=1e-12)
    assert all(np.allclose(weights[name], value, rtol=0, atol=1e-12) for name, value in state.items())


async def test_the_figures_of_a_step(pair: list[cb.Device]) -> None:
    async with trainer(pair, schedule=lambda updates: 1 / (1 + updates)) as training:
        first, second = [await training.step(batch) for batch in batches(2, 5)]
    assert (first.step, first.samples, first.lr, second.lr) == (1, 5, 0.01, 0.005)
    assert first.grad_norm > 0
    assert len(first.replica_micros) == 2
    assert first.step_micros >= max(first.replica_micros)


async def test_fewer_samples_than_devices(pair: list[cb.Device]) -> None:
    data = batches(3, 1)
    model = mlp()
    async with trainer(pair, model) as training:
        losses = [(await training.step(batch)).loss for batch in data]
    assert np.allclose(losses, plain(model, data, ADAM)[0], atol=1e-6)


async def test_losses_by_name(pair: list[cb.Device]) -> None:
    (x, y), *_ = batches(1, 9)
    weights = [1.0, 0.5, 2.0]
    model = mlp()
    with torch.no_grad():
        logits = model(torch.as_tensor(x))
        chosen = torch.nn.functional.cross_entropy(
            logits, torch.as_tensor(y), weight=torch.tensor(weights), reduction="sum"
        )
        wide = torch.nn.functional.mse_loss(logits, torch.zeros(9, 3))
    async with trainer(pair, model, loss=cb.LossKind.WeightedCrossEntropy(weights)) as training:
        assert (await training.step((x, y))).loss == pytest.approx(float(chosen) / 9, abs=1e-6)
    async with trainer(pair, model, loss=cb.LossKind.Mse()) as training:
        assert (await training.step((x, np.zeros((9, 3))))).loss == pytest.approx(float(wide), abs=1e-6)


class Own(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, *, x: Any, bias: Any) -> dict[str, Any]:
        return ((x * self.scale + bias) ** 2).mean()


async def test_a_model_that_gives_its_loss(pair: list[cb.Device]) -> None:
    batch = {"x": np.full((4, 3), 2.0), "bias": np.ones((4, 3))}
    async with trainer(pair, Own, loss=None) as training:
        assert (await training.step(batch)).loss == 9.0


async def test_a_gradient_that_is_not_finite_is_skipped(pair: list[cb.Device]) -> None:
    (x, y), good = batches(2, 4)
    async with trainer(pair, dropping) as training:
        before = await training.state_dict()
        stats = await training.step((x * np.inf, y))
        after = await training.state_dict()
        assert stats.skipped
        assert all(torch.equal(before[name], after[name]) for name in before if "tracked" not in name)
        assert not (await training.step(good)).skipped
    async with trainer(pair, not_finite="stop") as training:
        with pytest.raises(NotFinite, match="step 1: the gradient is not finite"):
            await training.step((x * np.inf, y))
    async with trainer(pair, not_finite="roll_back") as training:
        first = await training.state_dict()
        undone = [(await training.step(batch)).undone for batch in (good, (x * np.inf, y), (x * np.inf, y))]
        assert undone == [0, 1, 0]
        now = await training.state_dict()
        assert training.steps == 3
        assert all(torch.equal(first[name], now[name]) for name in first)


async def test_a_failing_model_leaves_the_weights(pair: list[cb.Device]) -> None:
    good, (x, y) = batches(2, 4)
    async with trainer(pair) as training, trainer(pair[:1]) as other:
        with pytest.raises(RuntimeError, match="mat1 and mat2") as found:
            await training.step((x[:, :2], y))
        assert "in step 1, with a batch of 4 samples" in found.value.__notes__
        assert (await training.step(good)).step == 1
        assert (await other.step(good)).step == 1


async def test_a_model_or_optimizer_that_cannot_be_opened_says_why(pair: list[cb.Device]) -> None:
    for kind, settings, message in (
        (lambda: mlp().requires_grad_(False), {}, "no parameter that requires a gradient"),
        (mlp, {"optimizer": lambda p: torch.optim.SGD(p, lr=-1.0)}, "Invalid learning rate"),
    ):
        with pytest.raises(ValueError, match=message):
            async with trainer(pair[:1], kind, **settings):
                pass


async def test_replicas_change_while_it_trains(pair: list[cb.Device]) -> None:
    data = batches(12, 8, "f8")
    model = mlp64()
    async with cb.device("cpu:2", isolation="thread") as third, trainer(pair, model) as training:
        losses = []
        for number, batch in enumerate(data):
            if number == 4:
                await training.set_replicas([*pair, third])
            if number == 8:
                await training.set_replicas([third])
            losses.append((await training.step(batch)).loss)
        assert [device.uuid for device in training.devices] == [third.uuid]
    assert np.allclose(losses, plain(model, data, ADAM)[0], rtol=0, atol=1e-12)


async def test_a_resumed_run_equals_one_that_was_not_interrupted(pair: list[cb.Device], tmp_path: Path) -> None:
    xs, ys = map(np.concatenate, zip(*batches(10, 8), strict=True))
    settings: dict[str, Any] = {"batch_size": 16, "epochs": 3}
    async with trainer(pair[:1], dropping) as training:
        whole = await training.fit((xs, ys), **settings)
        expected = await training.state_dict()
    async with trainer(pair[:1], dropping) as training:
        stop = asyncio.CancelledError

        def interrupt(stats: Any) -> None:
            if stats.step == 8:
                raise stop

        with pytest.raises(stop):
            await training.fit((xs, ys), checkpoints=tmp_path, checkpoint_every=3, on_step=interrupt, **settings)
    async with trainer(pair[:1], dropping) as training:
        assert await training.resume(tmp_path) == 6
        rest = await training.fit((xs, ys), **settings)
        found = await training.state_dict()
    assert rest.losses == whole.losses[6:]
    assert len(whole.steps) == 15
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert str(whole).startswith("15 steps: ")
    assert "<svg" in whole._repr_html_()


async def test_a_step_before_fit_is_no_batch_of_it(pair: list[cb.Device], monkeypatch: pytest.MonkeyPatch) -> None:
    data = tuple(map(np.concatenate, zip(*batches(3, 8), strict=True)))
    bars: list[tuple[int, int]] = []
    monkeypatch.setattr(loop, "_bar", lambda progress, total, done: bars.append((total, done)))
    async with trainer(pair[:1]) as training:
        await training.step(batches(1, 2)[0])
        history = await training.fit(data, batch_size=8, epochs=2)
        assert [one.step for one in history.steps] == [2, 3, 4, 5, 6, 7]  # all of both passes
        assert not (await training.fit(data, batch_size=8, steps=7)).steps  # the number of the last step
        assert len((await training.fit(data, batch_size=8, steps=9)).steps) == 2
    assert bars == [(7, 1), (7, 7), (9, 7)]


async def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one(
    pair: list[cb.Device], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = batches(2, 4)
    async with trainer(pair[:1]) as training:
        await training.step(data[0])
        place = await training.save(tmp_path)
        await training.step(data[1])
        full = OSError(28, "No space left on device")
        monkeypatch.setattr(checkpoints, "_sync", lambda path: (_ for _ in ()).throw(full))
        with pytest.raises(OSError, match="No space left"):
            await training.save(tmp_path)
        assert os.listdir(tmp_path) == [place.name]
        assert checkpoints.latest(tmp_path) == place
        monkeypatch.undo()
        assert await training.resume(tmp_path) == 1
        with pytest.raises(FileNotFoundError, match="has no checkpoint"):
            await training.resume(tmp_path / "elsewhere")
    async with trainer(pair[:1], lambda: torch.nn.Linear(6, 40)) as other:
        before = await other.state_dict()
        with pytest.raises(RuntimeError, match="state_dict"):
            await other.resume(tmp_path)
        after = await other.state_dict()
        assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"optimizer": cb.OptimizerKind.AdamW}, "optimizer is <class .*an object, OptimizerKind.AdamW"),
        ({"optimizer": torch.optim.Adam([torch.zeros(1)])}, "lambda p: torch.optim"),
        ({"loss": torch.nn.CrossEntropyLoss}, "loss is <class .*an object, CrossEntropyLoss"),
        ({"loss": "mse"}, "loss is 'mse'; pass one of cb.LossKind"),
        ({"devices": []}, "devices is empty"),
        ({"devices": [3]}, "3 is no device"),
        ({"gradient_clip": 0}, "gradient_clip is 0"),
        ({"precision": "f8"}, "precision is 'f8'; use one of f32, bf16"),
        ({"not_finite": "ignore"}, "not_finite is 'ignore'"),
        ({"snapshot_every": 0}, "snapshot_every is 0"),
        ({"model": 3}, "model is 3; pass a torch.nn.Module"),
    ],
)
async def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    given = {"model": mlp, "devices": ["cpu"], **settings}
    with pytest.raises((TypeError, ValueError), match=message):
        trainer(given.pop("devices"), given.pop("model"), **given)


async def test_batches_that_cannot_be(pair: list[cb.Device]) -> None:
    closed = trainer(pair)
    with pytest.raises(TrainerClosed, match="async with"):
        await closed.step(batches(1, 2)[0])
    async with trainer(pair) as training:
        for batch, message in [
            ((np.ones((3, 6)), np.ones(4)), "arrays of 3 and 4 rows"),
            ((np.ones((0, 6)), np.ones(0)), "no samples"),
            (([[1.0, 2.0], [3.0]], np.ones(2)), r"batch\[0\] is a list, which is not an array of numbers"),
            ([(np.ones(6), np.ones(1))], "batch is a list, which is not an array of numbers"),
            ((np.ones((2, 6)), np.array(["a", "b"])), r"batch\[1\] is .* of dtype <U1"),
            ((np.ones((2, 6)), 3), r"batch\[1\] is the single number 3"),
        ]:
            with pytest.raises((TypeError, ValueError), match=message):
                await training.step(batch)


async def test_no_replica_takes_a_step_whose_sum_fails(pair: list[cb.Device], monkeypatch: pytest.MonkeyPatch) -> None:
    data = batches(3, 7)
    model = mlp()
    async with trainer(pair, model) as training:
        calm = numbers([await training.step(batch) for batch in data])
    add_up, failures = Exchange.add_up, []

    def once(exchange: Exchange, sums: Any, averages: Any) -> None:
        if training.steps == 1 and not failures:
            failures.append(True)
            raise cb.WorldLost("a rank was lost", 1, 1)
        add_up(exchange, sums, averages)

    async with trainer(pair, model) as training:
        monkeypatch.setattr(Exchange, "add_up", once)
        steps = [await training.step(batch) for batch in data]
    assert numbers(steps) == calm
    assert [one.repeats for one in steps] == [0, 1, 0]


async def killing(training: cb.DataParallelTrainer, data: Any, kills: dict[int, list[int]]) -> list[cb.StepStats]:
    """Train, with SIGKILL for the hosts of these ranks as these steps begin."""
    steps = []
    for number, batch in enumerate(data):
        begun = asyncio.ensure_future(training.step(batch))
        await asyncio.sleep(0)
        for rank in kills.get(number, []):
            victim = training.devices[rank].health().host_pid
            assert victim is not None
            os.kill(victim, signal.SIGKILL)
        steps.append(await begun)
    return steps


def numbers(steps: list[cb.StepStats]) -> list[tuple[int, float, float]]:
    return [(one.step, one.loss, one.grad_norm) for one in steps]


def normed() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(6, 40), torch.nn.BatchNorm1d(40), torch.nn.Linear(40, 3))


@pytest.mark.timeout(180)
async def test_a_lost_device_changes_no_number(pair: list[cb.Device]) -> None:
    data = batches(6, 7)
    model = normed()
    async with trainer(pair, model) as training:
        calm = await killing(training, data, {})
        expected = await training.state_dict()
    async with cb.System() as system:
        devices = [await system.device(f"cpu:{rank}", isolation="process", standby=None) for rank in range(2)]
        async with trainer(devices, model, snapshot_every=2) as training:
            disturbed = await killing(training, data, {2: [0]})  # whose running means count; no snapshot follows
            found = await training.state_dict()
    assert numbers(disturbed) == numbers(calm)
    assert sum(one.repeats for one in disturbed) >= 1
    assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_lost_devices_change_no_random_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    data = batches(12, 7)
    async with trainer(["cpu:0", "cpu:1"], dropping) as training:
        calm = await killing(training, data, {})
        expected = await training.state_dict()
    async with trainer(["cpu:0", "cpu:1"], dropping, snapshot_every=4) as training:
        disturbed = await killing(training, data, {3: [1], 6: [0], 9: [0, 1]})
        found = await training.state_dict()
    assert numbers(disturbed) == numbers(calm)
    assert sum(one.repeats for one in disturbed) >= 2
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_a_list_of_tensors_is_a_batch_of_several_arrays() -> None:
    inputs, targets = as_arrays([torch.ones(4, 3), torch.zeros(4, 3)])
    assert inputs.shape == targets.shape == (4, 3)
    assert as_arrays([[1, 2], [3, 4], [5, 6]]).shape == (3, 2)  # numbers are one array


async def test_a_device_that_was_opened_by_name_stays_under_another_name() -> None:
    opened = Opened("trainer", ["cpu"])
    try:
        (device,) = await opened.open()
        for same in ([device], ["cpu:0"]):
            assert await opened.open(same) == [device]
            await opened.close_others()
            assert (await device.put(np.ones(2)).get()).sum() == 2
    finally:
        await opened.close()


async def test_devices_that_are_named_open_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    opening = asyncio.Barrier(2)
    before = cb.System.device

    async def device(system: cb.System, which: str, **settings: Any) -> cb.Device:
        await opening.wait()  # one after the other, each would wait for ever
        return await before(system, "cpu", isolation="thread") if which == "cpu:0" else await lost()

    async def lost() -> cb.Device:
        raise cb.BackendUnavailable("cpu:1: gone")

    monkeypatch.setattr(cb.System, "device", device)
    opened = Opened("trainer", ["cpu:0", "cpu:1"])
    async with asyncio.timeout(30.0):
        with pytest.raises(cb.BackendUnavailable, match="gone"):
            await opened.open()
        await opened.close()
