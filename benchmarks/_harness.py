"""Shared by the benchmarks: arguments, interleaved rounds, ratios, tables, bars.

A ratio is taken between two figures of the same round, measured one after the other, so that a neighbour on the machine
slows both; printed are its minimum, median and maximum over all rounds.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from _record import end_soon, end_when_told

from callboard.cli.parts.progress import Progress
from callboard.core import registry

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
    end_when_told()
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
    """Measure every subject once per round, in turn (A B A B …); the order is turned around every other round.

    Told to end, it gives the rounds that are complete, if there are any; the program ends when they are stored.
    """
    found: Figures = {name: [] for name in subjects}
    with Progress(what, rounds * len(subjects)) as progress:
        done = 0
        try:
            for turn in range(rounds):
                for name in list(subjects) if turn % 2 == 0 else list(reversed(subjects)):
                    found[name].append(subjects[name]())
                    progress.show(done := done + 1)
        except (KeyboardInterrupt, SystemExit) as e:
            complete = done // len(subjects)
            if not complete:
                raise
            end_soon(e)
            found = {name: values[:complete] for name, values in found.items()}
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
