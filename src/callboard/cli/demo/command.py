"""``callboard demo``."""

import argparse
import asyncio
import json
import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np

from callboard.cli.demo.digits import Digits, load_digits
from callboard.cli.demo.fault import fault_of, standby_ready
from callboard.cli.demo.run import Job, Outcome
from callboard.cli.demo.scatter import svg, terminal
from callboard.cli.demo.settings import RANK
from callboard.cli.demo.versus import versus_torch
from callboard.cli.parts.progress import Progress
from callboard.core import registry
from callboard.core.errors import AccelError, BackendUnavailable
from callboard.system import device as open_device

__all__ = ["add_demo"]

TOLERANCE = 1e-4
TITLE = "1,797 handwritten digits in the plane of their first two principal components"


def add_demo(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="principal components of real digits, with the context lost in the middle",
        description="Principal components of 1,797 handwritten digits by block power iteration, in BLAS messages only. "
        "In the middle the context is lost: on CUDA by an illegal access, on the CPU by SIGKILL. Exits with 1 when the "
        f"explained variance differs from NumPy's by more than {TOLERANCE:g}.",
    )
    parser.add_argument("--device", default="auto", help='"auto" (default), "cpu", "cuda", "cuda:1" or a UUID')
    parser.add_argument("--isolation", choices=("process", "thread"), default="process")
    parser.add_argument("--standby", choices=("hot", "warm", "none"), default="hot")
    parser.add_argument("--no-fault", action="store_true", help="do not make the context fail")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write the picture to this file, as SVG")
    parser.add_argument("--versus", choices=("torch",), help="also run the same job and fault in plain torch")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a record of the run to this file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; the exit code."""
    if arguments.isolation == "thread" and not arguments.no_fault:
        print("a context in a thread of this process cannot be replaced: add --no-fault", file=sys.stderr)
        return 2
    digits = load_digits()
    try:
        backend, outcome = asyncio.run(_demo(arguments, digits))
    except AccelError as e:
        print(f"{type(e).__name__}: {e}", file=sys.stderr)
        return 1
    _show(outcome, digits, arguments.picture)
    worst = _compare(outcome, digits)
    lost = None
    if arguments.versus:
        print("\nthe same in plain torch")
        lost = versus_torch(backend, not arguments.no_fault, lambda line: print(f"  {line}"))
        if lost is not None and outcome.delay is not None:
            print(f"  time lost: {lost:.3f} s with torch, {outcome.delay:.3f} s with callboard")
    if arguments.json is not None:
        _store(arguments.json, outcome, worst, lost)
    return 0 if worst <= TOLERANCE else 1


async def _demo(arguments: argparse.Namespace, digits: Digits) -> tuple[str, Outcome]:
    n, features = digits.images.shape
    print(f"principal components of {n:,} handwritten digits ({features} pixels), by block power iteration")
    standby = None if arguments.standby == "none" or arguments.isolation == "thread" else arguments.standby
    async with open_device(arguments.device, isolation=arguments.isolation, standby=standby) as device:
        print(f"device {device.name}: {_name(arguments.device)}, isolation {device.isolation}, standby {standby}")
        if arguments.device == "auto" and device.backend == "cpu":
            print(f"  not CUDA: {_why_not_cuda()}")
        fault = None
        if not arguments.no_fault:
            if standby and not await standby_ready(device):
                print(f"  the standby is not ready ({device.health().standby})")
            fault = fault_of(device)
            await fault.ready()
        started = time.monotonic()
        with Progress("iteration") as progress:

            def say(line: str) -> None:
                progress.clear()
                print(f"  {time.monotonic() - started:7.3f} s  {line}")

            return device.backend, await Job(device, digits.images, say, progress.show).run(fault)


def _name(spec: str) -> str:
    return registry.resolve(spec)[1].name


def _why_not_cuda() -> str:
    try:
        registry.resolve("cuda")
    except BackendUnavailable as e:
        return str(e).partition("\n")[0]
    return "it can be used"


def _show(outcome: Outcome, digits: Digits, picture: Path | None) -> None:
    columns, rows = min(shutil.get_terminal_size().columns, 100) - 2, 28
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print(terminal(outcome.plane, digits.labels, columns, rows, colour))
    first, second = outcome.explained[:2]
    print(f"to the right: first component, {first:.2%} of the variance; up: second, {second:.2%}")
    if picture is not None:
        picture.write_text(svg(outcome.plane, digits.labels, outcome.explained, TITLE), "utf-8")
        print(f"picture: {picture}")
    print()
    print(f"generations      {outcome.generations}")
    print(f"iterations       {outcome.iterations} (those done twice included)")
    print(f"messages         {outcome.ops}, of which {outcome.failed} failed with a lost context")
    print(f"time             {outcome.seconds:.3f} s")
    if outcome.delay is not None:
        taken = "" if outcome.takeover is None else f"; takeover {outcome.takeover * 1e3:.2f} ms after the report"
        print(f"time lost        {outcome.delay:.3f} s from the fault to the checkpoint that it delayed{taken}")


def _compare(outcome: Outcome, digits: Digits) -> float:
    """The largest difference of an explained variance from NumPy's."""
    values = np.linalg.eigvalsh(np.cov(digits.images.T))[::-1]
    expected = values[:RANK] / values.sum()
    worst = float(np.max(np.abs(outcome.explained - expected)))
    print(f"against NumPy    explained variance of {RANK} components differs by {worst:.1e} at most: ", end="")
    print("equal" if worst <= TOLERANCE else f"NOT equal (allowed is {TOLERANCE:g})")
    return worst


def _store(path: Path, outcome: Outcome, worst: float, torch_delay: float | None) -> None:
    found = {name: value for name, value in outcome._asdict().items() if not isinstance(value, np.ndarray)}
    found |= {"explained": outcome.explained.tolist(), "difference": worst, "torch_delay": torch_delay}
    path.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
