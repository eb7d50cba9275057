"""The program: probe, tests, benchmarks, one JSON file."""

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from callboard.testing.gpu_check.results import cases_of, counts_of, proofs_of
from callboard.testing.gpu_check.sections import FOLDERS, TESTS, benchmark_section, cards_of, probe, test_section
from callboard.testing.gpu_check.sources import ROOT, op_sources

SECTIONS = (*TESTS, "bench")
SHARES = {"conformance": 0.15, "faults": 0.5, "bench": 0.35}
"""Of the time: what one section leaves goes to the next."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("callboard.testing.gpu_check", description="Proof on this machine's GPU, as JSON.")
    parser.add_argument("--out", type=Path, help="where to; docs/hardware/<date>-<gpu>.json by default")
    parser.add_argument("--only", choices=SECTIONS, action="append", help="this section; may be given several times")
    parser.add_argument("--seconds", type=float, default=900.0, help="for everything together (900)")
    parser.add_argument("--workers", type=int, default=4, help="pytest-xdist workers for the conformance suites (4)")
    parser.add_argument("--tests", action="append", default=[], metavar="PATH", help="these tests only")
    parser.add_argument("--benchmark", action="append", default=[], metavar="NAME", help="these benchmarks only")
    parser.add_argument("--quick", action="store_true", help="the benchmarks in their short form")
    parser.add_argument("--commit", help="what is checked, where the source tree has no git folder of its own")
    parser.add_argument(
        "--tree", help=f"git ls-tree COMMIT {' '.join(FOLDERS)} | git mktree: shows that what lies here is that"
    )
    parser.add_argument("--device", default="cuda", help='for probe and benchmarks ("cuda")')
    return parser.parse_args()


def main() -> int:
    """Run the sections; 1 when a test failed, a section was cut short or ran nothing."""
    given = _arguments()
    sections = given.only or list(SECTIONS)
    deadline = time.monotonic() + given.seconds
    if given.commit:
        os.environ["CALLBOARD_COMMIT"] = given.commit  # the benchmarks record it too
    record: dict[str, Any] = {"probe": probe(given.device, given.commit, given.tree), "sections": {}}
    cards = cards_of(record["probe"], given.device)
    out = given.out or _default_path(record["probe"])
    lines: list[dict[str, Any]] = []
    good = True
    for i, name in enumerate(sections):
        share = SHARES[name] / sum(SHARES[later] for later in sections[i:])
        seconds = max(0.0, deadline - time.monotonic()) * share
        _say(f"== {name}, at most {seconds:.0f} s")
        if name == "bench":
            record["benchmarks"] = {}
            for what, one in benchmark_section(given.device, seconds, given.quick, given.benchmark):
                record["benchmarks"][what] = one
                good &= one["ended"]["code"] == 0
                _store(out, record, lines)
        else:
            found, ended = test_section(
                name, seconds, given.workers if name == "conformance" else 1, given.tests, cards
            )
            lines += found
            cases = cases_of(found)
            record["sections"][name] = {**ended, "counts": counts_of(cases)}
            good &= ended["code"] == 0
        _store(out, record, lines)
    _say(f"{out}: {json.dumps(record.get('counts', {}))}")
    return 0 if good else 1


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _store(out: Path, record: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """Write what there is so far."""
    cases = cases_of(lines)
    record |= {"counts": counts_of(cases), "ops": proofs_of(lines, op_sources("cuda")), "cases": cases}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


def _default_path(found: dict[str, Any]) -> Path:
    gpu = re.sub(r"[^a-z0-9]+", "-", str(found["device"]).lower()).strip("-")
    return ROOT / "docs" / "hardware" / f"{str(found['at'])[:10]}-{gpu}.json"


if __name__ == "__main__":
    sys.exit(main())
