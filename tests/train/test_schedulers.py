"""Schedulers of torch: the numbers of a plain loop, also after a loss, in a resumed run and after a roll back."""

import functools
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.train.training_lab import batches, dropping, mlp, mlp64

import callboard as cb
from callboard.train.replicas.rates import Groups
from callboard.train.running import schedule as scheduling
from callboard.train.running.schedule import Schedule
from callboard.train.trainer import Trainer

torch = pytest.importorskip("torch")
schedulers = torch.optim.lr_scheduler

ONE_CYCLE = functools.partial(schedulers.OneCycleLR, max_lr=0.1, total_steps=12)  # changes the momentum, too
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda optimizer: schedulers.LambdaLR(optimizer, [lambda n: 1 / (1 + n), lambda n: 0.9**n]),
    "MultiplicativeLR": lambda optimizer: schedulers.MultiplicativeLR(optimizer, lambda n: 0.9),
    "StepLR": functools.partial(schedulers.StepLR, step_size=3, gamma=0.5),
    "MultiStepLR": functools.partial(schedulers.MultiStepLR, milestones=[2, 5]),
    "ConstantLR": schedulers.ConstantLR,
    "LinearLR": schedulers.LinearLR,
    "ExponentialLR": functools.partial(schedulers.ExponentialLR, gamma=0.97),
    "PolynomialLR": functools.partial(schedulers.PolynomialLR, total_iters=7, power=2.0),
    "CosineAnnealingLR": functools.partial(schedulers.CosineAnnealingLR, T_max=4),
    "CosineAnnealingWarmRestarts": functools.partial(schedulers.CosineAnnealingWarmRestarts, T_0=3, T_mult=2),
    "OneCycleLR": functools.partial(schedulers.OneCycleLR, max_lr=[0.1, 0.2], total_steps=60),
    "CyclicLR": functools.partial(schedulers.CyclicLR, base_lr=0.01, max_lr=0.1, step_size_up=3),
    "SequentialLR": lambda optimizer: schedulers.SequentialLR(
        optimizer,
        [schedulers.LinearLR(optimizer, total_iters=3), schedulers.CosineAnnealingLR(optimizer, 5)],
        milestones=[3],
    ),
    "ChainedScheduler": lambda optimizer: schedulers.ChainedScheduler(
        [schedulers.ConstantLR(optimizer), schedulers.ExponentialLR(optimizer, 0.9)]
    ),
    "SWALR": lambda optimizer: torch.optim.swa_utils.SWALR(optimizer, 0.05, anneal_epochs=4),
}
ARE_NONE = {"LRScheduler", "ReduceLROnPlateau"}  # the base, and what follows evaluations
DATA = batches(12, 8)


def sgd(parameters: list[Any]) -> Any:
    return torch.optim.SGD(_groups(parameters), 0.1, momentum=0.8)


def adam(parameters: list[Any]) -> Any:
    return torch.optim.AdamW(_groups(parameters), 0.05)


def _groups(parameters: list[Any]) -> list[dict[str, Any]]:
    flat = [one for one in parameters if one.ndim < 2]
    return [
        {"params": [one for one in parameters if one.ndim > 1]},
        {"params": flat, "lr": 0.02, "weight_decay": 0.0},
    ]


@pytest.fixture
async def devices(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[cb.Device]]:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    async with cb.System() as system:
        yield [await system.device(f"cpu:{index}", isolation="thread") for index in range(2)]


def data_parallel(devices: list[cb.Device], **settings: Any) -> Trainer:
    return cb.DataParallelTrainer(settings.pop("model", mlp), devices=devices, **settings)


def zero(devices: list[cb.Device], **settings: Any) -> Trainer:
    return data_parallel(devices, shard="zero1", **settings)


def tensor_parallel(devices: list[cb.Device], **settings: Any) -> Trainer:
    plan = {"0": "column", "2": "row"}
    return cb.TensorParallelTrainer(settings.pop("model", mlp), plan=plan, devices=devices, **settings)


def pipeline(devices: list[cb.Device], **settings: Any) -> Trainer:
    return cb.PipelineParallelTrainer(settings.pop("model", mlp), stages=2, devices=devices, **settings)


def opened(kind: Any, devices: list[cb.Device], **settings: Any) -> Any:
    return kind(devices, **{"optimizer": sgd, "loss": cb.LossKind.CrossEntropy(), "schedule": ONE_CYCLE, **settings})


def plain(make: Any, optimizer: Any, model: Any = mlp) -> tuple[list[float], list[float], dict[str, Any]]:
    """Losses, step sizes and weights of the usual loop."""
    torch.manual_seed(0)
    module = model()
    rule = optimizer(list(module.parameters()))
    scheduler = make(rule)
    losses, rates = [], []
    for x, y in DATA:
        rule.zero_grad()
        inputs = torch.as_tensor(x, dtype=next(module.parameters()).dtype)
        loss = torch.nn.functional.cross_entropy(module(inputs), torch.as_tensor(y))
        loss.backward()
        rates.append(rule.param_groups[0]["lr"])
        rule.step()
        scheduler.step()
        losses.append(float(loss.detach()))
    return losses, rates, module.state_dict()


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def numbers(steps: list[cb.StepStats]) -> list[tuple[float, float, float]]:
    return [(one.loss, one.grad_norm, one.lr) for one in steps]


def test_all_of_torch_are_here() -> None:
    assert {*schedulers.__all__} - ARE_NONE <= {*SCHEDULES}


@pytest.mark.few(30)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("optimizer", [sgd, adam])
@pytest.mark.parametrize("name", SCHEDULES)
def test_settings_of_each_update_are_those_of_torch(name: str, optimizer: Any) -> None:
    make, parameters = SCHEDULES[name], list(mlp().parameters())
    rule = optimizer(parameters)
    schedule = Schedule(make, optimizer, "trainer")
    assert schedule.follows
    schedule.begin([Groups.of(rule), Groups()], 0)
    scheduler = make(rule)
    for number in range(60):
        rule.step()
        settings = schedule.rates(number, 1.0).settings
        assert settings is not None
        first, second = settings
        for group, own in zip(rule.param_groups, first, strict=True):
            assert own == {key: group[key] for key in own}
            assert own.get("betas", group.get("betas")) == group.get("betas")
            assert own.get("momentum", group.get("momentum")) == group.get("momentum")
        assert second == []
        scheduler.step()


@pytest.mark.few(3)
@pytest.mark.parametrize("optimizer", [sgd, adam])
@pytest.mark.parametrize("name", ["OneCycleLR", "CyclicLR", "SequentialLR", "LambdaLR"])
async def test_one_device_gives_the_bits_of_torch(devices: list[cb.Device], name: str, optimizer: Any) -> None:
    async with opened(data_parallel, devices[:1], optimizer=optimizer, schedule=SCHEDULES[name]) as training:
        steps = [await training.step(batch) for batch in DATA]
        weights = await training.state_dict()
    losses, rates, expected = plain(SCHEDULES[name], optimizer)
    assert [one.loss for one in steps] == losses
    assert [one.lr for one in steps] == rates
    assert same(weights, expected)


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", [data_parallel, zero, tensor_parallel, pipeline])
async def test_each_trainer_with_several_devices(devices: list[cb.Device], kind: Any) -> None:
    async with opened(kind, devices, model=mlp64) as training:
        steps = [await training.step(batch) for batch in DATA]
        weights = await training.state_dict()
    losses, rates, expected = plain(ONE_CYCLE, sgd, mlp64)
    assert [one.lr for one in steps] == rates
    assert np.allclose([one.loss for one in steps], losses, rtol=0, atol=1e-12)
    assert all(np.allclose(weights[name], value, rtol=0, atol=1e-12) for name, value in expected.items())


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", [data_parallel, zero, tensor_parallel, pipeline])
async def test_a_resumed_run_has_the_same_numbers(devices: list[cb.Device], kind: Any, tmp_path: Path) -> None:
    async with opened(kind, devices) as training:
        whole = [await training.step(batch) for batch in DATA]
        expected = await training.state_dict()
    async with opened(kind, devices) as training:
        first = [await training.step(batch) for batch in DATA[:7]]
        await training.save(tmp_path)
    async with opened(kind, devices) as training:
        for batch in DATA[:3]:
            await training.step(batch)
        await training.resume(tmp_path)
        rest = [await training.step(batch) for batch in DATA[7:]]
        found = await training.state_dict()
    assert numbers(first + rest) == numbers(whole)
    assert same(found, expected)


async def test_a_pipeline_goes_on_with_another_number_of_stages(devices: list[cb.Device], tmp_path: Path) -> None:
    settings: Any = {"optimizer": cb.OptimizerKind.Sgd(lr=0.1, momentum=0.8)}
    async with opened(pipeline, devices, **settings) as training:
        whole = [await training.step(batch) for batch in DATA[:7]]
        await training.save(tmp_path)
        whole += [await training.step(batch) for batch in DATA[7:]]
    async with opened(data_parallel, devices[:1], **settings) as training:
        rates = [(await training.step(batch)).lr for batch in DATA]
    single: Any = {"optimizer": settings["optimizer"], "loss": cb.LossKind.CrossEntropy(), "schedule": ONE_CYCLE}
    async with cb.PipelineParallelTrainer(mlp, stages=1, micro_batch_size=1, devices=devices[:1], **single) as training:
        await training.resume(tmp_path)
        rest = [await training.step(batch) for batch in DATA[7:]]
    assert [one.lr for one in whole] == rates
    assert [one.lr for one in rest] == rates[7:]
    assert np.allclose([one.loss for one in rest], [one.loss for one in whole[7:]], atol=1e-5)


def by_size(parameters: list[Any]) -> Any:
    """A step size for each layer, by its outputs."""
    layers = [parameters[at : at + 2] for at in range(0, len(parameters), 2)]
    return torch.optim.SGD([{"params": layer, "lr": 0.002 * len(layer[0])} for layer in layers], momentum=0.8)


async def test_stages_whose_optimizers_differ_and_one_without_weights(devices: list[cb.Device]) -> None:
    settings: Any = {"optimizer": by_size, "loss": cb.LossKind.CrossEntropy(), "schedule": SCHEDULES["StepLR"]}
    async with cb.PipelineParallelTrainer(mlp64, split=["1", "2"], devices=devices, **settings) as training:
        steps = [await training.step(batch) for batch in DATA]
        weights = await training.state_dict()
    _, rates, expected = plain(SCHEDULES["StepLR"], by_size, mlp64)
    assert [one.lr for one in steps] == rates
    assert all(np.allclose(weights[name], value, rtol=0, atol=1e-12) for name, value in expected.items())


async def losing(kind: Any, devices: list[cb.Device], kills: dict[int, list[int]]) -> tuple[Any, Any, int]:
    """Train, with SIGKILL for hosts of devices before some steps."""
    steps = []
    async with opened(kind, devices, model=dropping if kind in (data_parallel, zero) else mlp) as training:
        for number, batch in enumerate(DATA):
            for rank in kills.get(number, []):
                pid = devices[rank].health().host_pid
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
            steps.append(await training.step(batch))
        return numbers(steps), await training.state_dict(), sum(device.generation for device in devices)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "kind, count",
    [
        (data_parallel, 1),
        *(pytest.param(one, 2, marks=pytest.mark.slow) for one in (data_parallel, zero, tensor_parallel, pipeline)),
    ],
)
async def test_killed_hosts_repeat_steps_with_their_sizes(
    monkeypatch: pytest.MonkeyPatch, kind: Any, count: int
) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    async with cb.System() as system:
        hosts = [await system.device(f"cpu:{rank}", isolation="process", standby=None) for rank in range(count)]
        calm, expected, before = await losing(kind, hosts, {})
        disturbed, found, after = await losing(kind, hosts, {5: [*range(count)], 9: [*range(1, count)]})
    assert after > before  # generations
    assert disturbed == calm
    assert same(found, expected)


async def test_skipped_updates_do_not_count(devices: list[cb.Device]) -> None:
    x, y = DATA[0]
    rates = plain(ONE_CYCLE, sgd)[1]
    async with opened(data_parallel, devices) as training:
        steps = [await training.step(one) for one in (DATA[0], (x * np.inf, y), DATA[1])]
    assert [one.skipped for one in steps] == [False, True, False]
    assert [one.lr for one in steps] == [rates[0], rates[1], rates[1]]


@pytest.mark.parametrize("kind", [data_parallel, pipeline])
@pytest.mark.parametrize("window", [scheduling.WINDOW, 2])
async def test_a_roll_back_goes_back_in_the_schedule(
    devices: list[cb.Device], kind: Any, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "WINDOW", window)
    x, y = DATA[0]
    rates = plain(ONE_CYCLE, sgd)[1]
    async with opened(kind, devices, not_finite="roll_back", snapshot_every=4) as training:
        steps = [await training.step(batch) for batch in DATA[:7]]
        undone = (await training.step((x * np.inf, y))).undone
        steps += [await training.step(batch) for batch in DATA[4:]]
    assert undone == 3
    assert [one.lr for one in steps] == rates[:7] + rates[4:]


async def test_beside_the_factor_of_evaluations(devices: list[cb.Device]) -> None:
    x, y = (np.concatenate(arrays) for arrays in zip(*DATA[:3], strict=True))
    both = cb.ReduceLROnPlateau(factor=0.5, patience=1, schedule=SCHEDULES["StepLR"])
    async with opened(data_parallel, devices[:1], schedule=both) as training:
        found = await training.fit(
            (x, y), batch_size=8, epochs=3, validate=(x, y), monitor=lambda _: 0.0
        )  # the first evaluation stays the best
    assert [one.lr for one in found.steps] == [0.1] * 3 + [0.05] * 3 + [0.0125] * 3


async def test_more_updates_than_the_scheduler_has(devices: list[cb.Device]) -> None:
    few = functools.partial(schedulers.OneCycleLR, max_lr=0.1, total_steps=3)
    async with opened(data_parallel, devices[:1], schedule=few) as training:
        for batch in DATA[:4]:  # torch takes one more
            await training.step(batch)
        before = await training.state_dict()
        with pytest.raises(ValueError, match="number of total steps is 3") as caught:
            await training.step(DATA[4])
        assert training.steps == 4
        assert same(await training.state_dict(), before)
    assert "OneCycleLR" in caught.value.__notes__[0]
    assert "asked for update 4" in caught.value.__notes__[0]


async def test_a_run_that_the_scheduler_does_not_reach_does_not_begin(devices: list[cb.Device]) -> None:
    x, y = (np.concatenate(arrays) for arrays in zip(*DATA, strict=True))
    few = functools.partial(schedulers.OneCycleLR, max_lr=0.1, total_steps=6)
    async with opened(data_parallel, devices[:1], schedule=few) as training:
        first = await training.fit((x[:24], y[:24]), batch_size=8)
        with pytest.raises(ValueError, match="number of total steps is 6") as caught:
            await training.fit((x, y), batch_size=8, epochs=2)
        assert training.steps == 3
        rest = await training.fit((x, y), batch_size=8, epochs=2, steps=7)
    assert [one.step for one in first.steps + rest.steps] == [1, 2, 3, 4, 5, 6, 7]
    assert caught.value.__notes__[0].endswith("asked for update 7 of the 15 of this run")


async def test_a_checkpoint_of_more_updates_than_the_scheduler_has(devices: list[cb.Device], tmp_path: Path) -> None:
    async with opened(data_parallel, devices[:1]) as training:
        for batch in DATA[:6]:
            await training.step(batch)
        await training.save(tmp_path)
    few = functools.partial(schedulers.OneCycleLR, max_lr=0.1, total_steps=3)
    async with opened(data_parallel, devices[:1], schedule=few) as training:
        steps = [await training.step(batch) for batch in DATA[:2]]
    async with opened(data_parallel, devices[:1], schedule=few) as training:
        first = await training.step(DATA[0])
        with pytest.raises(RuntimeError, match=r"optimizer or schedule: ValueError: .* number of total steps is 3"):
            await training.resume(tmp_path)
        assert training.steps == 1
        second = await training.step(DATA[1])
    assert numbers([first, second]) == numbers(steps)


async def test_groups_that_only_the_optimizer_in_the_hosts_has(devices: list[cb.Device]) -> None:
    def each(parameters: list[Any]) -> Any:
        return torch.optim.SGD([{"params": [one]} for one in parameters], 0.1)

    four = functools.partial(schedulers.CyclicLR, base_lr=0.01, max_lr=[0.1, 0.2, 0.3, 0.4], cycle_momentum=False)
    five = functools.partial(four, max_lr=[0.1] * 5)
    async with opened(data_parallel, devices[:1], optimizer=each, schedule=four) as training:
        assert (await training.step(DATA[0])).lr == 0.01
    with pytest.raises(ValueError, match="has 5 values, param_groups has 4") as caught:
        async with opened(data_parallel, devices[:1], optimizer=each, schedule=five):
            pass
    assert "schedule is functools.partial(<class" in caught.value.__notes__[0]


RULE = torch.optim.SGD([torch.zeros(1)], 0.1)
WRONG: list[tuple[Any, str]] = [
    (schedulers.StepLR(RULE, 3), "StepLR object at .*; pass a function of the number of updates.* or one that makes"),
    (0.5, "schedule is 0.5; pass a function of the number of updates"),
    (
        schedulers.StepLR,
        "no scheduler of torch for the optimizer .*missing 1 required positional argument: 'step_size'",
    ),
    (lambda optimizer: schedulers.OneCycleLR(optimizer, 0.1), "You must define either total_steps"),
    (lambda optimizer: schedulers.StepLR(RULE, 3), "a scheduler of another optimizer; make it for the one"),
    (
        schedulers.ReduceLROnPlateau,
        r"a ReduceLROnPlateau of torch; pass cb.ReduceLROnPlateau\(factor=0.1, patience=11\)",
    ),
    (lambda updates: None, "which gives None; pass a function of the number of updates"),
    (lambda updates: missing, "gives no factor for 0 updates .*'missing' is not defined"),  # type: ignore[name-defined]  # noqa: F821
    (functools.partial(schedulers.CyclicLR, base_lr=0.01, max_lr=0.1), "cycle_momentum"),
]


@pytest.mark.few(9)
@pytest.mark.parametrize("schedule, message", WRONG)
def test_what_is_refused_when_a_trainer_is_made(schedule: Any, message: str) -> None:
    def without(parameters: list[Any]) -> Any:
        return torch.optim.Adagrad(parameters)

    with pytest.raises(TypeError, match=message) as caught:
        opened(data_parallel, ["cpu"], schedule=schedule, optimizer=without)  # type: ignore[list-item]
    assert str(caught.value).startswith("DataParallelTrainer: schedule is ")


async def test_a_step_size_that_cannot_be(devices: list[cb.Device]) -> None:
    falling = functools.partial(schedulers.LambdaLR, lr_lambda=lambda updates: 1.0 - updates)
    async with opened(data_parallel, devices[:1], schedule=falling) as training:
        await training.step(DATA[0])
        await training.step(DATA[1])
        with pytest.raises(ValueError, match=r"schedule gave the step size -0.1 for update 2, group 0"):
            await training.step(DATA[2])
        assert training.steps == 2
