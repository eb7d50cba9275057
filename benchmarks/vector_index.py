"""Exact nearest neighbours and cached embeddings: ``CpuVectorIndex``, a NumPy product with argpartition, and faiss.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/vector_index.py --json vector_index.json
    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/vector_index.py --quick --device cpu
    python benchmarks/vector_index.py --device cuda --rows 10000000 --queries 1024

    OMP_NUM_THREADS=1 python benchmarks/vector_index.py --hnsw

Clustered vectors, cosine, the 10 nearest. faiss is measured where it is installed. With ``--hnsw``, graphs in place of
exact search: ``HnswVectorIndex``, and faiss and hnswlib called directly, with 16 links and 128 and 64 candidates. A GPU
measures ``DeviceVectorIndex``, and blocked products and top-k of torch where that has a GPU.
"""

import argparse
import asyncio
import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _harness import Bar, arguments, interleave, kind_of, ratios, spread, table, tell_bars
from _record import Record

import callboard as cb

K = 10


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--hnsw", action="store_true", help="graphs, in place of exact search")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--queries", type=int, default=32, help="of a batch (default 32)")


def clustered(given: Any) -> tuple[Any, Any]:
    """Rows and queries of norm 1."""
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((256, given.dim), np.float32)

    def some(n: int) -> Any:
        found = centres[draw.integers(256, size=n)]
        found += draw.standard_normal((n, given.dim), np.float32)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    return some(given.rows), some(given.queries)


def timed(function: Callable[[], Any], queries: int, seconds: float) -> Callable[[], float]:
    """Seconds of a query: the median of as many calls as there is time for."""

    def run() -> float:
        times, end = [], time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return float(np.median(times)) / queries

    return run


def searches(given: Any, rows: Any) -> dict[str, Callable[[Any], Any]]:
    """Functions of queries that give ids, by name."""

    def index(dtype: Any) -> cb.CpuVectorIndex:
        found = cb.CpuVectorIndex(given.dim, dtype=dtype)
        found.upsert(range(given.rows), rows)
        return found

    def plain(queries: Any) -> Any:
        products = queries @ rows.T
        best = np.argpartition(products, -K, axis=1)[:, -K:]
        order = np.argsort(-np.take_along_axis(products, best, 1), axis=1)
        return np.take_along_axis(best, order, 1)

    indexes = {dtype: index(dtype) for dtype in ("f32", "f16", "i8")}
    found: dict[str, Callable[[Any], Any]] = {"NumPy": plain}
    for dtype, each in indexes.items():
        found[dtype] = lambda queries, each=each: each.search_now(queries, K).ids
    try:
        faiss = importlib.import_module("faiss")
    except ImportError:
        return found
    faiss.omp_set_num_threads(1)
    halves = faiss.ScalarQuantizer.QT_fp16
    flats = faiss.IndexFlatIP(given.dim), faiss.IndexScalarQuantizer(given.dim, halves, faiss.METRIC_INNER_PRODUCT)
    for name, flat in zip(("faiss", "faiss f16"), flats, strict=True):
        flat.train(rows)
        flat.add(rows)
        found[name] = lambda queries, flat=flat: flat.search(queries, K)[1]
    return found


def graphs(given: Any, rows: Any) -> dict[str, Callable[[Any], Any]]:
    """As :func:`searches`, by graphs; vectors of length 1 have the same neighbours by distance."""
    faiss, hnswlib = importlib.import_module("faiss"), importlib.import_module("hnswlib")
    faiss.omp_set_num_threads(1)
    index = cb.HnswVectorIndex(given.dim)
    index.upsert(range(given.rows), rows)
    raw = faiss.IndexHNSWFlat(given.dim, 16)
    raw.hnsw.efConstruction, raw.hnsw.efSearch = 128, 64
    raw.add(rows)
    other = hnswlib.Index("l2", given.dim)
    other.init_index(given.rows, M=16, ef_construction=128)
    other.add_items(rows, num_threads=1)
    other.set_ef(64)
    other.set_num_threads(1)
    return {
        "callboard": lambda queries: index.search_now(queries, K).ids,
        "faiss": lambda queries: raw.search(queries, K)[1],
        "hnswlib": lambda queries: other.knn_query(queries, K)[0],
    }


def on_device(given: Any, rows: Any, queries: Any, seconds: float) -> dict[str, Callable[[], float]]:
    """Seconds of a query of a batch, by the device and by torch on the same GPU."""

    def ours() -> float:
        async def go() -> float:
            async with cb.device(given.device) as gpu:
                host = cb.CpuVectorIndex(given.dim, dtype="f16")
                host.upsert(range(given.rows), rows)
                index, times = cb.DeviceVectorIndex(gpu, host), []
                await index.search(queries, K)  # copies the rows
                end = time.perf_counter() + seconds
                while not times or time.perf_counter() < end:
                    start = time.perf_counter()
                    await index.search(queries, K)
                    times.append(time.perf_counter() - start)
                return float(np.median(times)) / len(queries)

        return asyncio.run(go())

    found = {"device": ours}
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return found
    if not torch.cuda.is_available():
        return found

    def blocked() -> float:
        held = torch.from_numpy(rows.astype(np.float16)).cuda()

        def search() -> Any:
            sent = torch.from_numpy(queries.astype(np.float16)).cuda()
            parts = [torch.topk(sent @ held[n : n + (1 << 18)].T, K) for n in range(0, len(held), 1 << 18)]
            best = torch.topk(torch.cat([part.values for part in parts], 1), K)
            return best.values.cpu(), best.indices.cpu()

        search()
        return timed(search, len(queries), seconds)()

    return found | {"torch": blocked}


def cached(given: Any, rows: Any) -> Callable[[], float]:
    """Seconds of a hit."""

    async def go() -> float:
        cache, n = cb.EmbeddingCache(lambda texts: rows[: len(texts)]), 200 if given.quick else 5000
        await cache.get("text")
        start = time.perf_counter()
        for _ in range(n):
            await cache.get("text")
        return (time.perf_counter() - start) / n

    return lambda: asyncio.run(go())


def main() -> None:
    given = arguments(__doc__, rounds=7, extend=_extend)
    if given.quick:
        given.rows = min(given.rows, 2000)
    seconds = 0.05 if given.quick else 0.5
    record = Record("vector_index", given)
    rows, queries = clustered(given)
    bars: list[Bar] = []
    if given.device == "cpu" or kind_of(given.device) == "cpu":
        subjects = graphs(given, rows) if given.hnsw else searches(given, rows)
        exact = np.argsort(-(queries @ rows.T), axis=1)[:, :K]
        recall = {
            name: float(np.mean([len({*a} & {*b}) / K for a, b in zip(search(queries), exact, strict=True)]))
            for name, search in subjects.items()
        }
        record["recall"] = recall
        print("recall@10:", recall)
        for batch in (1, given.queries):
            runs = {name: timed(lambda s=s, b=batch: s(queries[:b]), batch, seconds) for name, s in subjects.items()}
            title = f"batch {batch}"
            found = interleave(runs, given.rounds, title)
            ours, peers = ("callboard", ("hnswlib", "faiss")) if given.hnsw else ("f32", ("NumPy", "faiss"))
            record[title] = table(f"{given.rows} x {given.dim}, {title}, us per query", found, micros, peers[0])
            for peer in peers:
                ratio = ratios(found, peer, ours)
                bars.append(Bar(f"speed of {ours}, {title}, to {peer}", ratio and ratio["median"], 0.9, at_least=True))
            if not given.hnsw:
                ratio = ratios(found, "f16", "faiss")
                bars.append(Bar(f"time of f16, {title}, to faiss", ratio and ratio["median"], 0.4, at_least=False))
    else:
        found = interleave(on_device(given, rows, queries, seconds), given.rounds, given.device)
        record["device"] = table(f"{given.rows} x {given.dim}, batch {given.queries}", found, micros, "device")
        ratio = ratios(found, "torch", "device")
        bars.append(Bar("speed on the device, to blocked torch", ratio and ratio["median"], 0.9, at_least=True))
    hits = interleave({"hit": cached(given, rows)}, given.rounds, "cache")
    record["cache"] = table("EmbeddingCache.get of a vector that is there", hits, micros, "hit")
    bars.append(Bar("hit, us", spread(hits["hit"])["median"] * 1e6, 200, at_least=False))
    record.done(tell_bars(bars))


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


if __name__ == "__main__":
    main()
