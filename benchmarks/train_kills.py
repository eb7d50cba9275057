"""Training with processes killed at random steps: the curve and the weights of an undisturbed run, bit by bit.

    python benchmarks/train_kills.py --device cpu --kills 100 --json train_kills.json
    python benchmarks/train_kills.py --device cpu --kills 100 --trainer pipeline
    python benchmarks/train_kills.py --device cpu --quick

Each trainer runs twice on two devices: left alone, and with SIGKILL in about every third step, at a random moment of
it, for a random device; one in ten takes both. Devices are killed when they have their hot standbys. The model has
running means and dropout. It ends with 1 if a loss, a norm of a gradient or a weight differs in any bit.
"""

import asyncio
import contextlib
import os
import random
import signal
import statistics
import sys
import time
from typing import Any

import numpy as np
from _harness import arguments, kind_of
from _record import Record

import callboard as cb

ROWS, WIDTH = 7, 8
"""Samples of a batch, uneven for two devices, and features."""

TRAINERS = "data", "zero", "tensor", "pipeline"

PHASES = "noticed", "ready", "state", "joined", "repeated"
"""Of a recovery; see ``cb.StepRecovery``."""

LONGEST = 3
"""Recoveries whose phases are shown."""

TIME = 300.0
"""Seconds that a step may take."""


def model() -> Any:
    """A model with running means and random numbers."""
    import torch

    nn = torch.nn
    parts = nn.Linear(WIDTH, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 16), nn.Linear(16, WIDTH)
    return nn.Sequential(*parts)


def trainer(name: str, devices: list[cb.Device]) -> Any:
    """A trainer of these devices."""
    given: dict[str, Any] = {
        "loss": cb.LossKind.Mse(),
        "optimizer": cb.OptimizerKind.AdamW(lr=0.01),
        "devices": devices,
        "snapshot_every": 5,
        "gradient_clip": 1.0,
    }
    if name in ("data", "zero"):
        return cb.DataParallelTrainer(model, shard=None if name == "data" else "zero1", **given)
    if name == "tensor":
        return cb.TensorParallelTrainer(model, plan={"3": "column", "4": "row"}, **given)
    return cb.PipelineParallelTrainer(model, stages=2, micro_batch_size=5, pipeline_schedule="zero-bubble", **given)


class Run:
    """A trainer whose devices are killed now and then.

    Args:
        kind: Of the devices.
        seed: Of the random numbers.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self._kind = kind
        self._draw = random.Random(seed)
        self.count = 0
        self.seconds: list[float] = []
        self.recoveries: list[Any] = []

    async def train(self, name: str, data: list[Any], kills: int) -> tuple[list[Any], dict[str, Any]]:
        """Numbers of all steps, and the weights at their end."""
        when = set(self._draw.sample(range(2, len(data)), kills))
        standby: Any = "hot" if kills else None
        async with cb.System() as system:
            devices = [
                await system.device(f"{self._kind}:{rank}", isolation="process", standby=standby, max_restarts=None)
                for rank in range(2)
            ]
            numbers, usual = [], 0.01
            async with trainer(name, devices) as training:
                for number, batch in enumerate(data):
                    if number in when:
                        await asyncio.gather(*(device.standby_ready() for device in devices))
                    began = time.perf_counter()
                    step = asyncio.ensure_future(asyncio.wait_for(training.step(batch), TIME))
                    if number in when:
                        await asyncio.sleep(self._draw.random() * usual)
                        self._kill(devices)
                    stats = await step
                    took = time.perf_counter() - began
                    if stats.recovery is None:
                        usual = 0.9 * usual + 0.1 * took
                    else:
                        self.seconds.append(took)
                        self.recoveries.append(stats.recovery)
                    numbers.append((stats.step, stats.loss, stats.grad_norm))
                    _tell(number + 1, len(data), self.count)
                return numbers, await training.state_dict()

    def _kill(self, devices: list[cb.Device]) -> None:
        victims = devices if self._draw.random() < 0.1 else [self._draw.choice(devices)]
        killed = 0
        for device in victims:
            pid = device.health().host_pid
            with contextlib.suppress(ProcessLookupError):  # of the kill before, which is not noticed yet
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        self.count += killed > 0


def _tell(step: int, steps: int, kills: int) -> None:
    if step % 20 == 0 or step == steps:
        print(f"\r  step {step} of {steps}, {kills} kills", end="", file=sys.stderr, flush=True)


def equal(calm: tuple[list[Any], dict[str, Any]], disturbed: tuple[list[Any], dict[str, Any]]) -> str:
    """What differs; empty: nothing."""
    import torch

    steps = [one[0] for one, other in zip(calm[0], disturbed[0], strict=True) if one != other]
    weights = [name for name, value in calm[1].items() if not torch.equal(value, disturbed[1][name])]
    return f"steps {steps[:5]}, weights {weights[:5]}" if steps or weights else ""


def main() -> None:
    def extend(parser: Any) -> None:
        parser.add_argument("--kills", type=int, default=100, help="of each trainer (default 100)")
        parser.add_argument("--trainer", choices=TRAINERS, help="all of them by default")
        parser.add_argument("--seed", type=int, default=0)

    given = arguments(__doc__, rounds=1, extend=extend)
    kind = kind_of(given.device)
    if kind == "cpu":
        os.environ.setdefault("CALLBOARD_CPU_DEVICES", "2")
    kills = 3 if given.quick else given.kills
    record, failed = Record("train_kills", given), False
    draw = np.random.default_rng(given.seed)
    data = [tuple(draw.standard_normal((2, ROWS, WIDTH)).astype("f4")) for _ in range(3 * kills + 2)]
    for name in [given.trainer] if given.trainer else TRAINERS:
        killed = Run(kind, given.seed)
        calm = asyncio.run(Run(kind, given.seed).train(name, data, 0))
        disturbed = asyncio.run(killed.train(name, data, kills))
        differs = equal(calm, disturbed)
        failed |= bool(differs)
        again = len(killed.seconds)
        middle = statistics.median(killed.seconds) if killed.seconds else 0.0
        most = max(killed.seconds, default=0.0)
        print(
            f"\n{name}: {len(data)} steps, {killed.count} kills, {again} steps recovered: "
            f"{differs or 'the same bits'}; such a step took {middle:.3f} s (median), {most:.3f} s (most)"
        )
        micros = {one: statistics.median(getattr(each, one) for each in killed.recoveries) for one in PHASES if again}
        print("  median of each phase, ms: " + ", ".join(f"{one} {value / 1000:.1f}" for one, value in micros.items()))
        longest = sorted(killed.recoveries, key=lambda each: -each.total)[:LONGEST]
        print("  the longest: " + "; ".join(map(str, longest)))
        record[name] = {
            "steps": len(data),
            "kills": killed.count,
            "recovered": again,
            "differs": differs,
            "seconds": killed.seconds,
            "phases_micros": micros,
            "recoveries": [{one: getattr(each, one) for one in (*PHASES, "steps")} for each in killed.recoveries],
        }
    record.done([])
    sys.exit(failed)


if __name__ == "__main__":
    main()
