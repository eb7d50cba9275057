"""Exact nearest neighbours and cached embeddings: ``CpuVectorIndex``, a NumPy product with argpartition, and faiss.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/vector_index.py --json vector_index.json
    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/vector_index.py --quick --device cpu
    OMP_NUM_THREADS=1 python benchmarks/vector_index.py --hnsw
    python benchmarks/vector_index.py --device cuda --rows 10000000 --dtype f16 --batch 1024 --rounds 3

Clustered vectors, cosine, the 10 nearest; on a CPU, processor time and different queries in turn. faiss is measured
where it is installed. With ``--hnsw``, graphs in place of exact search: ``HnswVectorIndex``, and faiss and hnswlib
called directly, with 16 links and 128 and 64 candidates. A GPU measures ``DeviceVectorIndex``, blocked products and
top-k of torch, and faiss with all cores; so does a CPU with ``--by-device``. 10⁷ vectors of 384 then take 8 GB of f16
in host memory, twice as much on the GPU, and 16 to 31 GB in faiss.
"""

import argparse
import asyncio
import importlib
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np
from _device_index import BLOCK, K, device_searches, repeated
from _harness import Bar, arguments, interleave, kind_of, ratios, spread, table, tell_bars
from _record import Record

import callboard as cb


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--hnsw", action="store_true", help="graphs, in place of exact search")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--batch", type=int, default=32, help="queries of a batch (default 32)")
    parser.add_argument("--by-device", action="store_true", help="DeviceVectorIndex, on a CPU too")
    parser.add_argument("--dtype", choices=("f32", "f16", "i8"), default="f16", help="of rows on a device")


def clustered(dim: int, count: int, seed: int = 0) -> Any:
    """Vectors of norm 1, around the same centres."""
    centres = np.random.default_rng(0).standard_normal((256, dim), np.float32)
    draw = np.random.default_rng((1, seed))
    found = centres[draw.integers(256, size=count)]
    found += draw.standard_normal((count, dim), np.float32)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found


def blocks(given: Any) -> Iterator[Any]:
    """The rows."""
    for start in range(0, given.rows, BLOCK):
        yield clustered(given.dim, min(BLOCK, given.rows - start), start)


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
    found: dict[str, Callable[[Any], Any]] = {
        "callboard": lambda queries: index.search_now(queries, K).ids,
        "faiss": lambda queries: raw.search(queries, K)[1],
    }
    for name, space in (("hnswlib", "l2"), ("hnswlib ip", "ip")):
        other = hnswlib.Index(space, given.dim)
        other.init_index(given.rows, M=16, ef_construction=128)
        other.add_items(rows, num_threads=1)
        other.set_ef(64)
        other.set_num_threads(1)
        found[name] = lambda queries, other=other: other.knn_query(queries, K)[0]
    return found


def in_turn(search: Callable[[Any], Any], queries: Any, batch: int, seconds: float) -> Callable[[], float]:
    """Processor seconds of a query, batch after batch: the rows near one of them would stay in the cache."""

    def run() -> float:
        parts = cycle([queries[start : start + batch] for start in range(0, len(queries), batch)])
        return repeated(lambda: search(next(parts)), batch, seconds, time.process_time)

    return run


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
    queries = clustered(given.dim, given.batch, given.rows)
    if given.by_device or kind_of(given.device) != "cpu":
        bars = of_device(given, record, queries, seconds)
    else:
        bars = of_host(given, record, queries, seconds)
    hits = interleave({"hit": cached(given, queries)}, given.rounds, "cache")
    record["cache"] = table("EmbeddingCache.get of a vector that is there", hits, micros, "hit")
    bars.append(Bar("hit, us", spread(hits["hit"])["median"] * 1e6, 200, at_least=False))
    record.done(tell_bars(bars))


def of_host(given: Any, record: Record, queries: Any, seconds: float) -> list[Bar]:
    rows, bars = np.concatenate([*blocks(given)]), []
    subjects = graphs(given, rows) if given.hnsw else searches(given, rows)
    asked = clustered(given.dim, 100 if given.quick else 500, given.rows + 1)
    exact = np.argsort(-(asked @ rows.T), axis=1)[:, :K]
    recall = {
        name: float(np.mean([len({*a} & {*b}) / K for a, b in zip(search(asked), exact, strict=True)]))
        for name, search in subjects.items()
    }
    record["recall"] = recall
    print("recall@10:", recall)
    for batch in (1, given.batch):
        runs = {name: in_turn(search, queries, batch, seconds) for name, search in subjects.items()}
        title = f"batch {batch}"
        found = interleave(runs, given.rounds, title)
        ours, peers = ("callboard", ("hnswlib", "hnswlib ip", "faiss")) if given.hnsw else ("f32", ("NumPy", "faiss"))
        record[title] = table(f"{given.rows} x {given.dim}, {title}, us per query", found, micros, peers[0])
        for peer in peers:
            ratio = ratios(found, peer, ours)
            bars.append(Bar(f"speed of {ours}, {title}, to {peer}", ratio and ratio["median"], 0.9, at_least=True))
        if not given.hnsw:
            ratio, limit = ratios(found, "f16", "faiss f16"), 1.0 if batch == 1 else 0.78
            bars.append(Bar(f"time of f16, {title}, to faiss f16", ratio and ratio["median"], limit, at_least=False))
    return bars


def of_device(given: Any, record: Record, queries: Any, seconds: float) -> list[Bar]:
    with device_searches(given, lambda: blocks(given), queries, seconds) as (subjects, recall):
        record["recall"] = recall
        print("share of the host's neighbours:", recall)
        found = interleave(subjects, given.rounds, given.device)
    title = f"{given.rows} x {given.dim}, {given.dtype}, batch {given.batch}, us per query"
    record["device"] = table(title, found, micros, "device")
    bars = []
    for peer, limit in (("torch", 0.9), ("faiss", 100)):
        ratio = ratios(found, peer, "device")
        bars.append(Bar(f"speed on the device, to {peer}", ratio and ratio["median"], limit, at_least=True))
    return bars


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


if __name__ == "__main__":
    main()
