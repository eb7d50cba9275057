"""Loggers: what they are told, a file of JSON lines, TensorBoard, and one that fails."""

import csv
import json
import logging
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.train.training_lab import mlp

import callboard as cb

torch = pytest.importorskip("torch")

X = np.random.default_rng(0).standard_normal((8, 6)).astype("f4")
Y = np.arange(8) % 3


async def run(loggers: Any, steps: int = 2) -> cb.History:
    async with cb.System() as system:
        device = await system.device("cpu", isolation="thread")
        kinds: Any = {"loss": cb.LossKind.CrossEntropy(), "optimizer": cb.OptimizerKind.AdamW(lr=0.5)}
        async with cb.DataParallelTrainer(mlp, devices=[device], **kinds) as training:
            return await training.fit((X, Y), batch_size=8, steps=steps, validate=(X, Y), loggers=loggers)


async def test_a_file_has_a_line_for_each_step_and_evaluation(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "run.jsonl"
    logger, table = cb.JsonLinesLogger(path), cb.CsvLogger(tmp_path / "run.csv")
    history = await run([logger, table])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 1, 2, 2]
    assert [line["loss"] for line in lines[::2]] == history.losses
    assert [line["validation/loss"] for line in lines[1::2]] == [one.loss for one in history.evaluations]
    assert lines[0]["lr"] == 0.5
    assert lines[0].keys() == {"step", "loss", "grad_norm", "lr", "samples_per_second", "seconds"}
    rows = list(csv.DictReader((tmp_path / "run.csv").read_text().splitlines()))
    assert [(int(row["step"]), float(row["value"])) for row in rows if row["name"] == "loss"] == [
        (one.step, one.loss) for one in history.steps
    ]
    assert [float(row["value"]) for row in rows if row["name"] == "validation/loss"] == [
        one.loss for one in history.evaluations
    ]
    await run([logger, table], 1)  # goes on in the same file
    assert len(path.read_text().splitlines()) == 6
    assert (tmp_path / "run.csv").read_text().count("step,name,value\n") == 1


async def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    history = await run([cb.TensorBoardLogger(tmp_path)], 3)
    resumed = cb.TensorBoardLogger(tmp_path)
    resumed(2, {"loss": 7.0})
    resumed.close()
    found = reading.EventAccumulator(str(tmp_path)).Reload()
    scalars = [(event.step, event.value) for event in found.Scalars("loss")]
    assert scalars == [(1, pytest.approx(history.losses[0])), (2, 7.0)]  # what came after is hidden
    validation = [event.value for event in found.Scalars("validation/loss")]
    assert validation == pytest.approx([one.loss for one in history.evaluations][: len(validation)])
    assert validation


def test_a_file_goes_on_after_a_full_disk(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no device that is always full")
    path = tmp_path / "run.jsonl"
    path.symlink_to(full)
    logger = cb.JsonLinesLogger(path)
    for step in (1, 2):
        with pytest.raises(OSError, match="No space left"):
            logger(step, {"loss": 1.0})
    logger.close()
    path.unlink()
    logger(3, {"loss": 1.0})
    logger.close()
    assert path.read_text() == '{"step": 3, "loss": 1.0}\n'


def test_a_writer_that_fails_to_close_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class SummaryWriter:
        made = 0

        def __init__(self, folder: str, purge_step: int) -> None:
            SummaryWriter.made += 1

        def add_scalar(self, name: str, value: float, step: int) -> None: ...

        def close(self) -> None:
            raise OSError("full")

    stand_in: Any = types.ModuleType("torch.utils.tensorboard")
    stand_in.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", stand_in)
    logger = cb.TensorBoardLogger(tmp_path)
    for step in (1, 2):
        logger(step, {"loss": 1.0})
        with pytest.raises(OSError, match="full"):
            logger.close()
    assert SummaryWriter.made == 2


async def test_a_logger_that_fails_is_reported_once_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    told = []

    class Broken:
        def __call__(self, step: int, figures: Any) -> None:
            raise OSError("the server is away")

        def close(self) -> None:
            raise OSError("the server is away")

    async def listening(step: int, figures: Any) -> None:
        told.append((step, min(figures)))

    with caplog.at_level(logging.WARNING, "callboard"):
        history = await run([Broken(), listening])
    assert len(history.steps) == 2
    assert len(told) == 4
    reports = [one for one in caplog.records if "the logger Broken failed" in one.getMessage()]
    assert len(reports) == 1
    assert "the server is away" in str(reports[0].exc_info)


async def test_tensorboard_gets_scalars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        cb.TensorBoardLogger(tmp_path)
    opened: list[Any] = []
    scalars: list[Any] = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int) -> None:
            opened.append((folder, purge_step))

        def add_scalar(self, name: str, value: float, step: int) -> None:
            scalars.append((name, step))

        def close(self) -> None:
            opened.append("closed")

    stand_in: Any = types.ModuleType("torch.utils.tensorboard")
    stand_in.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", stand_in)
    await run([cb.TensorBoardLogger(tmp_path)])
    assert opened == [(str(tmp_path), 1), "closed"]
    assert {("loss", 1), ("validation/loss", 2)} <= set(scalars)
