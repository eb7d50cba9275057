"""``callboard train``: runs that are interrupted, resumed and set from the command line."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from callboard.cli import main
from callboard.cli.training.finding import find_run, settings_of
from callboard.cli.training.signals import Interrupts

torch = pytest.importorskip("torch")

APP = """
import os
import sys

import numpy as np
import torch

import callboard as cb


class Model(torch.nn.Sequential):
    calls = 0

    def forward(self, x):
        Model.calls += 1
        if Model.calls == 5 and "GATE" in os.environ:
            print("in step 5", flush=True)
            sys.stdin.readline()
        return super().forward(x)


def model():
    return Model(torch.nn.Linear(6, 20), torch.nn.Dropout(0.2), torch.nn.Linear(20, 3))


async def run(width: int = 3, lr=0.01):
    system = await cb.System().__aenter__()
    device = await system.device("cpu", isolation="thread")
    x = np.random.default_rng(0).standard_normal((48, 6)).astype("f4")
    kinds = dict(loss=cb.LossKind.CrossEntropy(), optimizer=cb.OptimizerKind.AdamW(lr=lr), devices=[device])
    return cb.TrainingRun(cb.DataParallelTrainer(model, **kinds), (x, (x[:, 0] > 0).astype("i8")), batch_size=8)


number = 3


def needing(lr): ...
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "trained_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "trained_app", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def child(where: Path, **environment: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "callboard", "train", "trained_app:run", "--steps", "12", "--resume"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=where, text=True, env={**os.environ, **environment}, **pipes)


@pytest.mark.timeout(180)
async def test_a_run_that_was_terminated_and_resumed_equals_one_that_was_not(here: Path) -> None:
    first = child(here, GATE="1")
    try:
        assert first.stdin
        assert first.stdout
        assert first.stderr
        assert await asyncio.to_thread(first.stdout.readline) == "in step 5\n"
        first.send_signal(signal.SIGTERM)
        said = await asyncio.to_thread(first.stderr.readline)
        assert "ends after this step" in said
        _, rest = await asyncio.to_thread(first.communicate, "\n")
    finally:
        first.kill()
    assert first.returncode == 128 + signal.SIGTERM, rest
    assert [place.name for place in (here / "checkpoints").iterdir()] == ["step-00000005"]
    second = child(here)
    _, said = await asyncio.to_thread(second.communicate)
    assert second.returncode == 0, said
    assert "goes on after step 5" in said
    assert "7 steps: " in said

    run = await find_run("trained_app:run", settings_of(["steps=12", "checkpoints=calm"]))
    async with run.trainer:
        await run.fit(progress=False, on_step=lambda stats: None)
    for file in ("model.safetensors", "trainer.pt"):
        places = [here / folder / "step-00000012" / file for folder in ("checkpoints", "calm")]
        assert len({place.read_bytes() for place in places}) == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_checkpoint_of_torch_at_the_end(here: Path) -> None:
    command = [sys.executable, "-m", "callboard", "train", "trained_app:run", "--steps", "2", "--dcp", "dcp"]
    done = subprocess.run(command, cwd=here, text=True, capture_output=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    assert (here / "dcp" / ".metadata").is_file()


async def test_settings_are_parameters_of_the_function_and_fields_of_the_run(here: Path) -> None:
    given = settings_of(["width=4", "lr=0.5", "batch_size=16", "shuffle=false", "keep=none", "checkpoints=a"])
    run = await find_run("trained_app:run", given)
    assert (run.batch_size, run.shuffle, run.keep, Path(run.checkpoints)) == (16, False, None, Path("a"))
    assert run.trainer._job.optimizer.lr == 0.5  # type: ignore[union-attr]
    assert run.total() == 3


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["nothing"], "'nothing' does not name a run; give MODULE:NAME, such as app:run"),
        (["no_such_app:run"], "there is no module 'no_such_app' here"),
        (
            ["trained_app:ran"],
            "has no 'ran' (did you mean trained_app:run?); its callboard.TrainingRun (a trainer with its data)",
        ),
        (["trained_app:number"], "has a int as 'number'; its callboard.TrainingRun (a trainer with its data): none"),
        (["trained_app:needing"], "needs lr; give --set lr=VALUE"),
        (["trained_app:needing", "--set", "lr=1"], "gave a NoneType; it must give a callboard.TrainingRun"),
        (["trained_app:run", "--set", "lr=high"], "--set lr=high: Expected `float`"),
        (
            ["trained_app:run", "--set", "rate=1"],
            "--set rate: it is no setting of trained_app:run; these are: width, lr",
        ),
        (["trained_app:run", "--set", "lr"], "--set 'lr' is no setting; give KEY=VALUE"),
        (["trained_app:run", "--steps", "0"], "steps is 0; it is at least 1"),
        (["trained_app:run"], "has checkpoints of an earlier run, the last one is step-00000003; --resume goes on"),
    ],
)
def test_a_command_that_cannot_be_is_one_line_and_a_failure(
    arguments: list[str], says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "checkpoints" / "step-00000003").mkdir(parents=True)
    assert main(["train", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert says in said


def test_a_second_ctrl_c_and_the_end_of_the_grace_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("callboard.cli.training.signals.os._exit", ended := [].append)
    ends, stops = ended.__self__, []  # type: ignore[attr-defined]
    with Interrupts(lambda: stops.append(True)) as interrupts:
        interrupts._handle(signal.SIGTERM, None)
        interrupts._handle(signal.SIGTERM, None)  # once is enough
        assert (len(stops), ends) == (1, [])
        interrupts._handle(signal.SIGINT, None)
    assert ends == [128 + signal.SIGTERM]
    assert interrupts._watch is not None
    interrupts._watch.join(30)  # the block has ended in time: nothing ends it later
    assert not interrupts._watch.is_alive()
    over = threading.Event()
    monkeypatch.setattr("callboard.cli.training.signals.os._exit", lambda code: (ends.append(code), over.set()))
    Interrupts(lambda: None, grace=0.0)._handle(signal.SIGINT, None)
    assert over.wait(30)
    assert ends[1:] == [128 + signal.SIGINT]
    signal.signal(signal.SIGTERM, before)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_data_of_the_plot() -> None:
    from callboard.train.running.history import History
    from callboard.train.stats import StepStats

    losses = np.linspace(4.0, 1.0, 40)
    steps = [
        StepStats(step=at + 1, loss=loss, grad_norm=1.0, lr=0.1, samples=8, step_micros=1000)
        for at, loss in enumerate(losses)
    ]
    lines = History(steps).plot(width=20, height=4).splitlines()
    assert lines[0].startswith(f"{3.962:>10.4g} ┤•")
    assert lines[3].strip().startswith("1.038 ┤")
    assert lines[4].split() == ["step", "1", "40"]
    busy = StepStats(step=1, loss=1.0, grad_norm=1.0, lr=0.1, samples=8, step_micros=1000, replica_micros=(10, 30))
    assert busy.straggler is not None
    assert (busy.straggler.replica, busy.straggler.times) == (1, 3.0)
    assert steps[0].straggler is None
    assert str(History([busy, msgspec.structs.replace(busy, step=9, undone=4)])).endswith("rolled back: step 9 undid 4")
