"""Cost of a chain of small ops, recorded and not recorded.

    python benchmarks/graphs.py --json graphs.json
    python benchmarks/graphs.py --quick --device cpu

The chain is 20 products of 256 x 256 matrices in f32, each followed by a ReLU, which is an op of its own, or part of
the product (fused; it counts as two ops all the same). callboard calls it op by op; replays it, with a message for each
replay; and replays it many times with one message, or in a loop that the device runs by itself. "auto" calls it op by
op on a device that records chains by itself. Beside it are eager torch, torch's CUDA graph of the same chain, and
eager CuPy, which refuses cuBLAS in a capture; on the CPU NumPy with given outputs. All is called before the first
result is waited for; the figures are microseconds for one op of the chain. The time in which ``replay`` returns is for
a whole chain.
"""

from collections.abc import Callable
from typing import Any

from _harness import Bar, Figures, arguments, interleave, kind_of, ratios, table, tell_bars
from _record import Record
from _worker import workers

N, LINKS = 256, 20
SUBMITTED = 15e-6
"""Most seconds in which a replay is submitted."""


def main() -> None:
    """Measure and print."""
    given: Any = arguments(__doc__, rounds=5)
    cuda = kind_of(given.device) == "cuda"
    others = ("torch", "CuPy") if cuda else ("NumPy",)
    count = 1000 if cuda and not given.quick else 3
    settings = {"n": N, "links": LINKS, "count": count}
    record = Record("graphs", given)
    subjects = ("process", "thread", "auto", *others)
    with workers({name: ("_subject_graphs.py", name, given.device) for name in subjects}) as running:
        here = [name for name in ("process", "thread") if name in running]
        for name in here:
            for fused in (False, True):
                difference = running[name].measure("differs", fused=fused, **settings)
                if difference > 1e-5:
                    raise ValueError(f"{name}: a replay differs from the calls by {difference:.2g}")

        def measured(name: str, what: str, **more: Any) -> Callable[[], float]:
            return lambda: running[name].measure(what, **settings, **more)

        runs = {f"{name}, called": measured(name, "called") for name in running}
        if "torch" in running:
            runs["torch, replayed"] = measured("torch", "replayed")
        for name in here:
            runs[f"{name}, replayed"] = measured(name, "replayed")
            runs[f"{name}, replayed at once"] = measured(name, "at_once")
            runs[f"{name}, in a loop"] = measured(name, "looped")
            runs[f"{name}, fused, called"] = measured(name, "called", fused=True)
            runs[f"{name}, fused, replayed"] = measured(name, "replayed", fused=True)
        if "auto" in running:
            runs["auto, fused, called"] = measured("auto", "called", fused=True)
        title = f"{LINKS} x (product {N} + ReLU), us per op"
        found = interleave(runs, given.rounds, title)
        to = "torch, replayed" if "torch" in running else f"{others[-1]}, called"
        record[title] = table(title, found, _us, to if to in found else next(iter(found)))
        title = "a call of replay, us"
        took = interleave({name: measured(name, "submitted") for name in here}, given.rounds, title)
        record[title] = table(title, took, _us, here[0])
    record.done(tell_bars(_bars(found, took)))


def _bars(found: Figures, took: Figures) -> list[Bar]:
    def faster(of: str, than: str) -> Bar:
        ratio = ratios(found, than, of)
        return Bar(f"ops/s of {of}, of {than}", None if ratio is None else ratio["median"], 1.0, at_least=True)

    bars = [
        faster("process, replayed", "torch, replayed"),
        faster("process, fused, replayed", "torch, replayed"),
        faster("process, fused, called", "torch, called"),
        faster("thread, fused, called", "process, fused, called"),
    ]
    cuda = "torch, called" in found
    for name, values in took.items():
        median = sorted(values)[len(values) // 2] if cuda else None
        bars.append(Bar(f"seconds in which a replay is submitted, {name}", median, SUBMITTED, at_least=False))
    return bars


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.2f}"


if __name__ == "__main__":
    main()
