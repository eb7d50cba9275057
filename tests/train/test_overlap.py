"""Buckets of gradients are added up while the backward pass goes on, with the numbers of those added up after it."""

import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.train.training_lab import batches, dropping, mlp

import callboard as cb
from callboard.backends.cpu.collective.steps import PartPlan
from callboard.train.replicas import buckets

torch = pytest.importorskip("torch")

SGD = cb.OptimizerKind.Sgd(lr=0.05, momentum=0.9)
added = threading.Event()
"""A bucket was added up."""


class Held(torch.autograd.Function):
    """Its backward pass goes on once a bucket was added up."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if not added.wait(100):
            raise TimeoutError("nothing was added up during the backward pass")
        return gradients[0]


class HeldModel(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.second(Held.apply(self.first(x)))


class Repeated(torch.nn.Module):
    """Its layer gets a gradient from each of two nested backward passes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        y = x.requires_grad_()
        for _ in range(2):
            y = torch.utils.checkpoint.checkpoint(self.layer, y, use_reentrant=True)
        return self.last(y)


@pytest.fixture
async def pair(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[cb.Device]]:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    monkeypatch.setattr(buckets, "BUCKET_BYTES", 64)  # nearly each parameter has one of its own
    async with cb.System() as system:
        yield [await system.device(f"cpu:{index}", isolation="thread") for index in range(2)]


def trainer(devices: Any, model: Any, **settings: Any) -> cb.DataParallelTrainer:
    return cb.DataParallelTrainer(
        model, devices=devices, optimizer=SGD, loss=cb.LossKind.CrossEntropy(), snapshot_every=100, **settings
    )


@pytest.mark.timeout(180)
async def test_buckets_are_added_up_before_the_backward_pass_ends(
    pair: list[cb.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = PartPlan.run

    def seen(*arguments: Any) -> None:
        run(*arguments)
        added.set()

    async with trainer(pair, HeldModel) as training:
        added.clear()
        monkeypatch.setattr(PartPlan, "run", seen)
        assert (await training.step(batches(1, 5)[0])).step == 1


async def trained(devices: Any, model: Any, **settings: Any) -> tuple[list[float], dict[str, Any]]:
    async with trainer(devices, model, **settings) as training:
        losses = [(await training.step(batch)).loss for batch in batches(5, 9)]
        return losses, await training.state_dict()


async def test_the_number_of_buckets_changes_no_bit(pair: list[cb.Device], monkeypatch: pytest.MonkeyPatch) -> None:
    model = mlp()
    many = await trained(pair, model, micro_batch_size=2)
    monkeypatch.setattr(buckets, "BUCKET_BYTES", 1 << 20)
    one = await trained(pair, model, micro_batch_size=2)
    assert many[0] == one[0]
    assert all(torch.equal(value, one[1][name]) for name, value in many[1].items())


async def test_fewer_samples_than_replicas_and_running_means(pair: list[cb.Device]) -> None:
    async with trainer(pair, dropping) as training:
        for rows in (4, 9):
            await training.step(batches(1, rows)[0])
    async with trainer(pair, mlp) as training:
        assert (await training.step(batches(1, 1)[0])).step == 1


async def test_a_gradient_that_comes_twice_is_refused(pair: list[cb.Device]) -> None:
    async with trainer(pair, Repeated) as training:
        with pytest.raises(RuntimeError, match="got a gradient twice in one backward pass"):
            await training.step(batches(1, 4)[0])
