"""Trainers on GPUs, in processes of their own: arrays of torch between them, and devices killed in the middle."""

import asyncio
import logging
import os
import signal
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
import pytest
from tests.train.training_lab import batches, plain

import callboard as cb
from callboard.core import registry

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]

CROSS = cb.LossKind.CrossEntropy()
ADAM = cb.OptimizerKind.AdamW(lr=0.01)

KINDS = "data", "zero", "tensor", "pipeline"


def trainer(kind: str, model: Any, devices: list[cb.Device], **settings: Any) -> Any:
    given: dict[str, Any] = {"loss": CROSS, "optimizer": ADAM, "devices": devices, **settings}
    if kind == "pipeline":
        return cb.PipelineParallelTrainer(model, stages=2, micro_batch_size=3, **given)
    if kind == "tensor":
        return cb.TensorParallelTrainer(model, plan={"2": "column", "4": "row"}, **given)
    return cb.DataParallelTrainer(model, shard="zero1" if kind == "zero" else None, **given)


def layers(second: nn.Module, last: nn.Module) -> nn.Module:
    """Weights of more elements than travel in a message."""
    torch.manual_seed(0)
    parts = nn.Linear(6, 64), second, nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), last
    return nn.Sequential(*parts, nn.Linear(64, 3))


def gpus() -> int:
    return len(registry.backend("cuda").devices())


async def pair(stack: AsyncExitStack, standby: Any) -> list[cb.Device]:
    """Two devices in processes of their own; both on one GPU, where there is one."""
    return [
        await stack.enter_async_context(
            cb.device(f"cuda:{min(rank, gpus() - 1)}", isolation="process", standby=standby, max_restarts=None)
        )
        for rank in range(2)
    ]


async def test_arrays_of_torch_go_to_another_process() -> None:
    class Giving(cb.ResidentActor):
        def setup(self, ctx: cb.HostContext) -> None:
            self.ctx = ctx

        def give(self) -> Any:
            return self.ctx.ref(torch.arange(5000, dtype=torch.float32, device=self.ctx.torch_device)[1000:])

    async with AsyncExitStack() as stack:
        one, other = await pair(stack, None)
        given = await one.actor_of(cb.Props(Giving)).call(Giving.give)
        there = given.to(other)
        np.testing.assert_array_equal(await there.get(), np.arange(1000, 5000, dtype="f4"))
        np.testing.assert_array_equal(await (there * 2.0).get(), np.arange(2000, 10000, 2, dtype="f4"))


def enough_for(kind: str) -> None:
    if kind != "pipeline" and gpus() < 2:
        pytest.skip("NCCL needs a GPU for each rank, and there is one")


@pytest.mark.parametrize("kind", KINDS)
async def test_the_numbers_of_one_process(kind: str) -> None:
    enough_for(kind)
    data = batches(5, 12)
    async with AsyncExitStack() as stack:
        model = layers(nn.LayerNorm(64), nn.Identity())
        training = await stack.enter_async_context(trainer(kind, model, await pair(stack, None)))
        losses = [(await training.step(batch)).loss for batch in data]
    np.testing.assert_allclose(losses, plain(layers(nn.LayerNorm(64), nn.Identity()), data, ADAM)[0], rtol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_lost_device_changes_no_number(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    enough_for(kind)
    data = batches(8, 12)
    found = []
    for kills in ({}, {2: [1], 5: [0]}):
        async with AsyncExitStack() as stack:
            devices = await pair(stack, "hot")
            model = layers(nn.BatchNorm1d(64), nn.Dropout(0.1))
            training = await stack.enter_async_context(trainer(kind, model, devices, snapshot_every=3))
            steps = []
            for number, batch in enumerate(data):
                ranks = kills.get(number, [])
                for rank in ranks:
                    await devices[rank].standby_ready()
                step = asyncio.ensure_future(training.step(batch))
                await asyncio.sleep(0)
                for rank in ranks:
                    victim = devices[rank].health().host_pid
                    assert victim is not None
                    os.kill(victim, signal.SIGKILL)
                steps.append(await step)
            assert [device.health().ordinal > 1 for device in devices] == [bool(kills)] * 2
            found.append(([(one.loss, one.grad_norm) for one in steps], await training.state_dict()))
    (calm, expected), (disturbed, weights) = found
    assert disturbed == calm
    assert all(torch.equal(weights[name], value) for name, value in expected.items())
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING and "warm_up" in one.getMessage()]
