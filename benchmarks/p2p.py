"""Speed of array copies between devices: ``dev_b.put(ref_of_a)``.

    python benchmarks/p2p.py --json p2p.json
    python benchmarks/p2p.py --quick --device cpu

On two GPUs between them; on one between two context hosts of it, where the copy engine reads and writes one memory.
Beside it on CUDA: the same copy of memory that another process has exported, by the runtime directly. On a CPU between
two processes (through shared memory) and between two threads; beside it one thread's ``memcpy``. Every subject has a
process of its own, and the rounds are interleaved. The first round opens and touches the memory and is not counted.
"""

import argparse
import os
from collections.abc import Callable
from typing import Any

from _harness import Bar, arguments, interleave, kind_of, ratios, table, tell_bars
from _record import Record
from _worker import Worker, workers

from callboard.core import registry

MIB = 1 << 20


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mib", type=float, help="size of the array (256; with --quick 16)")


def _call(worker: Worker, what: str, nbytes: int, count: int) -> Callable[[], float]:
    return lambda: worker.measure(what, nbytes=nbytes, count=count)


def main() -> None:
    given: Any = arguments(__doc__, rounds=7, extend=_extend)
    kind = kind_of(given.device)
    nbytes = int((given.mib or (16 if given.quick else 256)) * MIB) // 4096 * 4096
    record = Record("p2p", given)
    record["nbytes"] = nbytes
    if kind == "cpu":
        os.environ["CALLBOARD_CPU_DEVICES"] = "2"
        there = ("cpu:0", "cpu:1")
        wanted: dict[str, tuple[str, ...]] = {
            "processes": ("_subject_peers.py", *there, "process"),
            "threads": ("_subject_peers.py", *there, "thread"),
            "memcpy": ("_subject_cpu.py", "numpy"),
        }
        base = "memcpy"
    else:
        second = min(1, len(registry.backend("cuda").devices()) - 1)
        record["gpus"] = second + 1
        wanted = {
            "processes": ("_subject_peers.py", "cuda:0", f"cuda:{second}", "process"),
            "IPC": ("_subject_ipc.py", "0", str(second)),
        }
        base = "IPC"
    count = 4 if given.quick else 20
    with workers(wanted) as running:

        def subjects(what: str, size: int) -> dict[str, Callable[[], float]]:
            return {
                name: (lambda worker=worker: worker.measure("memcpy", nbytes=size))  # type: ignore[misc]
                if name == "memcpy"
                else _call(worker, what, size, count)
                for name, worker in running.items()
            }

        found = interleave(subjects("pipelined", nbytes), given.rounds + 1, f"{nbytes / MIB:g} MiB")
        found = {name: values[1:] for name, values in found.items()}
        speeds = {name: [nbytes / 1e9 / seconds for seconds in values] for name, values in found.items()}
        record["pipelined"] = table(f"{nbytes / MIB:g} MiB, pipelined: GB/s", speeds, lambda v: f"{v:.2f}", base)
        asked = interleave(subjects("ask", 4096), given.rounds + 1, "4 KiB")
        asked = {name: values[1:] for name, values in asked.items()}
        record["ask"] = table("4 KiB, awaited", asked, lambda v: f"{v * 1e6:.1f} us", base)
    ratio = ratios(found, "IPC", "processes")
    record.done(tell_bars([Bar("pipelined: IPC / processes", ratio and ratio["median"], 0.95, True)]))


if __name__ == "__main__":
    main()
