"""Data-parallel steps beside DistributedDataParallel, and a killed rank beside torchrun's restart, in one run.

    CALLBOARD_CPU_DEVICES=2 python benchmarks/train_peers.py --device cpu --json train_peers.json
    python benchmarks/train_peers.py --device cpu --quick
    python benchmarks/train_peers.py --device cpu --part losses --rounds 3
    python benchmarks/train_peers.py --device cuda --ranks 2

The model has four linear layers; a step has the same number of samples over all ranks, and an update by SGD. "threads"
has the devices in one process, "processes" in one each. A loss is SIGKILL of the last rank: the time is that to the end
of the next step. Ours is killed when its hot standby is ready; torchrun starts all ranks anew. No loss takes more than
ten minutes: what does not recover by then is an error of callboard's, and infinite for torchrun, after three minutes.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Bar, arguments, interleave, kind_of, ratios, table, tell_bars
from _record import Record
from _train_rank import model

import callboard as cb

RANK = str(Path(__file__).with_name("_train_rank.py"))
LONGEST = 180.0
"""Seconds after which torchrun counts as one that does not recover."""

PATIENCE = 600.0
"""Seconds that a loss in callboard may take, with the wait for the standby."""


class Ddp:
    """The ranks of DistributedDataParallel."""

    def __init__(self, kind: str, size: int, folder: str, width: int, rows: int) -> None:
        given = [str(size), str(Path(folder) / "store"), kind, str(width), str(rows)]
        self._ranks = [
            subprocess.Popen([sys.executable, RANK, str(rank), *given], stdin=-1, stdout=-1, text=True)
            for rank in range(size)
        ]
        self._lines()

    def steps(self, count: int) -> float:
        """Seconds of one, of the slowest rank."""
        for rank in self._ranks:
            assert rank.stdin is not None
            rank.stdin.write(f"{count}\n")
            rank.stdin.flush()
        return max(map(float, self._lines())) / count

    def _lines(self) -> list[str]:
        found = [rank.stdout.readline() for rank in self._ranks if rank.stdout is not None]
        if not all(found):
            raise RuntimeError("a rank of torch has ended")
        return found

    def close(self) -> None:
        for rank in self._ranks:
            rank.kill()
            rank.communicate()


def torchrun_loss(kind: str, size: int, width: int, rows: int) -> float:
    """Seconds from SIGKILL of a rank to the next step of that rank's successor; infinite: it does not recover."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
        command += ["--max-restarts=3", "--monitor-interval=0.1", RANK, "until", folder, kind, str(width), str(rows)]
        where = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # without it, it never recovers
        ran = subprocess.Popen(command, env=where, stderr=subprocess.DEVNULL, start_new_session=True)
        told = Path(folder) / f"rank-{size - 1}"
        try:
            if _until(told.exists) == float("inf"):
                return float("inf")
            victim = told.read_text()
            began = time.perf_counter()
            os.kill(int(victim), signal.SIGKILL)
            return _until(lambda: told.read_text() != victim, began)
        finally:
            os.killpg(ran.pid, signal.SIGTERM)
            try:
                ran.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(ran.pid, signal.SIGKILL)
                ran.wait()


def _until(holds: Callable[[], bool], began: float | None = None) -> float:
    began = time.perf_counter() if began is None else began
    while not holds():
        if time.perf_counter() - began > LONGEST:
            return float("inf")
        time.sleep(0.005)
    return time.perf_counter() - began


async def opened(system: cb.System, kind: str, size: int, isolation: Any, width: int) -> cb.DataParallelTrainer:
    """A trainer of the first devices."""
    standby: Any = "hot" if isolation == "process" else None
    devices = [await system.device(f"{kind}:{rank}", isolation=isolation, standby=standby) for rank in range(size)]
    trainer = cb.DataParallelTrainer(
        model(width), loss=cb.LossKind.Mse(), optimizer=cb.OptimizerKind.Sgd(lr=1e-3), devices=devices
    )
    return await trainer.__aenter__()


async def steps(trainer: cb.DataParallelTrainer, batch: Any, count: int) -> float:
    """Seconds of one step."""
    began = time.perf_counter()
    for _ in range(count):
        await trainer.step(batch)
    return (time.perf_counter() - began) / count


async def loss(trainer: cb.DataParallelTrainer, batch: Any) -> float:
    """Seconds from SIGKILL of a rank to the end of the next step, in which all take part."""
    last = trainer.devices[-1]
    await last.standby_ready()
    await trainer.step(batch)
    victim = last.health().host_pid
    assert victim is not None
    began = time.perf_counter()
    os.kill(victim, signal.SIGKILL)
    while (recovery := (await trainer.step(batch)).recovery) is None:  # one that was almost done may end before
        pass
    took = time.perf_counter() - began
    print(f"callboard: {took:.3f} s after the kill; {recovery}", file=sys.stderr)
    return took


class Trainers:
    """Ours, opened when they are first needed, closed with the stack."""

    def __init__(self, runner: asyncio.Runner, stack: ExitStack, kind: str, size: int, width: int) -> None:
        self._runner = runner
        self._stack = stack
        self._given = kind, size, width
        self._open: dict[str, cb.DataParallelTrainer] = {}

    def __getitem__(self, isolation: str) -> cb.DataParallelTrainer:
        if isolation not in self._open:
            kind, size, width = self._given
            system = self._runner.run(cb.System(f"train-{isolation}").__aenter__())
            self._stack.callback(lambda: self._runner.run(system.__aexit__(None, None, None)))
            trainer = self._runner.run(opened(system, kind, size, isolation, width))
            self._stack.callback(lambda: self._runner.run(trainer.close()))
            self._open[isolation] = trainer
        return self._open[isolation]


def main() -> None:
    def extend(parser: Any) -> None:
        parser.add_argument("--ranks", type=int, default=2)
        parser.add_argument("--part", choices=["steps", "losses"], help="both by default")

    given = arguments(__doc__, rounds=5, extend=extend)
    kind, size = kind_of(given.device), given.ranks
    if kind == "cpu":
        os.environ.setdefault("CALLBOARD_CPU_DEVICES", str(size))
    width, rows = (256, 64 * size) if kind == "cpu" else (4096, 1024 * size)
    count = 5 if given.quick else 50
    record, bars = Record("train_peers", given), list[Bar]()
    batch = tuple(np.random.default_rng(0).standard_normal((2, rows, width)).astype("f4"))
    with asyncio.Runner() as runner, ExitStack() as stack:
        trainers = Trainers(runner, stack, kind, size, width)
        if given.part != "losses":
            peer = Ddp(kind, size, stack.enter_context(tempfile.TemporaryDirectory()), width, rows)
            stack.callback(peer.close)
            subjects: dict[str, Callable[[], float]] = {
                "ddp": lambda: peer.steps(count),
                "processes": lambda: runner.run(steps(trainers["process"], batch, count)),
                "threads": lambda: runner.run(steps(trainers["thread"], batch, count)),
            }
            title = f"a step of {size} ranks, {width} wide, {rows} rows"
            found = interleave(subjects, given.rounds, title)
            record[title] = table(title, found, lambda value: f"{value * 1e3:,.1f} ms", "ddp")
            for name, limit in (("processes", 0.95), ("threads", 1.2)) if kind == "cpu" else (("processes", 0.97),):
                ratio = ratios(found, name, "ddp")
                speed = None if ratio is None else 1 / ratio["median"]
                bars.append(Bar(f"{name}: speed beside ddp", speed, limit, at_least=True))
            peer.close()
        if given.part != "steps":
            title = "from a killed rank to the next step"
            losses: dict[str, Callable[[], float]] = {
                "torchrun": lambda: torchrun_loss(kind, size, width, rows),
                "callboard": lambda: runner.run(
                    asyncio.wait_for(loss(trainers["process"], batch), PATIENCE),
                ),
            }
            found = interleave(losses, 1 if given.quick else min(3, given.rounds), title)
            record[title] = table(title, found, lambda value: f"{value:,.2f} s", "torchrun")
            middle = sorted(found["callboard"])[len(found["callboard"]) // 2]
            bars.append(Bar(title, middle, 0.3 if kind == "cpu" else 0.5, at_least=False))
    record.done(tell_bars(bars))


if __name__ == "__main__":
    main()
