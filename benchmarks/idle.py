"""Cost of an idle system: memory and CPU of the application and its hosts; and growth over many asks.

    python benchmarks/idle.py --json idle.json
    python benchmarks/idle.py --full        # growth over 1,000,000 asks instead of 100,000

One device, process isolation, warm standby. CPU use is what the kernel counted (user and system) over the idle time;
memory is PSS, in which pages shared by several processes count once in all, and RSS. On CUDA also the device memory
that a standby takes: how much less is free with it than without. Linux only.

Growth is measured behind as many asks again, and in what the processes hold of their own (not in the pages of
files, whose share changes with every other process that maps them). 10,000 asks are in flight at a time, and how many
of them pile up in the host is chance: an allocator takes more whenever it is more than ever before, and a table that
grows between small blocks leaves a hole. That ended within 750,000 of 4,000,000 asks; what is lost with each ask would
go on.
"""

import argparse
import asyncio
import gc
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Bar, arguments, kind_of, tell_bars
from _record import Record

import callboard as cb
from callboard.cli.demo.fault import standby_ready
from callboard.cli.parts.progress import Progress

MIB = 1 << 20
PARTS = 10
"""Of the asks; memory is looked at behind each, and medians of the first and the last half are compared."""
HALF = PARTS // 2
GROWTH = 2.0
"""MiB in all processes together that count as no growth: Python's allocator takes 1 MiB at a time in each of them."""


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, help="idle time (20; with --quick 5)")
    parser.add_argument("--full", action="store_true", help="1,000,000 asks")


def _children() -> list[int]:
    tasks = Path("/proc/self/task").iterdir()
    return sorted(int(pid) for task in tasks for pid in (task / "children").read_text("ascii").split())


def _memory(pid: int) -> dict[str, float]:
    """MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith(("Rss:", "Pss"))}
    return {"rss": found["Rss"], "pss": found["Pss"], "own": found["Pss_Anon"] + found["Pss_Shmem"]}


def _cpu(pid: int) -> float:
    """Seconds, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _idle(processes: dict[str, int], seconds: float) -> dict[str, dict[str, float]]:
    before = {name: _cpu(pid) for name, pid in processes.items()}
    start = time.monotonic()
    await asyncio.sleep(seconds)
    took = time.monotonic() - start
    return {
        name: {**_memory(pid), "cpu_percent": (_cpu(pid) - before[name]) / took * 100}
        for name, pid in processes.items()
    }


async def _asks(device: cb.Device, count: int) -> None:
    a = device.put(np.ones((8, 8), np.float32))
    with Progress("asks", count) as progress:
        for i in range(0, count, 10_000):
            n = min(10_000, count - i)
            refs = [device.blas.gemm(a, a) for _ in range(n)]
            await refs[-1]
            await device.drain()
            progress.show(i + n)


def _own(processes: dict[str, int]) -> float:
    """MiB that the processes hold, apart from the pages of files."""
    gc.collect()
    return sum(_memory(pid)["own"] for pid in processes.values())


async def _measure(given: Any, record: Record) -> dict[str, Any]:
    seconds = given.seconds or (5.0 if given.quick else 20.0)
    count = 1_000_000 if given.full else 20_000 if given.quick else 100_000
    bare = _memory(os.getpid())
    async with cb.device(given.device, isolation="process", standby="warm") as device:
        await standby_ready(device)
        host = device.health().host_pid
        processes = {"application": os.getpid(), "host": host}
        standby = [pid for pid in _children() if pid != host]
        if len(standby) != 1:
            raise RuntimeError(f"one standby is expected; the children are {standby}")
        processes["standby"] = standby[0]
        await _asks(device, 10_000)
        await asyncio.sleep(1.0)  # what was freed has left
        found: dict[str, Any] = {"bare": bare, "idle": await _idle(processes, seconds), "seconds": seconds}
        record.update(found)
        await _asks(device, count)
        held, took = [_own(processes)], 0.0
        for _ in range(PARTS):
            start = time.monotonic()
            await _asks(device, count // PARTS)
            took += time.monotonic() - start
            held.append(_own(processes))
        stats = await device.stats()
    found |= {
        "asks": count,
        "held": held,
        "growth": statistics.median(held[-HALF:]) - statistics.median(held[:HALF]),
        "asks_per_second": count / took,
        "buffers_left": stats.buffers,
    }
    record.update(found)
    return found


async def _device_memory(name: str) -> dict[str, float]:
    """MiB of the device that a standby takes, and that all the others and ours take without one."""
    free: dict[str, float] = {}
    for standby in (None, "warm", "hot"):
        async with cb.device(name, isolation="process", standby=standby) as device:
            if standby:
                await standby_ready(device)
            stats = await device.stats()
            free[str(standby)] = stats.free_bytes / MIB
            total = stats.total_bytes / MIB
    return {
        "in use without standby": total - free["None"],
        "warm standby": free["None"] - free["warm"],
        "hot standby": free["None"] - free["hot"],
    }


def main() -> None:
    given: Any = arguments(__doc__, rounds=1, extend=_extend)
    record = Record("idle", given)
    found = asyncio.run(_measure(given, record))
    if kind_of(given.device) == "cuda":
        record["device memory"] = found["device memory"] = asyncio.run(_device_memory(given.device))
        print("\ndevice memory: " + ", ".join(f"{what} {mib:.0f} MiB" for what, mib in found["device memory"].items()))
    print(f"\nidle for {found['seconds']:g} s")
    print(f"  {'':12} {'RSS, MiB':>10} {'PSS, MiB':>10} {'CPU, % of a core':>18}")
    for name, one in found["idle"].items():
        print(f"  {name:12} {one['rss']:10.1f} {one['pss']:10.1f} {one['cpu_percent']:18.2f}")
    cpu = sum(one["cpu_percent"] for one in found["idle"].values())
    memory = sum(one["pss"] for one in found["idle"].values())
    print(f"  {'all':12} {'':10} {memory:10.1f} {cpu:18.2f}")
    print(f"  {'before':12} {found['bare']['rss']:10.1f} {found['bare']['pss']:10.1f}")
    print(f"growth over {found['asks']:,} asks: {found['growth']:+.2f} MiB; {found['buffers_left']} buffers are left")
    bars = [
        Bar("CPU use of an idle system, % of a core", cpu, 0.5, False),
        Bar(f"growth over {found['asks']:,} asks, MiB", found["growth"], GROWTH, False),
    ]
    record.done(tell_bars(bars if kind_of(given.device) == "cpu" else bars[1:]))


if __name__ == "__main__":
    main()
