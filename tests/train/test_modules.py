"""What user's modules do beside computing: parts in evaluation mode, and buffers that ``forward`` replaces."""

import copy
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from tests.train.training_lab import batches, plain

import callboard as cb
from callboard.train.trainer import Trainer

torch = pytest.importorskip("torch")
nn = torch.nn

SGD = cb.OptimizerKind.Sgd(lr=0.1, momentum=0.9)
DATA = batches(5, 8, "f8")


@pytest.fixture
async def devices(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[cb.Device]]:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    async with cb.System() as system:
        yield [await system.device(f"cpu:{index}", isolation="thread") for index in range(2)]


def data_parallel(devices: list[cb.Device], model: Any, **settings: Any) -> Trainer:
    return cb.DataParallelTrainer(model, devices=devices, **settings)


def tensor_parallel(devices: list[cb.Device], model: Any, **settings: Any) -> Trainer:
    return cb.TensorParallelTrainer(model, plan={"head": "gathered"}, devices=devices, **settings)


def pipeline(devices: list[cb.Device], model: Any, **settings: Any) -> Trainer:
    return cb.PipelineParallelTrainer(model, stages=2, micro_batch_size=3, devices=devices, **settings)


def opened(kind: Any, devices: list[cb.Device], model: Any, **settings: Any) -> Any:
    return kind(devices, model, **{"optimizer": SGD, "loss": cb.LossKind.CrossEntropy(), **settings})


class Tuned(nn.Module):
    """A backbone that stays as it is, with fixed means, and a head that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
        self.norm, self.head = nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.norm.eval()
        self.backbone.requires_grad_(False).eval()

    def forward(self, x: Any) -> Any:
        return self.head(torch.tanh(self.norm(self.backbone(x))))


def in_a_row() -> nn.Module:
    fixed = nn.BatchNorm1d(8)
    model = nn.Sequential(nn.Linear(6, 8), fixed, nn.Linear(8, 3))
    fixed.eval()
    return model


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "kind, make", [(data_parallel, Tuned), (tensor_parallel, Tuned), (pipeline, Tuned), (pipeline, in_a_row)]
)
async def test_parts_in_evaluation_mode_stay_so(devices: list[cb.Device], kind: Any, make: Any) -> None:
    torch.manual_seed(0)
    model = make().double()
    losses, expected = plain(copy.deepcopy(model), DATA, SGD)
    async with opened(kind, devices, model) as training:
        steps = [await training.step(batch) for batch in DATA[:3]]
        await training.evaluate(DATA[0])
        steps += [await training.step(batch) for batch in DATA[3:]]
        found = await training.state_dict()
    assert np.allclose([one.loss for one in steps], losses, rtol=0, atol=1e-12)
    assert all(np.allclose(found[name], value, rtol=0, atol=1e-12) for name, value in expected.items())


async def test_a_module_in_evaluation_mode_is_trained_as_a_whole(devices: list[cb.Device]) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).double()
    _, expected = plain(copy.deepcopy(model), DATA, SGD)
    async with opened(data_parallel, devices[:1], model.eval()) as training:
        for batch in DATA:
            await training.step(batch)
        found = await training.state_dict()
    assert found["1.num_batches_tracked"] == len(DATA)
    assert all(np.allclose(found[name], value, rtol=0, atol=1e-12) for name, value in expected.items())


class Centred(nn.Module):
    """Subtracts a running mean, which it replaces or changes in place."""

    def __init__(self, replaces: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))
        self.replaces = replaces

    def forward(self, x: Any) -> Any:
        if self.training:
            mean = 0.9 * self.mean + 0.1 * x.mean(0)
            if self.replaces:
                self.mean = mean
            else:
                self.mean.copy_(mean)
        return self.layer(x - self.mean)


def stages(replaces: bool) -> list[Any]:
    return [lambda: Centred(replaces), lambda: nn.Linear(3, 3)]


@pytest.mark.parametrize("kind", [data_parallel, pipeline])
async def test_buffers_that_forward_replaces(devices: list[cb.Device], kind: Any) -> None:
    x, y = DATA[0]
    found = []
    for replaces in (True, False):
        if kind is pipeline:
            models: Any = stages(replaces)
            made: Any = cb.PipelineParallelTrainer(
                models, devices=devices, optimizer=SGD, loss=cb.LossKind.CrossEntropy(), micro_batch_size=3
            )
        else:
            made = opened(kind, devices, lambda replaces=replaces: Centred(replaces))
        async with made as training:
            steps = [await training.step(batch) for batch in DATA[:2]]
            steps.append(await training.step((x * np.inf, y)))  # skipped
            evaluation = await training.evaluate(DATA[0])
            steps += [await training.step(batch) for batch in DATA[2:]]
            weights = await training.state_dict()
        found.append(([(one.skipped, one.grad_norm) for one in steps], evaluation.loss, weights))
    (first, loss, weights), (second, other, expected) = found
    assert np.array_equal(first, second, equal_nan=True)
    assert loss == other
    assert all(torch.equal(weights[name], value) for name, value in expected.items())
    mean = next(value for name, value in weights.items() if name.endswith("mean"))
    assert bool(mean.isfinite().all() and mean.any())


class Growing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros(0))

    def forward(self, x: Any) -> Any:
        self.seen = torch.cat([self.seen, x.detach().sum()[None]])
        return self.layer(x)


async def test_a_buffer_keeps_its_shape(devices: list[cb.Device]) -> None:
    async with opened(data_parallel, devices[:1], Growing) as training:
        with pytest.raises(TypeError, match=r"the buffer 'seen' of Growing became a tensor of shape \[1\]"):
            await training.step(DATA[0])


class First(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)

    def forward(self, x: Any) -> dict[str, Any]:
        return {"h": torch.tanh(self.first(x))}


class Heads(nn.Module):
    """The batch says which head computes; one is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(8, 3) for _ in range(3))

    def forward(self, h: Any, which: Any) -> Any:
        return self.heads[int(which[0])](h) if len(which) else h.new_zeros(0, 3)


class InTurns(First):
    def __init__(self) -> None:
        super().__init__()
        self.rest = Heads()

    def forward(self, x: Any, which: Any) -> Any:
        return self.rest(super().forward(x)["h"], which)


def turns() -> Any:
    return [({"x": x, "which": np.full(len(x), number % 2)}, y) for number, (x, y) in enumerate(DATA)]


def staged(devices: list[cb.Device], model: Any, **settings: Any) -> Trainer:
    first, rest = First().double(), copy.deepcopy(model.rest)
    first.first.load_state_dict(model.first.state_dict())
    return cb.PipelineParallelTrainer([first, rest], micro_batch_size=3, devices=devices, **settings)


def staged_zero_bubble(devices: list[cb.Device], model: Any, **settings: Any) -> Trainer:
    return staged(devices, model, pipeline_schedule="zero-bubble", **settings)


def zero(devices: list[cb.Device], model: Any, **settings: Any) -> Trainer:
    return cb.DataParallelTrainer(model, devices=devices, shard="zero1", **settings)


def tensor(devices: list[cb.Device], model: Any, **settings: Any) -> Trainer:
    plan = {"first": "gathered", "rest.heads.1": "gathered"}
    return cb.TensorParallelTrainer(model, plan=plan, devices=devices, **settings)


@pytest.mark.few(5)
@pytest.mark.parametrize("kind", [data_parallel, zero, tensor, staged, staged_zero_bubble])
async def test_weights_that_a_step_does_not_use_stay_as_in_torch(
    devices: list[cb.Device], kind: Any, tmp_path: Any
) -> None:
    torch.manual_seed(0)
    model, data = InTurns().double(), turns()
    module = copy.deepcopy(model)
    rule = torch.optim.AdamW(module.parameters(), 0.01, weight_decay=0.5)
    for inputs, y in data:
        rule.zero_grad()
        named = {name: torch.as_tensor(one) for name, one in inputs.items()}
        nn.functional.cross_entropy(module(**named), torch.as_tensor(y)).backward()
        rule.step()
    settings: Any = {"optimizer": cb.OptimizerKind.AdamW(lr=0.01, weight_decay=0.5)}
    async with opened(kind, devices, model, **settings) as training:
        await training.step(data[0])  # the second head has no state of the optimizer yet
        await training.save(tmp_path)
    async with opened(kind, devices, model, **settings) as training:
        await training.resume(tmp_path)
        for batch in data[1:]:
            await training.step(batch)
        found = list((await training.state_dict()).values())
    expected = list(module.state_dict().values())
    assert all(np.allclose(one, other, rtol=0, atol=1e-12) for one, other in zip(found, expected, strict=True))
    assert torch.equal(found[-1], model.rest.heads[2].bias)


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", [data_parallel, pipeline])
@pytest.mark.parametrize(
    "settings, message",
    [
        ({"optimizer": torch.optim.LBFGS}, "optimizer gave LBFGS, whose step computes the loss again by a closure"),
        ({"model": lambda: nn.Sequential(nn.LazyLinear(8), nn.LazyLinear(3))}, "the lazy layer '0' has no weights yet"),
    ],
)
async def test_what_is_refused_when_a_trainer_is_opened(
    devices: list[cb.Device], kind: Any, settings: dict[str, Any], message: str
) -> None:
    given = {"model": in_a_row, **settings}
    with pytest.raises(TypeError, match=message):
        async with opened(kind, devices, **given):
            pass


async def test_a_device_without_samples_uses_what_the_other_one_does(devices: list[cb.Device]) -> None:
    torch.manual_seed(0)
    model, data = InTurns().double(), turns()
    few = [({name: one[:1] for name, one in inputs.items()}, y[:1]) for inputs, y in data[:3]]
    found = []
    for count in (1, 2):
        async with opened(data_parallel, devices[:count], model) as training:
            for batch in [*few, *data[3:]]:
                await training.step(batch)
            found.append(await training.state_dict())
    assert all(np.allclose(value, found[1][name], rtol=0, atol=1e-12) for name, value in found[0].items())
