"""Time lost by the demo when its context dies midway, compared with the same job and fault in plain torch.

    python benchmarks/demo.py --json demo.json
    python benchmarks/demo.py --quick --device cpu      # without torch

Each round is one run of ``callboard demo`` in a process of its own. The time lost is that from the fault to the
checkpoint that it delayed; torch has to start a process again for it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _harness import arguments, spread
from _record import Record

from callboard.cli.parts.progress import Progress

LIMIT = 120
FIGURES = {"callboard": "delay", "callboard, takeover": "takeover", "torch": "torch_delay"}


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--standby", choices=("hot", "warm", "none"), default="hot")


def _run(given: Any, torch: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
        out = Path(folder) / "demo.json"
        command = [sys.executable, "-m", "callboard", "demo", "--device", given.device, "--standby", given.standby]
        command += ["--json", str(out), *(["--versus", "torch"] if torch else [])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        if done.returncode:
            raise RuntimeError(f"the demo failed:\n{done.stdout}{done.stderr}")
        found: dict[str, Any] = json.loads(out.read_text("utf-8"))
        return found


def _results(runs: list[dict[str, Any]]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, key in FIGURES.items():
        values = [run[key] for run in runs if run[key] is not None]
        if values:
            results[name] = {**spread(values), "values": values}
    results["difference"] = max(run["difference"] for run in runs)
    results["generations"] = [run["generations"] for run in runs]
    return results


def main() -> None:
    given: Any = arguments(__doc__, rounds=3, extend=_extend)
    record = Record("demo", given)
    runs: list[dict[str, Any]] = []
    results: dict[str, Any] = {}
    with Progress("demo", given.rounds) as progress:
        for i in range(given.rounds):
            runs.append(_run(given, torch=not given.quick))
            results = _results(runs)
            record.update(results)
            progress.show(i + 1)
    print(f"\ntime lost in the demo, {given.standby} standby: seconds")
    for name in FIGURES:
        if name in results:
            low, median, high = (results[name][key] for key in ("min", "median", "max"))
            print(f"  {name:24} {median:.4f} ({low:.4f} to {high:.4f})")
    print(f"explained variance differs from NumPy's by {results['difference']:.1e} at most")
    record.done([])


if __name__ == "__main__":
    main()
