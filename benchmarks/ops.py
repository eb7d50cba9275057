"""Cost of an op: through a process, a thread, on the caller's own loop, by a resident actor, and called directly.

    python benchmarks/ops.py --json ops.json
    python benchmarks/ops.py --quick --device cpu

Four loads, on f32 matrices with outputs made ahead: one small product after the other, each waited for, the same again
and again, or with another factor each time; many small products at once; many large products at once. On CUDA the
direct calls are nvmath's cuBLAS (enqueue and synchronize) and eager ``torch.mm``, on the CPU SciPy's ``sgemm`` and
NumPy. Every subject has a process of its own, and the rounds are interleaved. In all loads but the second, one or eight
different calls repeat: products on CUDA are then enqueued as graphs (docs/decisions/0015).
"""

import argparse
from collections.abc import Callable
from typing import Any

from _harness import Bar, Figures, arguments, interleave, kind_of, ratios, spread, table, tell_bars
from _record import Record
from _worker import Worker, workers

SMALL = 64


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--large", type=int, help="extent of the large matrices (2048 on CUDA, 1024 on the CPU)")


def _loads(kind: str, quick: bool, large: int | None) -> dict[str, tuple[str, int, int]]:
    """Measure, extent and count of each load."""
    n = large or (2048 if kind == "cuda" else 256 if quick else 1024)
    asks, many, few = (3000, 30_000, 200) if kind == "cuda" else (1000, 10_000, 20)
    if quick:
        asks, many = asks // 3, many // 3
    return {
        f"sequential ask {SMALL}x{SMALL}": ("ask", SMALL, asks),
        f"sequential ask {SMALL}x{SMALL}, another factor each time": ("ask_unlike", SMALL, asks),
        f"pipelined {SMALL}x{SMALL}": ("pipelined", SMALL, many),
        f"pipelined {n}x{n}": ("pipelined", n, few),
    }


def _call(worker: Worker, what: str, n: int, count: int) -> Callable[[], float]:
    return lambda: worker.measure(what, n=n, count=count)


def _bars(kind: str, found: dict[str, Figures]) -> list[Bar]:
    if kind != "cuda":
        return []
    ask, _, small, large = found.values()

    def median(figures: Figures, of: str, to: str) -> float | None:
        ratio = ratios(figures, of, to)
        return None if ratio is None else ratio["median"]

    per_second = {name: 1 / spread(values)["median"] for name, values in small.items()}
    return [
        Bar("large products per second, process / cuBLAS", median(large, "cublas", "process"), 0.99, True),
        Bar("time of an ask, process / cuBLAS enqueue and synchronize", median(ask, "process", "cublas"), 3.0, False),
        Bar("time of an ask, thread / cuBLAS enqueue and synchronize", median(ask, "thread", "cublas"), 3.0, False),
        Bar("time of an ask on the loop, loop / cuBLAS", median(ask, "loop", "cublas"), 1.3, False),
        Bar("time of an ask by a resident actor, inside / cuBLAS", median(ask, "inside", "cublas"), 1.2, False),
        Bar("large products per second, inside / cuBLAS", median(large, "cublas", "inside"), 0.99, True),
        Bar("small products per second, process", per_second.get("process"), 80_000, True),
        Bar("small products per second, process / torch", median(small, "torch", "process"), 0.75, True),
    ]


def main() -> None:
    given: Any = arguments(__doc__, rounds=7, extend=_extend)
    kind = kind_of(given.device)
    wanted: dict[str, tuple[str, ...]] = {
        isolation: ("_subject_callboard.py", "--device", given.device, "--isolation", isolation)
        for isolation in ("process", "thread")
    }
    wanted["loop"] = (*wanted["thread"], "--dispatcher", "caller")
    wanted["inside"] = ("_subject_inside.py", "--device", given.device)
    if kind == "cuda":
        wanted["cublas"] = ("_subject_cuda.py",)
        wanted["torch"] = ("_subject_torch.py", "cuda")
    else:
        wanted["scipy"] = ("_subject_cpu.py", "scipy")
        wanted["numpy"] = ("_subject_cpu.py", "numpy")
    record = Record("ops", given)
    found: dict[str, Figures] = {}
    with workers(wanted) as running:
        for title, (what, n, count) in _loads(kind, given.quick, given.large).items():
            subjects = {name: _call(worker, what, n, count) for name, worker in running.items()}
            found[title] = interleave(subjects, given.rounds, title)
            base = "cublas" if kind == "cuda" else "scipy"
            record[title] = table(f"{title}: microseconds each", found[title], lambda s: f"{s * 1e6:.2f}", base)
    record.done(tell_bars(_bars(kind, found)))


if __name__ == "__main__":
    main()
