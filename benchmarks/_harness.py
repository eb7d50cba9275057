"""What the benchmarks share: arguments, interleaved rounds, ratios, the record of where they ran.

A ratio is taken between two figures of the same round, measured one after the other, so that a neighbour on the machine
slows both; printed are its minimum, median and maximum over all rounds.
"""

import argparse
import datetime as dt
import json
import os
import statistics
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from callboard.cli.doctor import machine
from callboard.cli.progress import Progress
from callboard.core import registry

ROOT = Path(__file__).resolve().parent.parent

Figures = dict[str, list[float]]
Spread = dict[str, float]


class Bar(NamedTuple):
    """What a figure must reach.

    Attributes:
        what: The figure, as it is printed.
        value: What was measured; None: not measured here.
        limit: To be reached.
        at_least: Or at most.
    """

    what: str
    value: float | None
    limit: float
    at_least: bool

    @property
    def held(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def arguments(
    description: str | None, rounds: int, extend: Callable[[argparse.ArgumentParser], None] | None = None
) -> Any:
    """The arguments that all benchmarks take, and those that ``extend`` adds."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help='"auto" (default), "cpu", "cuda", "cuda:1" or a UUID')
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds: under a minute on a CPU")
    parser.add_argument("--json", type=Path, help="store the figures there")
    if extend is not None:
        extend(parser)
    found = parser.parse_args()
    if found.quick:
        found.rounds = min(found.rounds, 3)
    return found


def interleave(subjects: dict[str, Callable[[], float]], rounds: int, what: str = "") -> Figures:
    """Measure every subject once per round, in turn (A B A B …); the order is turned around every other round."""
    found: Figures = {name: [] for name in subjects}
    with Progress(what, rounds * len(subjects)) as progress:
        done = 0
        for turn in range(rounds):
            for name in list(subjects) if turn % 2 == 0 else list(reversed(subjects)):
                found[name].append(subjects[name]())
                progress.show(done := done + 1)
    return found


def spread(values: Sequence[float]) -> Spread:
    """Minimum, median and maximum."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def ratios(found: Figures, of: str, to: str) -> Spread | None:
    """The ratio of two subjects, round by round; None unless both were measured."""
    if of not in found or to not in found:
        return None
    return spread([a / b for a, b in zip(found[of], found[to], strict=True)])


def table(title: str, found: Figures, show: Callable[[float], str], to: str) -> dict[str, Any]:
    """Print the figures and their ratios to the subject ``to``; gives them for the JSON."""
    print(f"\n{title}")
    print(f"  {'':28} {'min':>12} {'median':>12} {'max':>12}   ratio to {to}: min, median, max")
    result: dict[str, Any] = {}
    for name, values in found.items():
        figures, ratio = spread(values), ratios(found, name, to)
        shown = " ".join(f"{show(figures[key]):>12}" for key in ("min", "median", "max"))
        compared = "" if ratio is None or name == to else " ".join(f"{ratio[k]:7.3f}" for k in ("min", "median", "max"))
        print(f"  {name:28} {shown}   {compared}")
        result[name] = {**figures, "values": values, "ratio": ratio}
    return result


def tell_bars(bars: Sequence[Bar]) -> list[dict[str, Any]]:
    """Print whether each is held; gives them for the JSON."""
    if bars:
        print()
    for bar in bars:
        side = "at least" if bar.at_least else "at most"
        value = "not measured" if bar.value is None else f"{bar.value:.4g}"
        print(f"bar: {bar.what}: {value} ({side} {bar.limit:g}): {'-' if bar.held is None else bar.held}")
    return [{**bar._asdict(), "held": bar.held} for bar in bars]


def kind_of(device: str) -> str:
    """``"cpu"`` or ``"cuda"``: what a name means here."""
    return registry.resolve(device)[0].name


def environment(device: str) -> dict[str, Any]:
    """Where this runs: commit, versions, CPU, GPU, driver."""
    backend, info = registry.resolve(device)
    return {
        "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": os.environ.get("CALLBOARD_COMMIT") or _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain")),
        "backend": backend.name,
        "device": info.name,
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "driver": machine.driver().detail,
        "packages": {name: version for name, version in machine.packages().items() if version},
        "threads": {name: os.environ.get(name) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")},
        **{what: value for what, value in machine.system().items() if what != "executable"},
    }


def save(path: Path | None, name: str, given: Any, results: dict[str, Any], bars: list[dict[str, Any]]) -> None:
    """Store a run as JSON."""
    if path is None:
        return
    settings = {key: value for key, value in vars(given).items() if key != "json"}
    record = {"benchmark": name, "environment": environment(given.device), "settings": settings}
    path.write_text(json.dumps({**record, "results": results, "bars": bars}, indent=2) + "\n", "utf-8")


def _git(*command: str) -> str | None:
    try:
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
