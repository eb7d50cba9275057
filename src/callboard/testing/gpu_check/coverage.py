"""``python -m callboard.testing.gpu_check.coverage [--write | --check]``: makes ``docs/coverage.md``.

What a backend executes is read from its launch tables, the dtypes by asking messages and libraries, and what has been
proven on hardware from ``docs/hardware/*.json``: an op counts as proven there when tests that used it passed, none
failed, and nothing that its execution rests on (:mod:`callboard.testing.gpu_check.sources`) has changed since. A test
that took its process along could not say which ops it used: it counts against all of its library.
"""

import argparse
import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from callboard._accepted import accepted
from callboard.core.dtype import DTYPES, DType
from callboard.core.op import info_of
from callboard.testing.gpu_check.sources import ROOT, all_ops, op_sources, ops_of

__all__ = ["coverage_page", "hardware_runs", "main"]

PAGE = ROOT / "docs" / "coverage.md"
HARDWARE = ROOT / "docs" / "hardware"
Run = dict[str, Any]

HEAD = """\
# Coverage

What each backend executes, and what of it has been proven on hardware. Made by
`python -m callboard.testing.gpu_check.coverage --write` from the launch tables and from `docs/hardware/`; a test checks
that it is up to date. `cb.supports(Gemm, dtype, device)` asks the same of one op.

The dtypes are those of the first operand ("all": every dtype that callboard has). "Proven on" names the GPU, the day
and the commit of a run of `scripts/gpu-check` in which tests used this op on CUDA and all of them passed. Where one
failed in the newest run of this source, it says "failed"; where the library of the op (`kernel/<library>`,
`backends/cuda/<library>`, and what these import), or the envelope in which every op runs, has changed since, "last
proven". A library with several engines (`tensor`: cuTENSOR, or cuBLAS and kernels of callboard's own, "builtin") is
proven with each on its own; the row names those with which the op was. Where the run tells, the row names dtypes that
no passing test used.
"""


def hardware_runs(folder: Path = HARDWARE) -> list[Run]:
    """The stored runs, newest first."""
    runs = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    return sorted((run for run in runs if "ops" in run), key=lambda run: str(run["probe"]["at"]), reverse=True)


def coverage_page(runs: list[Run]) -> str:
    """The page."""
    return "\n".join([HEAD, *_operations(runs), "", *_hardware(runs), ""])


def _operations(runs: list[Run]) -> Iterator[str]:
    cpu, cuda, sources = _dtypes("cpu"), _dtypes("cuda"), op_sources("cuda")
    yield "## Operations\n"
    yield "| op | CPU | CUDA | proven on |"
    yield "|---|---|---|---|"
    for op in all_ops():
        tag = info_of(op).tag
        proven = _proof(tag, sources[tag], runs, cuda[tag]) if tag in cuda else ""
        yield f"| `{tag}` | {_names(cpu.get(tag, []))} | {_names(cuda.get(tag, []))} | {proven} |"


@functools.cache  # it takes seconds: a process that makes several pages asks once
def _dtypes(backend: str) -> dict[str, list[DType]]:
    """What each op of a backend takes, by tag."""
    return {info_of(op).tag: accepted(op, library) for op, library in ops_of(backend).items()}


def _names(dtypes: list[DType]) -> str:
    return "all" if len(dtypes) == len(DTYPES) else " ".join(dtype.name for dtype in dtypes) or "no"


def _proof(tag: str, source: str, runs: list[Run], dtypes: list[DType]) -> str:
    """Where an op was last proven; of this source, with the dtypes of all runs of it.

    The newest run of this source decides: what it failed in, an older one does not prove.
    """
    used = [(run, run["ops"][tag]) for run in runs if tag in run["ops"]]
    newest = next(((run, found) for run, found in used if found["source"] == source), None)
    if newest is not None and _failed(tag, *newest):
        return f"failed: {_where(newest[0])}"
    good = [(run, found) for run, found in used if found["passed"] and not _failed(tag, run, found)]
    if not good:
        return "not yet"
    of_this = [(run, found) for run, found in good if found["source"] == source]
    proofs = of_this or good[:1]
    run, found = proofs[0]
    where = _where(run) + _engines(found) + _untried([found for _, found in proofs], dtypes)
    return where if of_this else f"last proven: {where}"


def _failed(tag: str, run: Run, found: dict[str, Any]) -> bool:
    return bool(found["failed"]) or tag.partition(".")[0] in _crashed(run)


def _crashed(run: Run) -> set[str]:
    """Libraries with a test that ended with its process."""
    lost = {
        Path(case.partition("::")[0]).stem.removeprefix("test_")
        for case, result in run.get("cases", {}).items()
        if "crashed while running" in result.get("why", "")
    }
    libraries = sorted({tag.partition(".")[0] for tag in run["ops"]}, key=len)  # of two that fit, the longer one
    return {fits[-1] for stem in lost if (fits := [name for name in libraries if f"{stem}_".startswith(f"{name}_")])}


def _engines(proof: dict[str, Any]) -> str:
    """With which engines of its library an op was proven."""
    names = [name for name, passed in sorted(proof.get("engines", {}).items()) if passed]
    return f", by {' and by '.join(names)}" if names else ""


def _untried(proofs: list[dict[str, Any]], dtypes: list[DType]) -> str:
    """The dtypes of its first operand with which an op was not executed; older runs do not tell."""
    told = [proof["dtypes"] for proof in proofs if "dtypes" in proof]
    names = [dtype.name for dtype in dtypes if told and not any(tried.get(dtype.name) for tried in told)]
    return f", not with {' '.join(names)}" if names else ""


def _where(run: Run) -> str:
    probe = run["probe"]
    commit = str(probe["commit"] or "unknown")[:10] + (", with changes" if probe["dirty"] else "")
    return f"{probe['device']}, {str(probe['at'])[:10]} ({commit})"


def _hardware(runs: list[Run]) -> Iterator[str]:
    yield "## Runs\n"
    if not runs:
        yield "None yet."
        return
    yield "| GPU | day | commit | driver | passed | failed | skipped |"
    yield "|---|---|---|---|---|---|---|"
    for run in runs:
        probe, counts = run["probe"], run["counts"]
        numbers = " | ".join(str(counts.get(outcome, 0)) for outcome in ("passed", "failed", "skipped"))
        commit = str(probe["commit"] or "unknown")[:10]
        yield f"| {probe['device']} | {str(probe['at'])[:10]} | {commit} | {probe['driver']} | {numbers} |"


def main(arguments: list[str] | None = None) -> int:
    """Print, write or check the page."""
    parser = argparse.ArgumentParser("callboard.testing.gpu_check.coverage", description=__doc__)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    action.add_argument("--check", action="store_true", help="exit with 1 if it is not up to date")
    given = parser.parse_args(arguments)
    page = coverage_page(hardware_runs())
    if given.write:
        PAGE.write_text(page, "utf-8")
    elif given.check:
        return int(not PAGE.exists() or PAGE.read_text("utf-8") != page)
    else:
        sys.stdout.write(page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
