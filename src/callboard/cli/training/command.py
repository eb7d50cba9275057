"""``callboard train``."""

import argparse
import asyncio
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

from callboard.cli.parts.progress import Progress
from callboard.cli.training.finding import find_run, settings_of
from callboard.cli.training.signals import Interrupts
from callboard.core.errors import BackendUnavailable, DeviceStopped
from callboard.serve.http.ending import obey_while_starting
from callboard.train.checkpoints import latest
from callboard.train.running.loop import figures
from callboard.train.running.run import TrainingRun
from callboard.train.stats import StepStats

__all__ = ["add_train"]

LINE = 10.0
"""Seconds between two lines where stderr is not a terminal."""


def add_train(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "train",
        help="run a trainer with its data",
        description="Runs a callboard.TrainingRun, a trainer with its data. SIGTERM and Ctrl-C end it after the step "
        "that is being done, with a checkpoint; a second Ctrl-C ends it at once. It needs the extra: "
        "pip install 'callboard[train]'.",
    )
    parser.add_argument(
        "run_name", metavar="MODULE:NAME", help="the run, in a module of the current folder, or a function giving one"
    )
    parser.add_argument("--steps", type=int, metavar="N", help="end after step N, counted from the beginning")
    parser.add_argument("--epochs", type=int, metavar="N", help="end after N passes over the data, likewise counted")
    parser.add_argument("--checkpoints", type=Path, metavar="FOLDER", help="where checkpoints are; default: the run's")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint, if there is one")
    parser.add_argument(
        "--dcp", type=Path, metavar="FOLDER", help="also write a checkpoint of torch.distributed.checkpoint at the end"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a parameter of the function, or a field of the run such as batch_size; may be given several times",
    )
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    obey_while_starting()
    return asyncio.run(_train(given))


async def _train(given: argparse.Namespace) -> int:
    try:
        run = await _chosen(given)
        last = latest(Path(run.checkpoints))
        total = run.total()
    except (OSError, TypeError, ValueError) as error:
        _say(str(error))
        return 2
    if last is not None and not given.resume:
        _say(
            f"{run.checkpoints} has checkpoints of an earlier run, the last one is {last.name}; --resume goes on from "
            "it, and --checkpoints names another folder"
        )
        return 2
    with Interrupts(run.trainer.stop) as interrupts:
        try:
            trainer = await run.trainer.__aenter__()
        except (BackendUnavailable, DeviceStopped) as error:
            _say(str(error))
            return interrupts.code or 2
        try:
            if last is not None:
                try:
                    _say(f"goes on after step {await trainer.resume(last)}")
                except (OSError, RuntimeError) as error:
                    _say(f"{error}; move {last} away to go on from an earlier one, or to begin anew")
                    return 2
            with Progress("step", total or 0) as bar:
                history = await run.fit(progress=False, on_step=_Shown(bar))
            if given.dcp is not None:
                await trainer.save_dcp(given.dcp)
        finally:
            await trainer.close()
        if sys.stderr.isatty() and len(history.steps) > 1:
            print(history.plot(), file=sys.stderr)
        _say(f"{history}; checkpoints are in {run.checkpoints}" if history.steps else "there is no step left to do")
    return interrupts.code or 0


async def _chosen(given: argparse.Namespace) -> TrainingRun:
    """The run that the options name, as far as they want it to go.

    Raises:
        ValueError: There is none, or a setting does not fit.
    """
    told = {name: getattr(given, name) for name in ("steps", "epochs", "checkpoints")}
    changes = {name: value for name, value in told.items() if value is not None}
    if "steps" in changes:
        changes = {"epochs": None, **changes}
    return dataclasses.replace(await find_run(given.run_name, settings_of(given.set)), **changes)


def _say(what: str) -> None:
    print(f"callboard train: {what}", file=sys.stderr, flush=True)


class _Shown:
    """Shows each step on a terminal, and one every ten seconds elsewhere."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._due = time.monotonic() + LINE
        self._lines = not sys.stderr.isatty()

    def __call__(self, stats: StepStats) -> Any:
        if not self._lines:
            self._bar.show(stats.step, figures(stats))
        elif time.monotonic() >= self._due:
            self._due = time.monotonic() + LINE
            _say(f"step {stats.step}: {figures(stats)}")
