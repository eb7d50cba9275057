"""What the demo loses when its context is lost in the middle, beside the same job and fault in plain torch.

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

from _harness import arguments, save, spread

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


def main() -> None:
    given: Any = arguments(__doc__, rounds=3, extend=_extend)
    runs = [_run(given, torch=not given.quick) for _ in range(given.rounds)]
    results: dict[str, Any] = {}
    print(f"\ntime lost in the demo, {given.standby} standby: seconds")
    for name, key in FIGURES.items():
        values = [run[key] for run in runs if run[key] is not None]
        if values:
            results[name] = {**spread(values), "values": values}
            print(f"  {name:24} {results[name]['median']:.4f} ({min(values):.4f} to {max(values):.4f})")
    results["difference"] = max(run["difference"] for run in runs)
    results["generations"] = [run["generations"] for run in runs]
    print(f"explained variance differs from NumPy's by {results['difference']:.1e} at most")
    save(given.json, "demo", given, results, [])


if __name__ == "__main__":
    main()
