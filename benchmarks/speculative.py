"""Gain of speculative decoding with a good draft, and its cost with a useless one, relative to a plain loop.

    python benchmarks/speculative.py --json speculative.json
    python benchmarks/speculative.py --quick

The target is a deep network in NumPy over the documentation of Python, made in the run. "loop" is greedy decoding by
the shortest loop around it. The others are servers, each new for every round, so that what they learn about their draft
is in their time. All give the same tokens. The good draft is a table of what the target says most often; the useless
one proposes something else at the same cost. Figures are tokens per second of processor time: all runs on one thread.
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from typing import Any

from _harness import Bar, arguments, interleave, ratios, spread, table, tell_bars
from _language_model import Network, Table, corpus, plain
from _record import Record

import callboard as cb

FIXED = (2, 4, 8)


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--depth", type=int, default=128, help="layers of the network (default 128)")
    parser.add_argument("--tokens", type=int, default=192, help="new ones of each text (default 192)")
    parser.add_argument("--texts", type=int, default=4, help="one after the other, and at once (default 4)")


def main() -> None:
    given = arguments(__doc__, rounds=5, extend=_extend)
    if given.quick:
        given.depth, given.tokens = min(given.depth, 16), min(given.tokens, 48)
    record = Record("speculative", given)
    ids, vocabulary = corpus(6_000)
    network = Network(ids, vocabulary, given.depth)
    said = Table(network, ids)

    async def good(prefix: list[int], k: int) -> list[int]:  # on the loop: a lookup is shorter than a change of threads
        return said(prefix, k)

    async def useless(prefix: list[int], k: int) -> list[int]:
        return [(token + 1) % vocabulary for token in said(prefix, k)]

    prefixes = [ids[start : start + 40].tolist() for start in range(500, 500 + 300 * given.texts, 300)]
    expected = [plain(network, prefix, given.tokens) for prefix in prefixes]

    def served(draft: Any, at_once: bool = False, **options: Any) -> Callable[[], float]:
        async def run() -> float:
            async with cb.SpeculativeDecoder(network, draft, executor="loop", **options) as server:
                start = time.process_time()
                requests = [cb.Decode(prefix, max_new_tokens=given.tokens) for prefix in prefixes]
                if at_once:
                    found = await asyncio.gather(*(server.submit(each) for each in requests))
                else:
                    found = [await server.submit(each) for each in requests]
                seconds = time.process_time() - start
                same.append([each.tokens for each in found] == expected)
                told[name_of(draft, at_once, **options)] = server.stats()
                return len(prefixes) * given.tokens / seconds

        return lambda: asyncio.run(run())

    def name_of(draft: Any, at_once: bool, **options: Any) -> str:
        what = {id(good): "good draft", id(useless): "useless draft"}.get(
            id(draft), "prompt lookup" if draft else "none"
        )
        how = "" if options.get("adaptive", True) else f", k = {options['k']}"
        return f"{what}{how}{', at once' if at_once else ''}"

    def loop() -> float:
        start = time.process_time()
        for prefix in prefixes:
            plain(network, prefix, given.tokens)
        return len(prefixes) * given.tokens / (time.process_time() - start)

    same: list[bool] = []
    told: dict[str, cb.SpeculativeStats] = {}
    subjects: dict[str, Callable[[], float]] = {"loop": loop, "none": served(None)}
    for draft in (good, useless, None):
        used = cb.NGramDraft() if draft is None else draft
        subjects[name_of(used, False)] = served(used, k=8)
    for k in FIXED:
        subjects[name_of(good, False, k=k, adaptive=False)] = served(good, k=k, adaptive=False)
    subjects["useless draft, k = 4"] = served(useless, k=4, adaptive=False)
    found = interleave(subjects, given.rounds, "tokens per second")
    record["one text at a time"] = table("one text at a time, tokens per second", found, per_second, "loop")

    together = {name_of(d, True): served(d, at_once=True, k=8) for d in (None, good, useless)}
    at_once = interleave(together, given.rounds, "at once")
    record["at once"] = table(f"{given.texts} texts at once, tokens per second", at_once, per_second, "none, at once")
    record["acceptance"] = {name: each.acceptance_by_position for name, each in told.items()}
    record["speedup, estimated"] = {name: each.speedup for name, each in told.items()}
    record["runs that gave the tokens of the loop"] = [sum(same), len(same)]
    for name, each in told.items():
        print(f"{name:28} kept {each.mean_accepted_length:.2f} a proposal, estimated speedup {each.speedup:.2f}")

    def bar(of: str, to: str, limit: float, figures: Any = found) -> Bar:
        ratio = ratios(figures, of, to)
        return Bar(f"{of}, to {to}", ratio and ratio["median"], limit, at_least=True)

    best = max(FIXED, key=lambda k: spread(found[f"good draft, k = {k}"])["median"])
    bars = [
        bar("useless draft", "loop", 0.97),
        bar("useless draft", "none", 0.97),
        bar("useless draft, at once", "none, at once", 0.97, at_once),
        bar("good draft", "loop", 1.5),
        bar("good draft", f"good draft, k = {best}", 0.97),
        Bar("share of runs with the tokens of the loop", sum(same) / len(same), 1.0, at_least=True),
    ]
    record.done(tell_bars(bars))


def per_second(rate: float) -> str:
    return f"{rate:.0f} /s"


if __name__ == "__main__":
    main()
