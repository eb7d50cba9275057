"""Speed of host array transfers to the device and back.

    python benchmarks/copies.py --json copies.json
    python benchmarks/copies.py --quick --device cpu

Through callboard in a process host: an array of ``host_empty``, which the device copies itself; an ordinary NumPy
array; and, on the way back, an array that ``get`` makes. Beside it: one thread's ``memcpy``, and on CUDA a copy of
page-locked memory through the runtime (the speed of the link) and torch with ordinary memory. Every subject has a
process of its own, and the rounds are interleaved. The first round touches the memory and is not counted.
"""

import argparse
from collections.abc import Callable
from typing import Any

from _harness import Bar, Figures, arguments, interleave, kind_of, ratios, spread, table, tell_bars
from _record import Record
from _worker import Worker, workers

GIB = 1 << 30


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gib", type=float, help="size of the array (1; with --quick 1/16)")


def _call(worker: Worker, what: str, nbytes: int) -> Callable[[], float]:
    return lambda: worker.measure(what, nbytes=nbytes)


def _subjects(running: dict[str, Worker], way: str, nbytes: int) -> dict[str, Callable[[], float]]:
    """Everything that is measured in one direction."""
    ours = running["callboard"]
    found = {"leased": _call(ours, f"{way}_leased", nbytes), "NumPy": _call(ours, f"{way}_numpy", nbytes)}
    if way == "get":
        found["NumPy, new"] = _call(ours, "get_new", nbytes)
    found["memcpy"] = _call(running["memcpy"], "memcpy", nbytes)
    if "cuda" in running:
        found["page-locked"] = _call(running["cuda"], f"{way}_locked", nbytes)
    if "torch" in running:
        found["torch, pageable"] = _call(running["torch"], f"{way}_pageable", nbytes)
    return found


def _bars(way: str, found: Figures) -> list[Bar]:
    """Ratios of speeds: seconds of the other over ours."""
    leased = ratios(found, "page-locked", "leased")
    pageable = ratios(found, "torch, pageable", "NumPy")
    slowest = None
    if "page-locked" in found:
        each = zip(found["page-locked"], found["memcpy"], found["NumPy"], strict=True)
        slowest = spread([max(link, memcpy) / ours for link, memcpy, ours in each])
    return [
        Bar(f"{way}: leased / page-locked", leased and leased["median"], 0.95, True),
        Bar(f"{way}: NumPy / min(link, memcpy)", slowest and slowest["median"], 0.85, True),
        Bar(f"{way}: NumPy / torch, pageable", pageable and pageable["median"], 1.0, True),
    ]


def main() -> None:
    given: Any = arguments(__doc__, rounds=7, extend=_extend)
    kind = kind_of(given.device)
    nbytes = int((given.gib or (1 / 16 if given.quick else 1)) * GIB) // 4096 * 4096
    wanted: dict[str, tuple[str, ...]] = {
        "callboard": ("_subject_callboard.py", "--device", given.device, "--isolation", "process"),
        "memcpy": ("_subject_cpu.py", "numpy"),
    }
    if kind == "cuda":
        wanted["cuda"] = ("_subject_cuda.py",)
        wanted["torch"] = ("_subject_torch.py", "cuda")
    record = Record("copies", given)
    record["nbytes"] = nbytes
    bars: list[Bar] = []
    with workers(wanted) as running:
        for way, title in (("put", "to the device"), ("get", "to the host")):
            found = interleave(_subjects(running, way, nbytes), given.rounds + 1, title)
            found = {name: values[1:] or values for name, values in found.items()}  # the first warms up
            bars += _bars(way, found) if kind == "cuda" else []
            # Speeds, so that a ratio above 1 is faster; of the same round, as seconds would be.
            speeds = {name: [nbytes / 1e9 / seconds for seconds in values] for name, values in found.items()}
            base = "page-locked" if "cuda" in running else "memcpy"
            record[way] = table(f"{nbytes / GIB:g} GiB {title}: GB/s", speeds, lambda v: f"{v:.2f}", base)
    record.done(tell_bars(bars))


if __name__ == "__main__":
    main()
