"""Shared by the benchmarks of the maths libraries: one problem, solved by callboard and by its rivals.

A benchmark of a library (``fft.py`` is the model) is a program that ends in ``compare(__doc__, "fft", problems,
subjects)``. A subject is a function that makes the operands of a problem and says how to enqueue it once::

    async def ours(device, n):  # callboard: in a process host and in a thread host
        x = await device.put(signal(n))
        out = await device.empty(n, "c64")
        return Run(lambda: device.fft.fft(x, out=out), out.get)


    def raw(cuda, n):  # the vendor's library; `cuda` is a _maths_subjects.Cuda: stream, put, empty, get
        ...
        return Run(lambda: cufft.exec_c2c(plan, x, out, -1), lambda: cuda.get(out, (n,), np.complex64))

It gets the problem's settings by keyword. ``Run.result`` gives what the last call made, so that it is known that all
solved the same problem; None where results may differ (random numbers). Every subject runs in its own process (the
program itself, started by :class:`_worker.Worker`); rounds are interleaved. Each measures, per problem, ``seconds per
call`` when ``count`` calls are enqueued at once and waited for at the end. The bar is a throughput: of callboard in
a process over that of the subject it is compared with, by the median of the rounds.
"""

import argparse
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from _harness import Bar, Spread, arguments, interleave, kind_of, ratios, spread, table, tell_bars
from _maths_subjects import Run, Subjects, serve_subject
from _record import Record
from _worker import Worker, workers

__all__ = ["Problem", "Run", "Subjects", "compare"]

AGREE = 1e-3
"""Relative difference of the fingerprints that subjects may have."""


class Problem(NamedTuple):
    """Something that every subject solves.

    Attributes:
        title: As it is printed.
        settings: Keyword arguments of the subjects (numbers and strings).
        count: Calls that are enqueued at once.
        bar: Least throughput of callboard in a process, relative to ``base``; None: reported only.
        work: What one call does, in ``unit`` (``2e-12 * n**3`` and ``"TFLOP/s"``): printed per second.
        unit: Of the work per second.
        base: The subject that the bar compares with; None: ``"raw"`` on CUDA, ``"direct"`` on the CPU.
        without: Subjects that cannot solve it.
    """

    title: str
    settings: Mapping[str, Any]
    count: int
    bar: float | None = None
    work: float = 0.0
    unit: str = ""
    base: str | None = None
    without: Sequence[str] = ()


Problems = Callable[[str, bool], list[Problem]]
"""``problems(kind, quick)`` for ``"cpu"`` or ``"cuda"``."""


def compare(
    doc: str | None, library: str, problems: Problems, subjects: Subjects, rounds: int = 7, name: str | None = None
) -> None:
    """Run the benchmark; or one of its subjects, in the process that was started for it.

    Args:
        doc: Docstring of the program.
        library: Stem of the library, whose plans are counted.
        problems: What is measured on this kind of device.
        subjects: Who solves it.
        rounds: By default.
        name: Of the benchmark; that of the library when None.
    """
    if sys.argv[1:2] == ["--subject"]:
        serve_subject(library, subjects, *sys.argv[2:])
        return
    given: Any = arguments(doc, rounds, _choose)
    kind = kind_of(given.device)
    base = "raw" if kind == "cuda" else "direct"
    program = Path(sys.argv[0]).name
    wanted = {name: (program, "--subject", name, given.device) for name in subjects.names(kind)}
    record = Record(name or library, given)
    bars: list[Bar] = []
    chosen = [problem for problem in problems(kind, given.quick) if given.only in problem.title]
    if not chosen:
        raise SystemExit(f"--only: no problem of {library} on {kind} has {given.only!r} in its title")
    with workers(wanted) as running:
        for problem in chosen:
            able = {name: worker for name, worker in running.items() if name not in problem.without}
            result, bar = _measured(problem, able, given.rounds, problem.base or base)
            bars += bar
            record[problem.title] = result
        plans = {name: _plans(worker) for name, worker in running.items() if name in ("process", "thread")}
    for name, found in plans.items():
        print(f"\nplans of {library}, {name}: " + ", ".join(f"{n:.0f} {what}" for what, n in found.items()))
    record["plans"] = plans
    record.done(tell_bars(bars))


def _choose(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", help="solve the problems with these words in their titles")


def _measured(problem: Problem, able: dict[str, Worker], rounds: int, base: str) -> tuple[dict[str, Any], list[Bar]]:
    settings, title = dict(problem.settings), problem.title
    _check_agreement(title, {name: worker.measure("fingerprint", **settings) for name, worker in able.items()})
    calls = {
        name: functools.partial(worker.measure, "pipelined", calls=problem.count, **settings)
        for name, worker in able.items()
    }
    found = interleave(calls, rounds, title)
    result: dict[str, Any] = table(f"{title}: microseconds each", found, lambda s: f"{s * 1e6:.2f}", base)
    if problem.work:
        for name, values in found.items():
            speed = result[name]["speed"] = spread([problem.work / seconds for seconds in values])
            print(f"  {name:28} {speed['median']:12.4g} {problem.unit}")
    if problem.bar is None:
        return result, []
    ratio: Spread | None = ratios(found, base, "process")
    bar = Bar(f"{title}: process / {base}", ratio and ratio["median"], problem.bar, True)
    return result, [bar]


def _check_agreement(title: str, prints: dict[str, float]) -> None:
    """A figure of a subject that solves another problem would be worth nothing."""
    told = {name: value for name, value in prints.items() if value == value}  # NaN: it has no result to show
    low, high = min(told.values(), default=0.0), max(told.values(), default=0.0)
    if high - low > AGREE * abs(high):
        raise RuntimeError(f"{title}: the subjects' results differ: {told}")


def _plans(worker: Worker) -> dict[str, float]:
    return {what: worker.measure("plans", figure=what) for what in ("entries", "hits", "misses", "evictions")}
