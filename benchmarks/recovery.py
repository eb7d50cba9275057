"""Unavailability of a device after a lost context: hot, warm and without a standby.

    python benchmarks/recovery.py --json recovery.json
    python benchmarks/recovery.py --quick --device cpu

Each round arms the fault, strikes, and calls put, gemm and get until a result is good again. On the CPU the fault is
SIGKILL of the host; on CUDA it is that and a kernel that writes to an illegal address, and the time is also given from
the driver's report on. ``--hold 100`` keeps so many GiB on the device that is lost.
"""

import argparse
import asyncio
import logging
import time
from typing import Any, NamedTuple

import numpy as np
from _harness import Bar, Figures, arguments, kind_of, spread, table, tell_bars
from _record import Record

import callboard as cb
from callboard.cli.demo.fault import Fault, fault_of, standby_ready
from callboard.cli.parts.progress import Progress

HOLD_BLOCK = 1 << 30
LIMIT = 120.0
"""Seconds for one recovery."""


class Recovery(NamedTuple):
    """Seconds of one recovery, to the next good result."""

    from_fault: float
    from_report: float


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hold", type=float, default=1.0, help="GiB that the lost context holds (CUDA; default 1)")
    parser.add_argument("--standby", choices=("hot", "warm", "cold"), help="only this one")
    parser.add_argument("--fault", choices=("kill", "illegal"), help="only this one")


async def _good_result(device: cb.Device, a: np.ndarray, expected: np.ndarray) -> float:
    """Try until a result comes back; when it did."""
    while True:
        try:
            ref = device.put(a)
            found = await device.blas.gemm(ref, ref).get()
        except cb.ContextLost:
            continue
        now = time.monotonic()
        if not np.allclose(found, expected):
            raise ValueError("a wrong result after the takeover")
        return now


async def _round(device: cb.Device, fault: Fault, hold: float, standby: bool) -> Recovery:
    a = np.random.default_rng(1).random((64, 64), np.float32)
    expected = a @ a
    await _good_result(device, a, expected)
    held = [await device.zeros(HOLD_BLOCK, "u8") for _ in range(int(hold))]
    if standby and not await standby_ready(device):
        raise RuntimeError(f"the standby is {device.health().standby}")
    lost: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def watch() -> None:
        async for event in device.events():
            if isinstance(event, cb.Lost):
                lost.set_result(event.at)
                return

    watcher = asyncio.create_task(watch())
    await asyncio.sleep(0)  # it listens
    await fault.ready()
    generation = device.generation
    struck = time.monotonic()
    await fault.strike()
    async with asyncio.timeout(LIMIT):
        while device.generation == generation:  # results of the old context are not counted
            try:
                ref = device.put(a)
                await device.blas.gemm(ref, ref)
            except cb.ContextLost:
                pass
        good = await _good_result(device, a, expected)
        report = await lost
    await watcher
    del held
    return Recovery(good - struck, good - report)


async def _measure(given: Any, standby: str, illegal: bool, hold: float) -> list[Recovery]:
    options = {"isolation": "process", "standby": None if standby == "cold" else standby, "max_restarts": None}
    async with cb.device(given.device, **options) as device:
        found = []
        fault = fault_of(device, illegal)
        with Progress(f"{standby}, {'illegal access' if illegal else 'kill'}", given.rounds) as progress:
            for i in range(given.rounds):
                found.append(await _round(device, fault, hold, standby != "cold"))
                progress.show(i + 1)
        return found


def _bars(kind: str, found: dict[tuple[str, str], list[Recovery]]) -> list[Bar]:
    def median(standby: str, fault: str, field: int) -> float | None:
        rounds = found.get((standby, fault))
        return None if rounds is None else spread([each[field] for each in rounds])["median"]

    if kind == "cpu":
        return [
            Bar(f"kill to good result, {standby}, seconds", median(standby, "kill", 0), 0.5, False)
            for standby in ("hot", "warm")
        ]
    return [
        Bar("illegal access to good result, hot, seconds", median("hot", "illegal", 0), 0.2, False),
        Bar("illegal access to good result, warm, seconds", median("warm", "illegal", 0), 0.6, False),
        Bar("report to good result, hot, seconds", median("hot", "illegal", 1), 0.005, False),
    ]


def _figures(found: dict[tuple[str, str], list[Recovery]]) -> dict[str, Figures]:
    figures: dict[str, Figures] = {"from the fault": {}, "from the report": {}}
    for (standby, fault), rounds in found.items():
        figures["from the fault"][f"{standby}, {fault}"] = [each.from_fault for each in rounds]
        figures["from the report"][f"{standby}, {fault}"] = [each.from_report for each in rounds]
    return figures


def main() -> None:
    given: Any = arguments(__doc__, rounds=5, extend=_extend)
    logging.getLogger("callboard").setLevel(logging.CRITICAL)  # the losses are ours
    kind = kind_of(given.device)
    hold = given.hold if kind == "cuda" else 0.0
    faults = [given.fault] if given.fault else ["kill", "illegal"] if kind == "cuda" else ["kill"]
    record = Record("recovery", given)
    found: dict[tuple[str, str], list[Recovery]] = {}
    for standby in [given.standby] if given.standby else ["hot", "warm", "cold"]:
        for fault in faults:
            found[standby, fault] = asyncio.run(_measure(given, standby, fault == "illegal", hold))
            record.update(
                {
                    title: {case: {**spread(values), "values": values} for case, values in figures.items()}
                    for title, figures in _figures(found).items()
                }
            )
    figures = _figures(found)
    base = next(iter(figures["from the fault"]))
    record.update(
        {
            title: table(
                f"{title} to the next good result, {hold:g} GiB held: ms", each, lambda s: f"{s * 1e3:.2f}", base
            )
            for title, each in figures.items()
        }
    )
    record.done(tell_bars(_bars(kind, found)))


if __name__ == "__main__":
    main()
