"""``ReduceLROnPlateau``: step sizes by the evaluations of a run, the same ones after a loss and in a resumed run."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.train.training_lab import mlp

import callboard as cb
from callboard.train.trainer import Trainer

torch = pytest.importorskip("torch")

X = np.random.default_rng(0).standard_normal((27, 6)).astype("f4")
Y = np.random.default_rng(1).integers(0, 3, 27)
HALF = cb.ReduceLROnPlateau(factor=0.5, patience=2, least=0.25)
RUN: Any = {"batch_size": 9, "validate": (X, Y), "monitor": lambda found: 0.0}  # the first evaluation stays the best
LRS = [0.1] * 9 + [0.05] * 6 + [0.025] * 9


def data_parallel(device: cb.Device, **settings: Any) -> Trainer:
    return cb.DataParallelTrainer(mlp, devices=[device], **settings)


def tensor_parallel(device: cb.Device, **settings: Any) -> Trainer:
    return cb.TensorParallelTrainer(mlp, plan={"0": "column", "2": "row"}, devices=[device], **settings)


def pipeline(device: cb.Device, **settings: Any) -> Trainer:
    return cb.PipelineParallelTrainer(mlp, stages=2, devices=[device], **settings)


def opened(kind: Any, device: cb.Device, **settings: Any) -> Any:
    usual = {"optimizer": cb.OptimizerKind.Sgd(lr=0.1), "loss": cb.LossKind.CrossEntropy(), "schedule": HALF}
    return kind(device, **{**usual, **settings})


def numbers(history: cb.History) -> list[tuple[float, float, float]]:
    return [(one.loss, one.grad_norm, one.lr) for one in history.steps]


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", [data_parallel, tensor_parallel, pipeline])
async def test_step_sizes_follow_the_evaluations_also_in_a_resumed_run(kind: Any, tmp_path: Path) -> None:
    async with cb.device("cpu", isolation="thread") as device:
        async with opened(kind, device) as training:
            whole = await training.fit((X, Y), epochs=8, **RUN)
        async with opened(kind, device) as training:
            first = await training.fit((X, Y), steps=12, checkpoints=tmp_path, **RUN)
        async with opened(kind, device) as training:
            await training.resume(tmp_path)
            rest = await training.fit((X, Y), epochs=8, **RUN)
    assert [one.lr for one in whole.steps] == LRS
    assert numbers(first) + numbers(rest) == numbers(whole)


@pytest.mark.parametrize("kind", [data_parallel, pytest.param(pipeline, marks=pytest.mark.slow)])
async def test_a_loss_repeats_steps_with_their_sizes(kind: Any) -> None:
    async with cb.device("cpu", isolation="thread") as device, opened(kind, device) as training:
        calm = await training.fit((X, Y), epochs=8, **RUN)
    async with cb.device("cpu", isolation="process") as device:
        async with opened(kind, device, not_finite="roll_back", snapshot_every=100) as training:

            def kill(stats: cb.StepStats) -> None:
                pid = device.health().host_pid
                if stats.step == 17 and pid is not None:
                    os.kill(pid, signal.SIGKILL)

            disturbed = await training.fit((X, Y), epochs=8, on_step=kill, **RUN)
    assert sum(one.repeats for one in disturbed.steps) + device.health().ordinal > 1
    assert numbers(disturbed) == numbers(calm)


def test_a_schedule_besides_and_where_the_factor_ends() -> None:
    warm = cb.ReduceLROnPlateau(factor=0.5, patience=1, least=0.3, schedule=lambda updates: min(1.0, updates / 4))
    assert [warm(updates) for updates in (0, 2, 8)] == [0.0, 0.5, 1.0]
    assert [warm.after(1.0, 0), warm.after(1.0, 1), warm.after(0.5, 2), warm.after(0.3, 3)] == [1.0, 0.5, 0.3, 0.3]


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"factor": 1.0}, "factor is 1.0; it is a number above 0 and below 1"),
        ({"patience": 0}, "patience is 0"),
        ({"least": float("nan")}, "least is nan"),
    ],
)
def test_settings_that_cannot_be(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cb.ReduceLROnPlateau(**settings)


async def test_it_needs_data_to_validate_with() -> None:
    async with cb.device("cpu", isolation="thread") as device, opened(data_parallel, device) as training:
        with pytest.raises(ValueError, match="there is no data to validate with"):
            await training.fit((X, Y), batch_size=9)
