"""Losses whose mean is not over the samples: ignored targets and weights of classes, in parts of any size."""

import copy
import functools
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from tests.train.training_lab import batches, mlp64, plain

import callboard as cb
from callboard.train.kinds import loss_of, weight_of

torch = pytest.importorskip("torch")
nn = torch.nn

SGD = cb.OptimizerKind.Sgd(lr=0.1, momentum=0.9)
WEIGHTS = torch.tensor([1.0, 5.0, 0.2], dtype=torch.float64)
LOSSES: dict[str, Any] = {
    "kind": cb.LossKind.CrossEntropy(label_smoothing=0.1),
    "module": nn.CrossEntropyLoss(ignore_index=-100),
    "weights": nn.CrossEntropyLoss(weight=WEIGHTS),
    "both": nn.CrossEntropyLoss(weight=WEIGHTS, ignore_index=2),
    "function": nn.functional.cross_entropy,
    "partial": functools.partial(nn.functional.cross_entropy, ignore_index=1),
}


IGNORED = {"both": 2, "partial": 1}


def some_ignored() -> Any:
    """The second half of the first batch has no targets, and single ones are missing in the others."""
    data = [(x, y.copy()) for x, y in batches(5, 8, "f8")]
    data[0][1][4:] = -100
    for number, (_, y) in enumerate(data):
        y[number] = -100
    return data


DATA = some_ignored()


@pytest.fixture
async def devices(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[cb.Device]]:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    async with cb.System() as system:
        yield [await system.device(f"cpu:{index}", isolation="thread") for index in range(2)]


def data_parallel(devices: list[cb.Device], **settings: Any) -> Any:
    return cb.DataParallelTrainer(devices=devices, **settings)


def zero(devices: list[cb.Device], **settings: Any) -> Any:
    return data_parallel(devices, shard="zero1", **settings)


def tensor_parallel(devices: list[cb.Device], **settings: Any) -> Any:
    return cb.TensorParallelTrainer(plan={"0": "column", "2": "row"}, devices=devices, **settings)


def vocabulary(devices: list[cb.Device], **settings: Any) -> Any:
    return cb.TensorParallelTrainer(plan={"2": "vocabulary"}, devices=devices, **settings)


def pipeline(devices: list[cb.Device], **settings: Any) -> Any:
    return cb.PipelineParallelTrainer(stages=2, devices=devices, **settings)


def zero_bubble(devices: list[cb.Device], **settings: Any) -> Any:
    return pipeline(devices, pipeline_schedule="zero-bubble", **settings)


KINDS = [
    (data_parallel, "both"),
    (pipeline, "both"),
    (vocabulary, "kind"),
    *((data_parallel, loss) for loss in LOSSES if loss != "both"),
    *((kind, loss) for kind in (zero, tensor_parallel, zero_bubble) for loss in ("kind", "both")),
]


@pytest.mark.few(6)
@pytest.mark.parametrize("kind, loss", KINDS)
async def test_the_numbers_are_those_of_whole_batches(devices: list[cb.Device], kind: Any, loss: str) -> None:
    torch.manual_seed(0)
    model = mlp64()
    data = [(x, np.where(y == -100, IGNORED.get(loss, -100), y)) for x, y in DATA]
    losses, expected = plain(copy.deepcopy(model), data, SGD, LOSSES[loss])
    last = copy.deepcopy(model)
    last.load_state_dict(expected)
    x, y = (torch.as_tensor(np.concatenate(arrays)) for arrays in zip(*data, strict=True))
    with torch.no_grad():
        of_all = float(loss_of(LOSSES[loss])(last(x), y))
    async with kind(devices, model=model, optimizer=SGD, loss=LOSSES[loss], micro_batch_size=2) as training:
        steps = [await training.step(batch) for batch in data]
        found = await training.state_dict()
        evaluation = await training.evaluate((x, y), batch_size=7)
    assert np.allclose([one.loss for one in steps], losses, rtol=0, atol=1e-12)
    assert all(np.allclose(found[name], value, rtol=0, atol=1e-12) for name, value in expected.items())
    assert abs(evaluation.loss - of_all) < 1e-12


def own_loss(outputs: Any, targets: Any) -> Any:
    """A loss that the trainers do not know, whose mean is over the targets that count."""
    return nn.functional.cross_entropy(outputs, targets, ignore_index=-100)


class GivingLoss(nn.Module):
    """A model that gives this loss."""

    def __init__(self) -> None:
        super().__init__()
        self.model = mlp64()

    def forward(self, x: Any, y: Any) -> Any:
        return own_loss(self.model(x), y)


def counting(batch: Any) -> Any:
    return (batch[1] != -100).sum()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "kind, made, loss",
    [
        *((kind, mlp64, own_loss) for kind in (data_parallel, zero, tensor_parallel, pipeline)),
        (data_parallel, GivingLoss, None),
    ],
)
async def test_a_loss_with_a_divisor_of_its_own(devices: list[cb.Device], kind: Any, made: Any, loss: Any) -> None:
    torch.manual_seed(0)
    model = made()
    inner = model.model if loss is None else model
    losses, expected = plain(copy.deepcopy(inner), DATA, SGD, own_loss)
    settings: Any = {"model": model, "optimizer": SGD, "loss": loss, "micro_batch_size": 3, "divisor": counting}
    async with kind(devices, **settings) as training:
        steps = [await training.step(batch) for batch in DATA]
        found = await training.state_dict()
        evaluation = await training.evaluate(DATA[0], batch_size=3)
    prefix = "model." if loss is None else ""
    assert np.allclose([one.loss for one in steps], losses, rtol=0, atol=1e-12)
    assert all(np.allclose(found[prefix + name], value, rtol=0, atol=1e-12) for name, value in expected.items())
    inner.load_state_dict(expected)
    x, y = map(torch.as_tensor, DATA[0])
    assert abs(evaluation.loss - float(own_loss(inner(x), y).detach())) < 1e-12


async def test_divisors_that_cannot_be(devices: list[cb.Device]) -> None:
    settings: Any = {"model": mlp64, "optimizer": SGD, "loss": own_loss}
    with pytest.raises(TypeError, match="divisor is 3; pass a function of a batch"):
        data_parallel(devices, divisor=3, **settings)
    for kind in (data_parallel, pipeline):
        async with kind(devices, divisor=lambda batch: float(batch[0][:, 0].sum()), **settings) as training:
            x, y = DATA[1]
            before = await training.state_dict()
            with pytest.raises(ValueError, match=r"divisor gave -\d+.0 for \d samples"):
                await training.step((np.full_like(x, -1.0), y))
            after = await training.state_dict()
            assert all(torch.equal(after[name], value) for name, value in before.items())
            assert (await training.step((np.ones_like(x), y))).step == 1


@pytest.mark.parametrize("kind", [data_parallel, pipeline])
async def test_a_batch_without_targets_has_a_gradient_of_zero_as_in_torch(devices: list[cb.Device], kind: Any) -> None:
    x, y = DATA[0]
    async with kind(devices, model=mlp64, optimizer=SGD, loss=cb.LossKind.CrossEntropy(), micro_batch_size=2) as made:
        before = await made.state_dict()
        stats = await made.step((x, np.full_like(y, -100)))
        after = await made.state_dict()
    assert stats.grad_norm == 0
    assert np.isnan(stats.loss)
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_what_is_counted() -> None:
    x, y = np.zeros((4, 2)), np.array([[0, -100], [1, 2], [2, 2], [-100, -100]])
    assert weight_of(cb.LossKind.CrossEntropy(), (x, y), 4) == 5
    assert weight_of(nn.CrossEntropyLoss(weight=WEIGHTS), (x, y), 4) == pytest.approx(1 + 5 + 3 * 0.2)
    assert weight_of(nn.NLLLoss(ignore_index=2), (x, y.clip(0)), 4) == 5
    assert weight_of(cb.LossKind.CrossEntropy(), (x, np.zeros((4, 3))), 4) == 4  # probabilities
    assert weight_of(cb.LossKind.Mse(), (x, y), 4) == 4
    assert weight_of(lambda outputs, targets: outputs.mean(), (x, y), 4) == 4
    assert weight_of(None, x, 4) == 4
    assert weight_of(nn.CrossEntropyLoss(weight=WEIGHTS), (x, y + 200), 4) == 4  # refused by the loss


class Learned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, outputs: Any, targets: Any) -> Any:
        return nn.functional.cross_entropy(outputs * self.scale, targets)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "loss, message",
    [
        (nn.MSELoss(reduction="sum"), r"loss is MSELoss\(\) with reduction='sum'; a step needs the mean"),
        (functools.partial(nn.functional.mse_loss, reduction="sum"), "with reduction='sum'"),
        (Learned(), r"whose parameter 'scale' would not be trained; .*loss=None"),
    ],
)
def test_losses_that_are_refused(loss: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cb.DataParallelTrainer(mlp64, optimizer=SGD, loss=loss)


async def test_a_module_stays_as_it_was_given(devices: list[cb.Device]) -> None:
    loss = nn.CrossEntropyLoss(weight=WEIGHTS.clone())
    for kind in (data_parallel, pipeline, tensor_parallel):
        async with kind(devices, model=mlp64, optimizer=SGD, loss=loss) as training:
            await training.step((DATA[1][0], DATA[1][1].clip(0)))
    assert torch.equal(loss.weight, WEIGHTS)
    moved: Any = loss_of(loss, "meta")
    assert moved.weight.device.type == "meta"
    assert loss.weight.device.type == "cpu"


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", [data_parallel, zero, tensor_parallel, pipeline])
async def test_a_divisor_that_does_not_add_up_is_refused_at_the_first_step(devices: list[cb.Device], kind: Any) -> None:
    settings: Any = {"model": mlp64, "optimizer": SGD, "loss": own_loss, "micro_batch_size": 3}
    x, y = DATA[0]
    async with kind(devices, divisor=lambda batch: (batch[1] != -100).mean(), **settings) as training:
        before = await training.state_dict()
        says = "divisor gave 1 for a batch of 8 samples, and [34] in all for its parts of 3, |4, .* not a mean"
        with pytest.raises(ValueError, match=says):
            await training.step((x[:8], np.maximum(y[:8], 0)))
        after = await training.state_dict()
        assert all(torch.equal(after[name], value) for name, value in before.items())
    async with kind(devices, divisor=lambda batch: (batch[1] != -100).mean(), **settings) as training:
        assert (
            await training.step((x[:1], np.maximum(y[:1], 0)))
        ).step == 1  # there is one part, which any divisor fits
        with pytest.raises(ValueError, match="it must add up"):
            await training.step((x[:8], np.maximum(y[:8], 0)))
