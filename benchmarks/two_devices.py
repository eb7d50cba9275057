"""All that several devices are measured by, as one command within two minutes: copies, all-reduces, a lost rank.

    python benchmarks/two_devices.py --json two_devices.json
    python benchmarks/two_devices.py --device cpu --quick

It runs ``p2p.py`` (an array from one device to another, beside the raw copy by CUDA IPC) and ``collectives.py``
(all-reduces of 8 KiB and 1 GiB beside torch.distributed and nccl4py, and the world back after a rank is killed), one
after the other. A program that does not end in its time is told to; the rounds that are complete count.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _harness import Bar, arguments, tell_bars
from _record import Record

COPIES = 0.35
"""Of the time, what the copies may take."""
GRACE = 5.0
"""Seconds in which a program that was told to end stores what it has."""


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=115.0, help="that all of it may take (115)")


def run(name: str, given: Any, folder: Path, seconds: float) -> dict[str, Any]:
    """The record of one program; what it had stored, where it took too long."""
    out = folder / f"{name}.json"
    command = [sys.executable, str(Path(__file__).with_name(f"{name}.py")), "--device", given.device]
    command += ["--rounds", str(given.rounds), "--json", str(out), *(["--quick"] if given.quick else [])]
    # A group of its own: the ranks and hosts that it starts end with it.
    process = subprocess.Popen(command, start_new_session=True)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        print(f"{name} takes longer than {seconds:.0f} s and is told to end", file=sys.stderr)
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    found: dict[str, Any] = json.loads(out.read_text("utf-8")) if out.exists() else {"results": {}}
    return {**found, "exit": process.returncode}


def main() -> None:
    given = arguments(__doc__, rounds=3, extend=_extend)
    record = Record("two_devices", given)
    ends = time.monotonic() + given.seconds - 2 * GRACE
    bars: list[Bar] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        for program, share in (("p2p", COPIES), ("collectives", 1.0)):
            left = max(GRACE, ends - time.monotonic())
            found = run(program, given, Path(name), left * share)
            record[program] = {"results": found["results"], "exit": found["exit"]}
            bars += [Bar(b["what"], b["value"], b["limit"], b["at_least"]) for b in found.get("bars", [])]
            if found["exit"]:
                failed.append(program)
    record.done(tell_bars(bars))
    if failed:
        sys.exit(f"not to their end: {', '.join(failed)}")


if __name__ == "__main__":
    main()
