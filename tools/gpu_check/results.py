"""From the lines that tests left to a record. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

__all__ = ["BY", "OF", "cases_of", "counts_of", "uses_of"]

BY = " by "
"""Between an op's tag and the engine that executed it, in what a test leaves."""
OF = " of "
"""Between an op's tag and the dtype of its first operand."""

Line = Mapping[str, Any]


def cases_of(lines: Iterable[Line]) -> dict[str, dict[str, Any]]:
    """One entry per case: its outcome, seconds, and why it did not pass. A failed teardown fails its case."""
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        case = found.setdefault(line["case"], {"outcome": "passed", "seconds": 0.0})
        case["seconds"] = round(case["seconds"] + line["seconds"], 4)
        if line["outcome"] != "passed" and case["outcome"] != "failed":
            case["outcome"] = line["outcome"]
            case["why"] = line["why"]
    return found


def counts_of(cases: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """How many passed, failed and were skipped."""
    return dict(Counter(str(case["outcome"]) for case in cases.values()))


def uses_of(lines: Iterable[Line], tags: Collection[str]) -> dict[str, dict[str, Any]]:
    """For each op that tests executed on CUDA: how many of these tests passed and failed.

    Also how many of those passed in which its first operand had each dtype, and, where its library has several engines,
    in which each of them executed it.
    """
    lines = list(lines)
    cases = cases_of(lines)
    used: dict[str, set[str]] = {}
    for line in lines:
        for what in line["ops"]:
            used.setdefault(what, set()).add(line["case"])
    counts = {
        what: {o: sum(cases[c]["outcome"] == o for c in names) for o in ("passed", "failed")}
        for what, names in sorted(used.items())
    }
    found: dict[str, dict[str, Any]] = {}
    for what, count in counts.items():
        tag, _, engine = what.partition(BY)
        tag, _, dtype = tag.partition(OF)
        if tag not in tags:
            continue
        if engine or dtype:
            found[tag].setdefault("engines" if engine else "dtypes", {})[engine or dtype] = count["passed"]
        else:
            found[tag] = dict(count)
    return found
