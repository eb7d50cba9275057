"""Speculative decoding beside transformers' assisted generation: the same models, the same k, the same tokens.

    python benchmarks/assisted.py --json assisted.json
    python benchmarks/assisted.py --quick

Where transformers is not installed, it is put into an environment of its own. The target is a GPT-2 of random weights
whose later layers add little to what the first one says; the good draft is that first layer, so that it is often right
without any training. The useless draft has the same form and other weights. "greedy" is transformers' ``generate``
without a draft. Figures are tokens per second of processor time, one text at a time: all runs on one thread.
"""

import argparse
import asyncio
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _harness import Bar, arguments, interleave, ratios, table, tell_bars
from _peers import dependencies, run_in
from _record import Record

import callboard as cb

FIXED = (2, 4, 8)


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--layers", type=int, default=12, help="of the target (default 12)")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=192, help="new ones of each text (default 192)")
    parser.add_argument("--texts", type=int, default=4)


def main() -> None:
    given = arguments(__doc__, rounds=5, extend=_extend)
    if given.quick:
        given.layers, given.tokens, given.texts = min(given.layers, 2), min(given.tokens, 16), 1
    if importlib.util.find_spec("transformers") is None:
        run_in("transformers", ["torch", *dependencies()])
    import torch
    from _assisted_models import LONGEST, VOCABULARY, Cached, models

    record = Record("assisted", given)
    torch.set_num_threads(1)
    target, good, useless = models(given.layers, given.width)
    prefixes = np.random.default_rng(1).integers(0, VOCABULARY, (given.texts, 16)).tolist()
    total = given.texts * given.tokens
    found_tokens: dict[str, list[list[int]]] = {}

    def assisted(name: str, draft: Any, k: int) -> Callable[[], float]:
        def run() -> float:
            options: dict[str, Any] = {"do_sample": False, "max_new_tokens": given.tokens}
            if draft is not None:
                settings = draft.generation_config
                settings.num_assistant_tokens, settings.assistant_confidence_threshold = k, 0.0
                settings.num_assistant_tokens_schedule = "constant"
                options["assistant_model"] = draft
            start = time.process_time()
            texts = [target.generate(torch.tensor([prefix]), **options)[0].tolist() for prefix in prefixes]
            seconds = time.process_time() - start
            found_tokens[name] = texts
            return total / seconds

        return run

    def served(name: str, draft: Any, k: int, adaptive: bool = False) -> Callable[[], float]:
        async def run() -> float:
            proposes = None if draft is None else cb.ModelDraft(Cached(draft), executor="loop")
            async with cb.SpeculativeDecoder(
                Cached(target), proposes, k=k, adaptive=adaptive, executor="loop", max_total_tokens=LONGEST
            ) as server:
                start = time.process_time()
                texts = [await server.submit(cb.Decode(each, max_new_tokens=given.tokens)) for each in prefixes]
                seconds = time.process_time() - start
                told[name] = server.stats().mean_accepted_length
            found_tokens[name] = [each.tokens for each in texts]
            return total / seconds

        return lambda: asyncio.run(run())

    told: dict[str, float] = {}
    subjects: dict[str, Callable[[], float]] = {"greedy": assisted("greedy", None, 0)}
    for k in FIXED:
        subjects[f"transformers, k = {k}"] = assisted(f"transformers, k = {k}", good, k)
        subjects[f"callboard, k = {k}"] = served(f"callboard, k = {k}", good, k)
    subjects["callboard, adaptive"] = served("callboard, adaptive", good, max(FIXED), adaptive=True)
    subjects["callboard, none"] = served("callboard, none", None, 1)
    subjects["transformers, useless, k = 4"] = assisted("transformers, useless, k = 4", useless, 4)
    subjects["callboard, useless, adaptive"] = served("callboard, useless, adaptive", useless, 4, adaptive=True)
    for subject in subjects.values():  # warm
        subject()
    found = interleave(subjects, given.rounds, "tokens per second")
    record["tokens per second"] = table("tokens per second", found, lambda rate: f"{rate:.0f} /s", "greedy")
    record["kept of a proposal"] = told
    same = sum(texts == found_tokens["greedy"] for texts in found_tokens.values())
    record["subjects that gave the tokens of greedy"] = [same, len(found_tokens)]
    for name, kept in told.items():
        print(f"{name:28} kept {kept:.2f} tokens of a proposal")

    def bar(of: str, to: str, limit: float) -> Bar:
        ratio = ratios(found, of, to)
        return Bar(f"{of}, to {to}", ratio and ratio["median"], limit, at_least=True)

    record.done(
        tell_bars(
            [
                *(bar(f"callboard, k = {k}", f"transformers, k = {k}", 1.0) for k in FIXED),
                bar("callboard, useless, adaptive", "greedy", 0.97),
                bar("callboard, useless, adaptive", "callboard, none", 0.97),
                Bar("share of subjects with the tokens of greedy", same / len(found_tokens), 1.0, at_least=True),
            ]
        )
    )


if __name__ == "__main__":
    main()
