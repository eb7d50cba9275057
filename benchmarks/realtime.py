"""Simulations and filters beside their peers: OpenCV, Numba, Warp, SciPy, scikit-image, FFmpeg, torch, CuPy.

    python benchmarks/realtime.py --device cpu --json realtime.json
    python benchmarks/realtime.py --device cpu --clock cpu --only images,video
    python benchmarks/realtime.py --device cuda --rounds 3 --seconds 240 --json realtime.json

A peer is measured where it is installed, on one thread each (cKDTree beside a GPU: on all cores); ours takes all cores,
or as many as ``OMP_NUM_THREADS`` says. What begins and ends in host memory is ``callboard``; ``on the device`` it stays
there; ``of 20`` steps or filters are in one message. Sizes are those of the bars: larger on a GPU; ``--scale`` makes
them less.
A section that fails is told and recorded, and the others go on.
"""

import argparse
import asyncio
import importlib
import traceback
from typing import Any

from _harness import Bar, arguments, interleave, table, tell_bars
from _record import Record
from _sims.bench import CLOCKS, Bench

import callboard as cb

SECTIONS = "images", "particles", "cloth", "fluid", "neighbours", "hash_map", "sparse", "passes", "video"


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", help=f"some of {','.join(SECTIONS)}")
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes (default 1)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: of all threads; on a busy machine")
    parser.add_argument(
        "--seconds", type=float, help="about how long the measuring takes in all; default: 0.4 for a subject of a round"
    )


def measured(name: str, bench: Bench, given: Any, share: float | None) -> tuple[dict[str, Any], list[Bar]]:
    """A section's results and bars."""
    section = importlib.import_module(f"_sims.{name}").section(bench)
    if share is not None:
        bench.seconds = share / len(section.subjects) / given.rounds
    found = interleave(section.subjects, given.rounds, name)
    result = table(section.title, found, lambda seconds: f"{seconds * 1e6:.1f} us", section.ours)
    for what, value in section.facts.items():
        print(f"  {what}: {value:.6g}")
    bars = [bar._replace(what=f"{name}: {bar.what}") for bar in section.bars(found)]
    return {**result, "facts": section.facts}, bars


async def _entered(opened: Any) -> cb.Device:
    device: cb.Device = await opened.__aenter__()
    return device


async def _left(opened: Any) -> None:
    await opened.__aexit__(None, None, None)


def main() -> None:
    given = arguments(__doc__, rounds=7, extend=_extend)
    chosen = given.only.split(",") if given.only else list(SECTIONS)
    unknown = [name for name in chosen if name not in SECTIONS]
    if unknown:
        raise SystemExit(f"--only: there is no {unknown[0]!r}; use some of {', '.join(SECTIONS)}")
    if given.quick:
        given.scale = min(given.scale, 0.01)
    record = Record("realtime", given)
    bars: list[Bar] = []
    failed: dict[str, str] = {}
    with asyncio.Runner() as runner:
        for name in chosen:  # each with a device of its own, so that one that fails leaves the others theirs
            opened = cb.device(given.device, isolation="thread", max_staged_bytes=32 << 30)
            try:
                bench = Bench(runner.run(_entered(opened)), runner, given.clock, given.scale)
                bench.seconds = 0.05 if given.quick else bench.seconds
                share = None if given.seconds is None else given.seconds / len(chosen)
                record[name], more = measured(name, bench, given, share)
                bars += more
            except Exception as error:
                traceback.print_exc()
                failed[name] = f"{type(error).__name__}: {error}"
                record[name] = {"failed": failed[name]}
            finally:
                runner.run(_left(opened))
    record.done(tell_bars(bars))
    for name, what in failed.items():
        print(f"failed: {name}: {what}")
    raise SystemExit(len(failed))


if __name__ == "__main__":
    main()
