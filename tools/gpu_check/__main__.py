"""``scripts/gpu-check``: probe, tests, benchmarks; a full record for inspection, a summary for ``docs/hardware``."""

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from callboard.core.op import info_of
from gpu_check.changed import changed_since, groups_to_run, users_of
from gpu_check.coverage import proofs
from gpu_check.groups import FAULTS, ROOT, libraries, ops_of, suite_group, suites
from gpu_check.results import cases_of, counts_of, uses_of
from gpu_check.sanitizer import SECTION as SANITIZER
from gpu_check.sections import FOLDERS, NoDevice, benchmark_section, cards_of, memory_of, probe, sanitized, test_section
from gpu_check.summary import HARDWARE, stored, summary_of, written

SECTIONS = ("conformance", "faults", "bench")
ASKED = ("slow", SANITIZER)
"""Sections that run only where they are named: ``--only sanitizer``."""
SHARES = {"conformance": 0.5, "faults": 0.15, "bench": 0.35, "slow": 1.0, SANITIZER: 1.0}
"""Share of the time; what one section leaves goes to the next."""
RECORDS = ROOT / "build" / "gpu-check"


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("gpu-check", description="Tests and measurements on this machine's GPU.")
    parser.add_argument("--name", help="of the two files; <date>-<gpu> by default")
    parser.add_argument("--summaries", type=Path, default=HARDWARE, help="folder of the summary (docs/hardware)")
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of the full record (build/gpu-check)")
    parser.add_argument(
        "--only", choices=(*SECTIONS, *ASKED), action="append", help="this section; may be given several times"
    )
    parser.add_argument("--seconds", type=float, default=1800.0, help="for everything together (1800)")
    parser.add_argument("--workers", type=int, default=4, help="pytest-xdist workers; half of them for the faults (4)")
    parser.add_argument("--tests", action="append", default=[], metavar="PATH", help="these tests only")
    parser.add_argument("--changed", action="store_true", help="the tests of what changed since each last passed")
    parser.add_argument("--list", action="store_true", help="with --changed: say which these are, run nothing")
    parser.add_argument("--benchmark", action="append", default=[], metavar="NAME", help="these benchmarks only")
    parser.add_argument("--quick", action="store_true", help="the benchmarks in their short form")
    parser.add_argument("--commit", help="what is checked, where the source tree has no git folder of its own")
    parser.add_argument(
        "--tree", help=f"git ls-tree COMMIT {' '.join(FOLDERS)} | git mktree: shows that what lies here is that"
    )
    parser.add_argument("--device", default="cuda", help='for probe and benchmarks ("cuda")')
    given = parser.parse_args(arguments)
    if given.changed and (given.tests or given.only):
        parser.error("--changed chooses sections and tests itself: leave --only and --tests out")
    if given.list and not given.changed:
        parser.error("--list belongs to --changed")
    return given


def main(arguments: list[str] | None = None) -> int:
    """Run the sections; 1 when a test failed, a section was cut short or ran nothing; 2 when there is no device."""
    given = _arguments(arguments)
    selected: dict[str, list[str]] = {section: list(given.tests) for section in given.only or SECTIONS}
    if given.changed:
        selected = _changed()
        if given.list or not selected:
            return 0
    deadline = time.monotonic() + given.seconds
    if given.commit:
        os.environ["CALLBOARD_COMMIT"] = given.commit  # the benchmarks record it too
    try:
        record: dict[str, Any] = {"probe": probe(given.device, given.commit, given.tree), "sections": {}}
    except NoDevice as e:
        sys.stderr.write(f"scripts/gpu-check: {' '.join(str(e).split())}\n")
        return 2
    cards = cards_of(record["probe"], given.device)
    name = given.name or _default_name(record["probe"])
    lines: list[dict[str, Any]] = []
    good = True
    for i, section in enumerate(selected):
        share = SHARES[section] / sum(SHARES[later] for later in list(selected)[i:])
        seconds = max(0.0, deadline - time.monotonic()) * share
        _say(f"== {section}, at most {seconds:.0f} s")
        if section == "bench":
            record["benchmarks"] = {}
            memory = memory_of(record["probe"], given.device)
            for what, one in benchmark_section(given.device, seconds, given.quick, given.benchmark, memory):
                record["benchmarks"][what] = one
                if "left_out" in one:
                    _say(f"{what}: {one['left_out']}")
                good &= one["ended"]["code"] == 0
                _store(given, name, record, lines)
        elif section == SANITIZER:
            record[SANITIZER] = {}
            for tool, one in sanitized(seconds):
                record[SANITIZER][tool] = one
                good &= one["ended"]["code"] == 0 and one["errors"] == 0
                _store(given, name, record, lines)
        else:
            workers = max(1, given.workers // 2) if section == "faults" else given.workers
            found, ended = test_section(section, seconds, workers, selected[section], cards)
            lines += found
            record["sections"][section] = {**ended, "chosen": given.tests, "cases": cases_of(found)}
            good &= ended["code"] == 0
        _store(given, name, record, lines)
    counts = {section: counts_of(found["cases"]) for section, found in record["sections"].items()}
    _say(f"{given.summaries / name}.json: {json.dumps(counts)}")
    return 0 if good else 1


def _changed() -> dict[str, list[str]]:
    """By section: the tests of the groups that changed since they last passed."""
    names = libraries()
    wanted = groups_to_run(proofs(stored()), users_of(names), changed_since)
    _say(f"changed since their tests last passed: {', '.join(wanted) or 'nothing'}")
    chosen = [file for file in suites() if (group := suite_group(file, names)) in wanted and group != FAULTS]
    sections = {"conformance": chosen} if chosen else {}
    return sections | ({"faults": []} if FAULTS in wanted else {})


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _store(given: argparse.Namespace, name: str, record: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """Write what there is so far."""
    record["ops"] = uses_of(lines, {info_of(op).tag for op in ops_of("cuda")})
    for folder, text in (
        (given.records, json.dumps(record, indent=1) + "\n"),
        (given.summaries, written(summary_of(record))),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(text, "utf-8")


def _default_name(found: dict[str, Any]) -> str:
    device = found["device"] if found["backend"] == "cuda" else found["backend"]
    gpu = re.sub(r"[^a-z0-9]+", "-", str(device).lower().removeprefix("nvidia ")).strip("-")
    return f"{str(found['at'])[:10]}-{gpu}"


if __name__ == "__main__":
    sys.exit(main())
