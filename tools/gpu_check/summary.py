"""Summaries of runs, as ``docs/hardware/`` keeps them: JSON with one line per test file and benchmark.

``python -m gpu_check.summary RECORD...`` (with ``tools`` and ``src`` on the path) does so for full records from other
machines.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpu_check.groups import ROOT

__all__ = ["HARDWARE", "Summary", "stored", "summary_of", "written"]

HARDWARE = ROOT / "docs" / "hardware"
FAILURES = 20
"""Failed cases that a summary names."""
DIGITS = 6
"""Significant ones of a figure."""
NOT_FIGURES = ("held", "plans")
"""Results of benchmarks that no page shows."""

Summary = dict[str, Any]
PROBED = ("at", "commit", "dirty", "backend", "device", "driver", "cores", "packages")


def stored(folder: Path = HARDWARE) -> list[Summary]:
    """The summaries, newest first; each with its ``name``."""
    found = [json.loads(path.read_text("utf-8")) | {"name": path.stem} for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda one: str(one["probe"]["at"]), reverse=True)


def summary_of(record: Mapping[str, Any]) -> Summary:
    """What is kept of a full record."""
    probe = record["probe"]
    found: Summary = {"probe": {key: probe[key] for key in PROBED if probe.get(key) not in (None, "")}}
    found["probe"].setdefault("commit", None)
    found["probe"].setdefault("dirty", None)
    for name, section in record.get("sections", {}).items():
        ended = {key: section[key] for key in ("code", "seconds", "timed_out", "chosen") if section.get(key)}
        found[name] = {"ended": ended, **_suites(section["cases"]), **_failures(section["cases"])}
    for tool, one in record.get("sanitizer", {}).items():
        found.setdefault("sanitizer", {})[tool] = one
    used = _libraries(record.get("ops", {}))
    if used:
        found["libraries"] = used
    for name, benchmark in record.get("benchmarks", {}).items():
        found.setdefault("benchmarks", {})[name] = _figures(benchmark)
    return found


def _suites(cases: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Counts by test file."""
    counts: dict[str, Counter[str]] = {}
    for case, result in sorted(cases.items()):
        counts.setdefault(case.partition("::")[0], Counter())[str(result["outcome"])] += 1
    return {file: dict(count) for file, count in counts.items()}


def _failures(cases: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """The first failed cases, each with the last line of why."""
    failed = {case: result for case, result in sorted(cases.items()) if result["outcome"] == "failed"}
    shown = {case: result.get("why", "").rstrip().rpartition("\n")[2][:200] for case, result in failed.items()}
    first = dict(list(shown.items())[:FAILURES])
    if len(failed) > FAILURES:
        first["..."] = f"{len(failed) - FAILURES} more"
    return {"failures": first} if first else {}


def _libraries(ops: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By library: in how many cases that passed each op was executed, and by which of several engines."""
    found: dict[str, dict[str, Any]] = {}
    for tag, used in sorted(ops.items()):
        library, _, op = tag.partition(".")
        entry = found.setdefault(library, {"ops": {}})
        if used["passed"]:
            entry["ops"][op] = used["passed"]
        for engine, passed in used.get("engines", {}).items():
            engines = entry.setdefault("engines", {})
            engines[engine] = engines.get(engine, 0) + passed
    return found


def _figures(benchmark: Mapping[str, Any]) -> dict[str, Any]:
    """A benchmark's figures: ``[minimum, median, maximum]`` of each subject, single numbers as they are."""
    found: dict[str, Any] = {}
    ended = benchmark.get("ended", {})
    if ended.get("timed_out") or ended.get("code"):
        found["ended"] = ended
    if "left_out" in benchmark:
        found["left_out"] = benchmark["left_out"]
    if "rounds" in benchmark.get("settings", {}):
        found["rounds"] = benchmark["settings"]["rounds"]
    bars = [bar for bar in benchmark.get("bars", ()) if bar["held"] is not None]
    if bars:
        missed = {bar["what"]: [_short(bar["value"]), bar["limit"]] for bar in bars if not bar["held"]}
        found["bars"] = {"held": len(bars) - len(missed), "missed": missed}
    results = benchmark.get("results", {})
    numbers = {key: _short(value) for key, value in results.items() if isinstance(value, int | float)}
    if numbers:
        found["numbers"] = numbers
    tables = {key: value for key, value in results.items() if isinstance(value, dict) and key not in NOT_FIGURES}
    return found | {key: dict(_flat(value)) for key, value in tables.items()}


def _flat(found: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Spreads as lists; what is nested in one, or in a part, under both names, with a comma between."""
    if "median" in found:
        yield prefix or "all", [_short(found[key]) for key in ("min", "median", "max")]
        if isinstance(found.get("speed"), dict):
            yield from _flat(found["speed"], f"{prefix}, speed")
        return
    for key, value in found.items():
        name = f"{prefix}, {key}" if prefix else key
        if isinstance(value, dict):
            yield from _flat(value, name)
        elif isinstance(value, int | float):
            yield name, _short(value)


def _short(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.{DIGITS}g}")


def written(summary: Summary) -> str:
    """JSON with one test file or benchmark on a line."""
    depths = {"probe": 0, "libraries": 0, "benchmarks": 1}
    parts = {key: _lines(value, depths.get(key, 1), " ") for key, value in summary.items() if key != "name"}
    return "{\n" + ",\n".join(f" {_json(key)}: {text}" for key, text in parts.items()) + "\n}\n"


def _lines(value: Any, depth: int, indent: str) -> str:
    """A dict spread over lines, ``depth`` levels deep."""
    if not depth or not isinstance(value, dict) or not value:
        return _json(value)
    rows = (f"{indent} {_json(key)}: {_lines(one, depth - 1, indent + ' ')}" for key, one in value.items())
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def main(paths: list[str]) -> int:
    """Write the summaries of full records, under the same names."""
    for path in map(Path, paths):
        record = json.loads(path.read_text("utf-8"))
        (HARDWARE / path.name).write_text(written(summary_of(record)), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
