"""Steps of a pipeline of two or more stages beside torch.distributed.pipelining, and the bubble beside the simulator's.

    CALLBOARD_CPU_DEVICES=2 python benchmarks/pipeline_train.py --device cpu --json pipeline_train.json
    python benchmarks/pipeline_train.py --device cpu --quick
    python benchmarks/pipeline_train.py --device cuda --stages 4

A stage has four linear layers of one width; a step has eight micro-batches and an update by SGD. Both compute under
1F1B; "threads" has the devices in one process, the others are processes. "eager-1f1b" holds up to three micro-batches
on the first of two devices in place of two. Each subject is measured in turn, in every round.
"""

import asyncio
import os
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
from _pipeline_rank import stage
from _record import Record

import callboard as cb

MICRO_BATCHES = 8


class Torch:
    """The ranks of torch.distributed.pipelining."""

    def __init__(self, kind: str, size: int, folder: str, width: int, rows: int) -> None:
        command = [sys.executable, str(Path(__file__).with_name("_pipeline_rank.py"))]
        file = str(Path(folder) / f"torch-{width}")
        sizes = [str(one) for one in (width, rows, MICRO_BATCHES)]
        self._ranks = [
            subprocess.Popen([*command, str(rank), str(size), file, kind, *sizes], stdin=-1, stdout=-1, text=True)
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

    def __enter__(self) -> "Torch":
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self._ranks:
            rank.kill()
            rank.communicate()


async def steps(trainer: cb.PipelineParallelTrainer, batch: Any, count: int) -> float:
    """Seconds of one step."""
    await trainer.step(batch)
    began = time.perf_counter()
    for _ in range(count):
        await trainer.step(batch)
    return (time.perf_counter() - began) / count


async def opened(
    system: cb.System, kind: str, size: int, isolation: Any, width: int, rows: int, schedule: str
) -> cb.PipelineParallelTrainer:
    """A trainer of the first devices."""
    devices = [await system.device(f"{kind}:{rank}", isolation=isolation, standby=None) for rank in range(size)]
    trainer = cb.PipelineParallelTrainer(
        [stage(width) for _ in range(size)],
        loss=cb.LossKind.Mse(),
        optimizer=cb.OptimizerKind.Sgd(lr=1e-3),
        devices=devices,
        micro_batch_size=rows // MICRO_BATCHES,
        pipeline_schedule=schedule,
        snapshot_every=1_000_000,  # torch takes none
    )
    return await trainer.__aenter__()


def main() -> None:
    def extend(parser: Any) -> None:
        parser.add_argument("--stages", type=int, default=2)
        parser.add_argument("--width", type=int, help="of the layers; by default two widths are measured")

    given = arguments(__doc__, rounds=5, extend=extend)
    kind, size = kind_of(given.device), given.stages
    if kind == "cpu":
        os.environ.setdefault("CALLBOARD_CPU_DEVICES", str(size))
    widths = (256, 1024) if kind == "cpu" else (1024, 4096)
    if given.width is not None:
        widths = (given.width,)
    rows, count = (64 * MICRO_BATCHES, 2 if given.quick else 10) if kind == "cpu" else (512 * MICRO_BATCHES, 20)
    record = Record("pipeline_train", given)
    bars: list[Bar] = []
    for width in widths[:1] if given.quick else widths:
        with asyncio.Runner() as runner, ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            batch = tuple(np.random.default_rng(0).standard_normal((2, rows, width)).astype("f4"))
            peer = stack.enter_context(Torch(kind, size, folder, width, rows))
            subjects: dict[str, Callable[[], float]] = {"torch": lambda: peer.steps(count)}  # noqa: B023  # used at once
            for name, isolation, schedule in (
                ("processes", "process", "1f1b"),
                ("threads", "thread", "1f1b"),
                ("eager-1f1b", "process", "eager-1f1b"),
                ("zero-bubble", "process", "zero-bubble"),
            ):
                system = runner.run(cb.System(f"pipeline-{name}").__aenter__())
                stack.callback(lambda s=system: runner.run(s.__aexit__(None, None, None)))
                trainer = runner.run(opened(system, kind, size, isolation, width, rows, schedule))
                stack.callback(lambda t=trainer: runner.run(t.close()))
                subjects[name] = lambda t=trainer: runner.run(steps(t, batch, count))  # type: ignore[misc]  # noqa: B023
            title = f"a step of {size} stages, {width} wide, {rows} rows"
            found = interleave(subjects, given.rounds, title)
            record[title] = table(title, found, lambda value: f"{value * 1e3:,.1f} ms", "torch")
            for name, limit in (("processes", 0.97), ("threads", 1.2 if width == 256 else 0.95)):
                ratio = ratios(found, name, "torch")
                speed = None if ratio is None else 1 / ratio["median"]
                bars.append(Bar(f"{title}, {name}: speed beside torch", speed, limit, at_least=True))
    record.done(tell_bars(bars))


if __name__ == "__main__":
    main()
