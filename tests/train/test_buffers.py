"""Batches in buffers that the caller fills again and again: a step has the numbers of its call, also after a loss."""

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from tests.train.training_lab import Arrays, batches, mlp

import callboard as cb

SETTINGS: Any = {"optimizer": cb.OptimizerKind.AdamW(lr=0.01), "loss": cb.LossKind.CrossEntropy()}


async def refilled(training: cb.DataParallelTrainer, data: list[Arrays], lost: int | None) -> list[cb.StepStats]:
    """Train with one array and one tensor that are filled for each step; at one of them, the host is killed."""
    x, y = (np.empty_like(array) for array in data[0])
    steps = []
    for number, batch in enumerate(data):
        x[:], y[:] = batch
        begun = asyncio.ensure_future(training.step((x, torch.from_numpy(y))))
        await asyncio.sleep(0)
        x[:], y[:] = 9.0, 0
        if number == lost:
            pid = training.devices[0].health().host_pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        steps.append(await begun)
    return steps


async def test_steps_that_a_loss_repeats_have_the_batches_of_their_calls() -> None:
    data = batches(5, 7)
    async with cb.device("cpu", isolation="thread") as device:
        async with cb.DataParallelTrainer(mlp, devices=[device], **SETTINGS) as training:
            calm = [await training.step(batch) for batch in data]
    async with cb.device("cpu", isolation="process") as device:
        settings = {**SETTINGS, "not_finite": "roll_back"}  # all steps are since the first snapshot
        async with cb.DataParallelTrainer(mlp, devices=[device], **settings) as training:
            disturbed = await refilled(training, data, lost=3)
        assert device.health().restarts == 1
    assert [(one.loss, one.grad_norm) for one in disturbed] == [(one.loss, one.grad_norm) for one in calm]
    assert sum(one.repeats for one in disturbed[:3]) == 0
    assert sum(one.repeats for one in disturbed) <= 1  # in the step, or in the next one if it had been done


class Filling(torch.utils.data.IterableDataset[Any]):
    """Gives the same tensors again and again, with other numbers."""

    def __iter__(self) -> Iterator[Any]:
        x, y = torch.empty(7, 6), torch.empty(7, dtype=torch.int64)
        for one, other in batches(5, 7):
            x.copy_(torch.from_numpy(one))
            y.copy_(torch.from_numpy(other))
            yield x, y


async def test_a_loader_that_fills_the_same_tensors_again() -> None:
    async with cb.device("cpu", isolation="thread") as device:
        losses = []
        for data in (lambda: batches(5, 7), torch.utils.data.DataLoader(Filling(), batch_size=None)):
            async with cb.DataParallelTrainer(mlp, devices=[device], **SETTINGS) as training:
                losses.append((await training.fit(data)).losses)
    assert losses[0] == losses[1]
