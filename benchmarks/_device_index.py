"""Exact nearest neighbours on a device, for ``vector_index.py``: ``DeviceVectorIndex``, blocked torch, and faiss."""

import asyncio
import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from _harness import kind_of

import callboard as cb

K = 10
BLOCK = 1 << 17
"""Rows that are made, added and copied at once: the memory beside the indexes is that of a few such blocks in f32."""
PRODUCT = 1 << 18
"""Rows of one product of torch."""
CHECKED = 4
"""Queries whose neighbours are compared with the host's."""


@contextmanager
def device_searches(
    given: Any, blocks: Callable[[], Iterator[Any]], queries: Any, seconds: float
) -> Iterator[tuple[dict[str, Callable[[], float]], dict[str, float]]]:
    """Seconds of a query of a batch by each subject, and the share of the host's neighbours that each found.

    Args:
        given: Arguments of the benchmark.
        blocks: Gives the rows, in blocks; each call gives the same ones.
        queries: ``[batch, dim]``.
        seconds: Of each measurement.
    """
    host = cb.CpuVectorIndex(given.dim, dtype=given.dtype)
    for start, rows in zip(range(0, given.rows, BLOCK), blocks(), strict=True):
        host.upsert(range(start, start + len(rows)), rows)
    expected = host.search_now(queries[:CHECKED], K).ids
    recall: dict[str, float] = {}

    def checked(name: str, ids: Any) -> None:
        pairs = zip(np.asarray(ids)[:CHECKED], expected, strict=True)
        recall[name] = float(np.mean([len({*a.tolist()} & {*b.tolist()}) / K for a, b in pairs]))

    with asyncio.Runner() as runner:
        system = cb.System("vector_index")

        async def opened() -> cb.DeviceVectorIndex:
            await system.start()
            index = cb.DeviceVectorIndex(await system.device(given.device), host)
            checked("device", (await index.search(queries, K)).ids)  # copies the rows
            return index

        async def timed(index: cb.DeviceVectorIndex) -> float:
            times, end = [], time.perf_counter() + seconds
            while not times or time.perf_counter() < end:
                start = time.perf_counter()
                await index.search(queries, K)
                times.append(time.perf_counter() - start)
            return float(np.median(times)) / len(queries)

        try:
            index = runner.run(opened())
            found = {"device": lambda: runner.run(timed(index))}
            for name, make in (("torch", by_torch), ("faiss", by_faiss)):
                search = make(given, host, blocks)
                if search is not None:
                    checked(name, search(queries))
                    found[name] = lambda search=search: repeated(lambda: search(queries), len(queries), seconds)
            yield found, recall
        finally:
            runner.run(system.stop())


def by_torch(given: Any, host: cb.CpuVectorIndex, blocks: Callable[[], Iterator[Any]]) -> Callable[[Any], Any] | None:
    """Products and top-k of blocks of the same rows, and the best of all blocks; None without torch or its GPU."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    kind, dtype = kind_of(given.device), np.float32 if given.dtype == "f32" else np.float16
    if kind == "cuda" and not torch.cuda.is_available():
        return None
    snapshot = host.snapshot()
    held = torch.empty((given.rows, given.dim), dtype=getattr(torch, np.dtype(dtype).name), device=kind)
    for start in range(0, given.rows, BLOCK):
        rows = snapshot.decoded(slice(start, min(start + BLOCK, given.rows))).astype(dtype)
        held[start : start + len(rows)] = torch.from_numpy(rows).to(kind)

    def search(queries: Any) -> Any:
        sent, starts = torch.from_numpy(queries.astype(dtype)).to(kind), range(0, given.rows, PRODUCT)
        parts = [torch.topk(sent @ held[n : n + PRODUCT].T, min(K, given.rows - n)) for n in starts]
        places = torch.cat([part.indices + n for part, n in zip(parts, starts, strict=True)], 1)
        best = torch.topk(torch.cat([part.values for part in parts], 1), K)
        best.values.cpu()
        return places.gather(1, best.indices).cpu().numpy()

    return search


def by_faiss(given: Any, host: cb.CpuVectorIndex, blocks: Callable[[], Iterator[Any]]) -> Callable[[Any], Any] | None:
    """``IndexFlatIP`` with all cores; None without faiss."""
    try:
        faiss = importlib.import_module("faiss")
    except ImportError:
        return None
    flat = faiss.IndexFlatIP(given.dim)
    for rows in blocks():
        flat.add(rows)
    return lambda queries: flat.search(queries, K)[1]


def repeated(
    function: Callable[[], Any], queries: int, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of a query: the median of as many calls as there is time for, of one at least."""
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = clock()
        function()
        times.append(clock() - start)
    return float(np.median(times)) / queries
