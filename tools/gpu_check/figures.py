"""``scripts/readme-figures [--write | --check]``: the measured figures in ``README.md`` and ``docs/performance.md``.

The pages are written by hand; between the markers of a block stands what is generated from the summaries in
``docs/hardware``. Each figure is taken from the newest run that has it, and its row or block names that run.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpu_check.summary import Summary, stored

__all__ = ["BLOCKS", "HEADLINE", "PAGES", "Figure", "Problems", "main", "replaced"]

ROOT = Path(__file__).resolve().parents[2]
HEADLINE = "headline"
"""The block of README.md, whose marker has no name."""
BLOCK = re.compile(
    r"(?P<begin><!-- figures:begin (?:(?P<name>[\w-]+) )?\(made by scripts/readme-figures --write\) -->\n)"
    r"(?P<content>.*?)(?P<end><!-- figures:end -->)",
    re.DOTALL,
)
NONE_YET = """\
Not measured yet: `docs/hardware/` holds no run of it. `scripts/gpu-check` makes one, and
`scripts/readme-figures --write` puts its figures here."""

Results = dict[str, Any]


class Figure(NamedTuple):
    """A row: what was measured, and how a benchmark's results tell it."""

    what: str
    benchmark: str  # of `gpu_check.sections.BENCHMARKS`
    shown: Callable[[Results], str]  # raises KeyError where that run did not measure it
    backend: str = "cuda"


class Problems(NamedTuple):
    """A table: each problem of a benchmark, solved by callboard and by what stands beside it."""

    benchmark: str
    backend: str = "cuda"
    unit: str = ""
    """Of the speed beside the time."""
    peaks: dict[str, float] = {}  # noqa: RUF012 - never changed
    """By problem: what an H200 could do without sparsity, in that unit, as NVIDIA says."""


# -- numbers -----------------------------------------------------------------------------------------------------------


def _short(value: float) -> str:
    """Three significant digits, never as a power of ten."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _unit(seconds: float) -> tuple[float, str]:
    """The factor and the name of the unit that suits this time."""
    return next(((factor, unit) for factor, unit in ((1e6, "µs"), (1e3, "ms")) if seconds * factor < 1000), (1.0, "s"))


def _time(seconds: float) -> str:
    factor, unit = _unit(seconds)
    return f"{_short(seconds * factor)} {unit}"


def _median(spread: Sequence[float]) -> float:
    return spread[1]


def _recovery(start: str, case: str) -> Callable[[Results], str]:
    def shown(results: Results) -> str:
        spread = results[f"from the {start}"][case]
        factor, unit = _unit(_median(spread))
        low, median, high = (_short(value * factor) for value in spread)
        return f"{median} {unit} ({low} to {high}, {results['rounds']} rounds)"

    return shown


def _losses(standbys: int) -> Callable[[Results], str]:
    def shown(results: Results) -> str:
        found = list(results[f"{standbys} standbys"].values())
        low, high = min(spread[0] for spread in found), max(spread[2] for spread in found)
        rounds = results["rounds"]
        return f"{_short(low * 1e3)} to {_short(high * 1e3)} ms ({len(found)} losses in each of {rounds} rounds)"

    return shown


def _poisoned(results: Results) -> str:
    found = results["callboard, round 1"]
    return f"{found['answered']:,} answered, {found['failed']} failed, p99 {_time(found['p99'])}"


def _beside_cublas(load: str, isolation: str) -> Callable[[Results], str]:
    """Time of an op beside cuBLAS."""

    def shown(results: Results) -> str:
        mine, raw = (_median(results[load][subject]) for subject in (isolation, "cublas"))
        return f"{_time(mine)}; cuBLAS called directly {_time(raw)} ({mine / raw:.2f} times)"

    return shown


def _rate(load: str) -> Callable[[Results], str]:
    """Ops per second through a process host beside others'."""
    others = {"torch": "eager torch", "cublas": "cuBLAS called directly"}

    def shown(results: Results) -> str:
        found = results[load]
        mine = _median(found["process"])
        beside = (
            f"{name} {1 / _median(found[key]):,.0f} ({_median(found[key]) / mine:.2f} times)"
            for key, name in others.items()
            if key in found
        )
        return "; ".join([f"{1 / mine:,.0f} per second", *beside])

    return shown


def _copies(way: str) -> Callable[[Results], str]:
    """GB/s, which the benchmark stores as they are."""
    subjects = {"leased": "`host_empty`", "page-locked": "raw page-locked", "NumPy": "NumPy array"}
    subjects["torch, pageable"] = "torch, pageable"

    def shown(results: Results) -> str:
        found = results[way]
        speeds = "; ".join(f"{name} {_short(_median(found[key]))} GB/s" for key, name in subjects.items())
        return f"{_short(results['numbers']['nbytes'] / 2**30)} GiB: {speeds}"

    return shown


def _idle(results: Results) -> str:
    idle, numbers = results["idle"], results["numbers"]
    names = dict.fromkeys(key.partition(", ")[0] for key in idle)
    cpu = sum(idle[f"{name}, cpu_percent"] for name in names)
    parts = ", ".join(f"{name} {idle[f'{name}, pss']:.0f} MiB" for name in names)
    growth = f"; {numbers['asks']:,} asks add {numbers['growth']:.2f} MiB" if "growth" in numbers else ""
    return f"{parts}; {_short(cpu)} % of a core{growth}"


def _standby_memory(results: Results) -> str:
    found = results["device memory"]
    return f"warm {max(0.0, found['warm standby']):.0f} MiB; hot {found['hot standby']:.0f} MiB"


def _demo(results: Results) -> str:
    mine, torch = (_time(_median(results[name]["all"])) for name in ("callboard", "torch"))
    return f"{mine}; plain torch, which starts its process again, {torch}"


def _beside(table: str, mine: str, others: Mapping[str, str]) -> Callable[[Results], str]:
    """Time of one subject, beside others', which ``others`` names for the reader."""

    def shown(results: Results) -> str:
        found = results[table]
        time = _median(found[mine])
        beside = (
            f"{name} {_time(_median(found[key]))} ({time / _median(found[key]):.2f} times)"
            for key, name in others.items()
        )
        return "; ".join([_time(time), *beside])

    return shown


def _slowest_stage(results: Results) -> str:
    return f"{_median(results['slowest stage / pipeline']['all']):.2f} of the speed of its slowest stage"


def _beside_actor(results: Results) -> str:
    def told(quantile: str) -> str:
        found = results[f"ask of a 64x64 product beside an actor, {quantile}"]
        busy, idle = (_time(_median(found[f"process, {load}"])) for load in ("python", "idle"))
        return f"{quantile} {busy} ({idle} beside an idle actor)"

    return "; ".join(map(told, ("median", "p99")))


# -- the blocks --------------------------------------------------------------------------------------------------------

ILLEGAL = "A kernel writes to an illegal address → next correct product"
HOT = Figure(f"{ILLEGAL}, hot standby", "recovery", _recovery("fault", "hot, illegal"))
ASK = Figure("64×64 products, each awaited before the next", "ops", _beside_cublas("sequential ask 64x64", "process"))
SMALL = Figure("64×64 products, pipelined", "ops", _rate("pipelined 64x64"))
LARGE = Figure("2048×2048 products, pipelined", "ops", _beside_cublas("pipelined 2048x2048", "process"))
FACTORS = "sequential ask 64x64, another factor each time"

CHAIN = "20 x (product 256 + ReLU), us per op"
GRAPH, EAGER = {"torch, replayed": "torch's CUDA graph"}, {"torch, called": "eager torch", "CuPy, called": "CuPy"}
CALLS = {
    "empty call": "An empty call",
    "batch 1, one by one": "Perceptron, a batch of 1, awaited",
    "batch 8, one by one": "Perceptron, a batch of 8, awaited",
    "batch 256, one by one": "Perceptron, a batch of 256, awaited",
    "batch 256, 32 at once": "Perceptron, a batch of 256, 32 at once",
    "echo of 512 KiB": "512 KiB there and back",
}
RIVALS = {"plain": "in the same process", "pipe": "behind a pipe"}

KILLED = Figure(
    "16 HTTP clients beside one that kills the torch model 11 times a minute, two hot standbys",
    "poisoned",
    _poisoned,
)
IN_A_ROW = "A torch model, device-side assertions in a row → next good answer"

BLOCKS: dict[str, list[Figure] | Problems] = {
    HEADLINE: [KILLED, Figure(f"{IN_A_ROW}, five hot standbys", "losses", _losses(5)), ASK, LARGE],
    "recovery": [
        KILLED,
        *(Figure(f"{IN_A_ROW}, hot standbys: {n}", "losses", _losses(n)) for n in (1, 2, 5)),
        HOT,
        Figure(f"{ILLEGAL}, warm standby", "recovery", _recovery("fault", "warm, illegal")),
        Figure(f"{ILLEGAL}, warm standby, 100 GiB held", "recovery, 100 GiB held", _recovery("fault", "warm, illegal")),
        Figure(f"{ILLEGAL}, no standby", "recovery", _recovery("fault", "cold, illegal")),
        Figure(
            "The driver reports it → next correct product, hot standby", "recovery", _recovery("report", "hot, illegal")
        ),
        Figure(
            "`kill -9` of the host → next correct product, hot standby", "recovery", _recovery("fault", "hot, kill")
        ),
    ],
    "demo": [Figure("`callboard demo`: time lost with its context", "demo", _demo)],
    "ops": [
        ASK._replace(what=f"{ASK.what}, process"),
        Figure("The same, with another factor in each call, process", "ops", _beside_cublas(FACTORS, "process")),
        Figure(f"{ASK.what}, thread", "ops", _beside_cublas("sequential ask 64x64", "thread")),
        Figure(
            "The same, with the context on the caller's loop", "ops", _beside_cublas("sequential ask 64x64", "loop")
        ),
        SMALL._replace(what=f"{SMALL.what}, process"),
        LARGE._replace(what=f"{LARGE.what}, process"),
    ],
    "graphs": [
        Figure("Recorded and replayed", "graphs", _beside(CHAIN, "process, replayed", GRAPH)),
        Figure("The same, ReLU fused", "graphs", _beside(CHAIN, "process, fused, replayed", GRAPH)),
        Figure("Called op by op", "graphs", _beside(CHAIN, "process, called", EAGER)),
        Figure("The same, ReLU fused", "graphs", _beside(CHAIN, "process, fused, called", EAGER)),
        Figure("The same, recorded automatically", "graphs", _beside(CHAIN, "auto, fused, called", EAGER)),
        Figure("A call of `replay`", "graphs", _beside("a call of replay, us", "process", {})),
    ],
    "pipeline": [Figure("`PipelineExecutor`, items of 64 MiB", "pipeline", _slowest_stage)],
    "resident": [
        *(Figure(what, "resident", _beside(table, "process", RIVALS)) for table, what in CALLS.items()),
        Figure("64×64 product beside a resident actor that runs Python, process", "resident", _beside_actor),
    ],
    "copies": [
        Figure("Host arrays to the device", "copies", _copies("put")),
        Figure("Device arrays to the host", "copies", _copies("get")),
    ],
    "idle": [
        Figure("Memory (PSS) and CPU with a warm standby", "idle", _idle),
        Figure("Device memory that a standby takes", "idle", _standby_memory),
    ],
    "arrays": Problems("arrays"),
    "attention": Problems("attention"),
    "blas_lt": Problems(
        "blas_lt", unit="TFLOP/s", peaks={"matmul, bias, GELU 4096 bf16": 989.0, "matmul 8192 fp8": 1979.0}
    ),
    "cub": Problems("cub", unit="GB/s"),
    "elementwise": Problems("elementwise", unit="GB/s"),
    "encoder": Problems("encoder"),
    "fft": Problems("fft"),
    "rng": Problems("rng"),
    "dnn": Problems("dnn"),
    "rnn": Problems("rnn"),
    "solver": Problems("solver"),
    "sparse": Problems("sparse"),
    "sparse_lt": Problems("sparse_lt", unit="TFLOP/s"),
    "tensor": Problems("tensor"),
    **{f"{name}-cpu": Problems(name, "cpu") for name in ("fft", "rng", "solver", "sparse")},
}
PAGES = {
    ROOT / "README.md": [HEADLINE],
    ROOT / "docs" / "performance.md": [name for name in BLOCKS if name != HEADLINE],
}
SUBJECTS = {
    "process": "callboard",
    "raw": "called directly",
    "direct": "NumPy or SciPy",
    "cupy": "CuPy",
    "torch": "eager torch",
}


def block(name: str, summaries: Sequence[Summary], folder: str) -> str:
    """The text of a block.

    Args:
        name: Of :data:`BLOCKS`.
        summaries: Newest first.
        folder: ``docs/hardware``, as a link of the page names it.
    """
    content = BLOCKS[name]
    lines = (
        _problems(content, summaries, folder) if isinstance(content, Problems) else _rows(content, summaries, folder)
    )
    return "\n".join(lines) or NONE_YET


def _rows(figures: list[Figure], summaries: Sequence[Summary], folder: str) -> list[str]:
    rows: list[str] = []
    used: dict[str, Summary] = {}
    for figure in figures:
        for run, results in _results(figure.benchmark, figure.backend, summaries):
            try:
                rows.append(f"| {figure.what} | {figure.shown(results)} |")
            except KeyError:
                continue
            used[run["name"]] = run
            break
    named = [_described(run, folder) for run in used.values()]
    return ["| what | measured |", "|---|---|", *rows, "", *_listed(named)] if rows else []


def _problems(table: Problems, summaries: Sequence[Summary], folder: str) -> list[str]:
    for run, results in _results(table.benchmark, table.backend, summaries):
        problems = {name: found for name, found in results.items() if isinstance(found, dict) and "process" in found}
        subjects = [key for key in SUBJECTS if any(key in found for found in problems.values())]
        head = ["problem", *(SUBJECTS[key] for key in subjects)]
        rows = [[name, *(_cell(table, name, found, key) for key in subjects)] for name, found in problems.items()]
        lines = [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]]
        return [*lines, "", *_listed([_described(run, folder)])]
    return []


def _cell(table: Problems, problem: str, found: Results, subject: str) -> str:
    if subject not in found:
        return ""
    time = _time(_median(found[subject]))
    if not table.unit:
        return time
    speed = _median(found[f"{subject}, speed"])
    peak = table.peaks.get(problem)
    share = f", {speed / peak:.0%} of peak" if peak and subject == "process" else ""
    return f"{time} ({_short(speed)} {table.unit}{share})"


def _results(benchmark: str, backend: str, summaries: Sequence[Summary]) -> Iterator[tuple[Summary, Results]]:
    for run in summaries:
        if run["probe"]["backend"] == backend and benchmark in run.get("benchmarks", {}):
            yield run, run["benchmarks"][benchmark]


def _listed(runs: list[str]) -> list[str]:
    return [f"Medians. Run: {runs[0]}."] if len(runs) == 1 else ["Medians. Runs:", "", *(f"* {run}" for run in runs)]


def _described(run: Summary, folder: str) -> str:
    probe = run["probe"]
    commit = str(probe["commit"] or "unknown")[:10]
    by = f"driver {probe['driver']}" if probe.get("driver") else f"{probe['cores']} cores"
    changes = ", with uncommitted changes" if probe["dirty"] else ""
    return f"[{run['name']}]({folder}/{run['name']}.json), {probe['device']}, {by}, commit {commit}{changes}"


# -- the pages ---------------------------------------------------------------------------------------------------------


def replaced(text: str, names: Sequence[str], summaries: Sequence[Summary], folder: str) -> str:
    """A page with the figures of these runs.

    Args:
        text: The page.
        names: The blocks that it must have, once each.
        summaries: Newest first.
        folder: ``docs/hardware``, as a link of the page names it.

    Raises:
        ValueError: It has other blocks.
    """
    found = [match["name"] or HEADLINE for match in BLOCK.finditer(text)]
    if sorted(found) != sorted(names):
        missing, unknown = sorted(set(names) - set(found)), sorted(set(found) - set(names))
        raise ValueError(f"each block must be there once: missing {missing}, not known here {unknown}, found {found}")

    def filled(match: re.Match[str]) -> str:
        return f"{match['begin']}{block(match['name'] or HEADLINE, summaries, folder)}\n{match['end']}"

    return BLOCK.sub(filled, text)


def main(arguments: list[str] | None = None) -> int:
    """Write or check the pages, or say which are old."""
    parser = argparse.ArgumentParser("readme-figures", description="The figures in README.md and docs/performance.md.")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help="put them into the pages")
    action.add_argument("--check", action="store_true", help="exit with 1 if a page has others")
    given = parser.parse_args(arguments)
    summaries = stored()
    old = False
    for page, names in PAGES.items():
        text = page.read_text("utf-8")
        folder = "docs/hardware" if page.parent == ROOT else "hardware"
        wanted = replaced(text, names, summaries, folder)
        if text == wanted:
            continue
        old = True
        if given.write:
            page.write_text(wanted, "utf-8")
        else:
            name = page.relative_to(ROOT)
            sys.stderr.write(f"{name} has other figures than docs/hardware/: run scripts/readme-figures --write\n")
    return int(given.check and old)
