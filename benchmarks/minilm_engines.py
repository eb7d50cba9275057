"""MiniLM by each of its engines in one host process: ONNX Runtime, torch and callboard's own ops, beside each other.

    python benchmarks/minilm_engines.py --json minilm_engines.json
    python benchmarks/minilm_engines.py --quick --device cpu

Texts of mixed lengths, as in `minilm.py`, in the batches that the demo forms when its queue is full: of one bucket of
lengths, with as many tokens as it allows. Engines take turns after each batch. The demo takes the first engine of
`engine_of` that is installed.
"""

import argparse
import asyncio
import importlib.util
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from _checkpoint import checkpoint
from _harness import Bar, Figures, arguments, kind_of, ratios, table, tell_bars
from _record import Record
from minilm import texts

import callboard as cb
from callboard.serve.bundled.demo import BATCH_TOKENS, BUCKET, MAX_BATCH
from callboard.serve.bundled.minilm import ENGINES, MiniLM, engine_of


def batches(given: list[list[int]], most: int) -> list[list[list[int]]]:
    """The texts by length, in batches of so many tokens at most, padding included."""
    buckets = defaultdict(list)
    for text in given:
        buckets[-(-len(text) // BUCKET) * BUCKET].append(text)
    found = []
    for length, inside in sorted(buckets.items()):
        count = min(MAX_BATCH, max(1, most // length))
        found += [inside[at : at + count] for at in range(0, len(inside), count)]
    return found


async def measure(given: Any, folder: Path) -> Figures:
    """Texts per second of each engine, for each round."""
    backend = kind_of(given.device)
    mixed = texts(40 if given.quick else given.texts)
    formed = batches(mixed, BATCH_TOKENS[backend])
    names = [name for name in ENGINES if name == "ops" or importlib.util.find_spec(name) is not None]
    if backend == "cuda":
        names.remove("onnxruntime")  # it computes on the CPU
    found: Figures = {name: [] for name in names}
    async with cb.device(given.device, isolation="process") as device:
        actors = {name: await device.actor_of(cb.Props(MiniLM, str(folder), name), wait=True) for name in names}
        for turn in range(given.rounds + 1):
            seconds = dict.fromkeys(names, 0.0)
            for at, batch in enumerate(formed):
                for name in names if (at + turn) % 2 else reversed(names):
                    started = time.perf_counter()
                    await actors[name].call(MiniLM.embed, batch)
                    seconds[name] += time.perf_counter() - started
            for name in names:
                if turn:  # the first round loads what packages load late
                    found[name].append(len(mixed) / seconds[name])
    return found


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--texts", type=int, default=200, help="of each round (default 200)")


def main() -> None:
    given = arguments(__doc__, rounds=5, extend=_extend)
    record = Record("minilm_engines", given)
    with tempfile.TemporaryDirectory() as spare:
        folder, weights = checkpoint(Path(spare))
        record["model"] = {"weights": weights}
        found = asyncio.run(measure(given, folder))
    title = "MiniLM, mixed lengths"
    record[title] = table(title, found, lambda x: f"{x:.1f} /s", "torch")
    chosen = engine_of(kind_of(given.device))
    ratio = None if chosen == "torch" else ratios(found, chosen, "torch")
    bar = Bar(f"{chosen} to torch", None if ratio is None else ratio["median"], 0.8, at_least=True)
    record.done(tell_bars([bar]))


if __name__ == "__main__":
    main()
