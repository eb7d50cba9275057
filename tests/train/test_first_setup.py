"""What the user gave and cannot be made is told at once; after a loss it is tried again, as before."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.train.training_lab import batches, mlp, plain

import callboard as cb

torch = pytest.importorskip("torch")

SGD = cb.OptimizerKind.Sgd(lr=0.1)
CROSS = cb.LossKind.CrossEntropy()
made: list[int] = []
"""One for each time that the user's function was called."""


def data_parallel(device: cb.Device, model: Any, **settings: Any) -> Any:
    return cb.DataParallelTrainer(model, devices=[device], **settings)


def zero(device: cb.Device, model: Any, **settings: Any) -> Any:
    return cb.DataParallelTrainer(model, devices=[device], shard="zero1", **settings)


def tensor_parallel(device: cb.Device, model: Any, **settings: Any) -> Any:
    return cb.TensorParallelTrainer(model, plan={"2": "gathered"}, devices=[device], **settings)


def pipeline(device: cb.Device, model: Any, **settings: Any) -> Any:
    return cb.PipelineParallelTrainer(model, stages=1, micro_batch_size=3, devices=[device], **settings)


KINDS = data_parallel, zero, tensor_parallel, pipeline


class Wrong(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        made.append(1)
        raise RuntimeError("this module cannot be made")


def wrong_argument(parameters: Any) -> Any:
    made.append(1)
    return torch.optim.SGD(parameters, step=3)


def missing_file() -> Any:
    made.append(1)
    raise FileNotFoundError("weights.bin")


async def told(make: Callable[..., Any], **settings: Any) -> tuple[BaseException, int]:
    """The error of a trainer's start, and how often the user's function was called."""
    made.clear()
    async with cb.device("cpu", isolation="thread") as device:
        with pytest.raises(Exception) as caught:
            async with make(device, settings.pop("model", mlp), **{"optimizer": SGD, "loss": CROSS, **settings}):
                pass
    return caught.value, len(made)


@pytest.mark.few(8)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["model", "optimizer", "missing"])
async def test_errors_of_a_first_setup_are_told_at_once(kind: Any, what: str) -> None:
    if what == "model":
        error, count = await told(kind, model=Wrong)
        assert (type(error), str(error), count) == (RuntimeError, "this module cannot be made", 1)
    elif what == "optimizer":
        error, count = await told(kind, optimizer=wrong_argument)
        assert (type(error), count) == (TypeError, 1)
        assert "unexpected keyword argument 'step'" in str(error)
    else:
        error, count = await told(kind, model=missing_file)
        assert (type(error), count) == (FileNotFoundError, 4)  # a file may come


async def test_the_optimizer_of_a_parameter_server() -> None:
    made.clear()
    async with cb.device("cpu", isolation="thread") as device:
        weights = {"w": np.zeros(3, "f4")}
        with pytest.raises(Exception, match="unexpected keyword argument 'step'"):
            async with cb.AsyncParameterServer(weights, devices=[device], optimizer=wrong_argument):
                pass
    assert len(made) <= 2  # one of them on the caller's side


class Failing:
    """A model that cannot be made the second time."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes

    def __call__(self) -> Any:
        with self._notes.open("a") as file:
            file.write("x")
        if self._notes.stat().st_size == 2:
            raise RuntimeError("not now")
        return mlp()


@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only")
@pytest.mark.parametrize("kind", [data_parallel, pipeline])
async def test_after_a_loss_it_is_tried_again(tmp_path: Path, kind: Any) -> None:
    data = batches(4, 8)
    torch.manual_seed(0)
    async with (
        cb.device("cpu", isolation="process", standby=None) as device,
        kind(device, Failing(tmp_path / "notes"), optimizer=SGD, loss=CROSS, seed=0) as trainer,
    ):
        model = mlp()
        model.load_state_dict(await trainer.state_dict())
        losses = [(await trainer.step(data[0])).loss]
        pid = device.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        losses += [(await trainer.step(one)).loss for one in data[1:]]
    assert (tmp_path / "notes").read_text() == "xxx"
    assert losses == pytest.approx(plain(model, data, SGD)[0], rel=1e-5)
