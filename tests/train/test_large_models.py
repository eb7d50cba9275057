"""Modules that are too large for a message to a host: read from a file, also by a host that is replaced."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.train.running import modelfiles

torch = pytest.importorskip("torch")

X = np.random.default_rng(0).standard_normal((8, 6)).astype("f4")


def module() -> Any:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 6))


def data_parallel(device: cb.Device, **given: Any) -> Any:
    return cb.DataParallelTrainer(module(), devices=[device], **given)


def tensor_parallel(device: cb.Device, **given: Any) -> Any:
    return cb.TensorParallelTrainer(module(), plan={"0": "column", "2": "row"}, devices=[device], **given)


def pipeline(device: cb.Device, **given: Any) -> Any:
    return cb.PipelineParallelTrainer(module(), stages=2, devices=[device], **given)


def stages(device: cb.Device, **given: Any) -> Any:
    return cb.PipelineParallelTrainer(list(module()), devices=[device], **given)


class Apart:
    """As much of a device as is asked."""

    isolation = "process"


def files_in(folder: Path) -> list[Path]:
    return list(folder.glob("callboard-model-*/*"))


async def losses(made: Any, device: cb.Device, *, killed: bool) -> list[float]:
    found = []
    async with made(device, optimizer=cb.OptimizerKind.Sgd(lr=0.1), loss=cb.LossKind.Mse()) as trainer:
        for number in range(3):
            pid = device.health().host_pid
            if killed and number == 2:
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
            found.append((await trainer.step((X, X))).loss)
    return found


@pytest.mark.few(4)
@pytest.mark.parametrize("made", [data_parallel, tensor_parallel, pipeline, stages])
async def test_a_large_module_trains_in_processes(made: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(modelfiles.tempfile, "tempdir", str(tmp_path))
    async with cb.device("cpu", isolation="process") as device:
        plain = await losses(made, device, killed=False)
        assert not files_in(tmp_path)
        monkeypatch.setattr(modelfiles, "LARGE", 0)
        assert await losses(made, device, killed=True) == plain
    assert not files_in(tmp_path), "removed with the trainer"


@pytest.mark.few(2)
@pytest.mark.parametrize("made", [data_parallel, tensor_parallel])
async def test_a_large_module_follows_from_threads_to_processes(
    made: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(modelfiles.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(modelfiles, "LARGE", 0)
    settings: Any = {"optimizer": cb.OptimizerKind.Sgd(lr=0.1), "loss": cb.LossKind.Mse()}
    async with cb.device("cpu", isolation="thread") as here, cb.device("cpu", isolation="process") as there:
        async with made(here, **settings) as trainer:
            expected = [(await trainer.step((X, X))).loss for _ in range(3)]
        async with made(here, **settings) as trainer:
            change = getattr(trainer, "set_replicas", None) or trainer.set_devices
            found = [(await trainer.step((X, X))).loss]
            assert not files_in(tmp_path)
            await change([there])
            found.append((await trainer.step((X, X))).loss)
            await change([here])
            await change([there])
            found.append((await trainer.step((X, X))).loss)
            assert len(files_in(tmp_path)) == 1
    assert found == expected
    assert not files_in(tmp_path)


def test_a_module_beyond_the_limit_of_a_message_goes_to_a_file() -> None:
    files = modelfiles.ModelFiles()
    large, small = torch.nn.Linear(2100, 2100), module()  # 17 MB
    files.write([large, small, module], [Apart()])
    read = files.of(large)()
    assert torch.equal(read.weight, large.weight)
    assert files.of(small) is small
    assert files.of(module) is module
    late = files.of(large)
    files.close()
    with pytest.raises(RuntimeError, match="pass a function that gives the module"):
        late()
