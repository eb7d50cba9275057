"""Scans for single queries by faiss, where it is installed: of coarse rows, or of rows of f16, without conversion."""

import functools
import importlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.agents.index.coarse import step
from callboard.agents.index.protocol import Metric
from callboard.agents.index.snapshot import Snapshot

__all__ = ["FEW", "faiss", "scanned"]

FEW = {"float16": 4, "float32": 1}
"""Queries of a search that are scanned one by one, by the rows' dtype: a product of more is faster by NumPy."""
SPARE = 22
"""Rows beyond the best ``k`` that a scan keeps. If they are all as good, within its error, another way is taken."""
ROUGHLY = 256
"""The same, of coarse rows."""


@functools.cache
def faiss() -> Any:
    """The module; None if it is not installed."""
    try:
        return importlib.import_module("faiss")
    except ImportError:
        return None


def scanned(
    snapshot: Snapshot, query: NDArray[np.float32], k: int, metric: Metric, slack: float, allowed: Any
) -> NDArray[np.intp] | None:
    """Rows that may be among the ``k`` best of a query; None if that is not known.

    Args:
        snapshot: Has rows of f16, which are read where they are, or of f32, of which only coarse ones are.
        query: One query.
        k: Number of results; so many rows are allowed.
        metric: What is nearest.
        slack: Error of a product.
        allowed: Mask of the rows that count; None for all.
    """
    module, rows, count = faiss(), snapshot.rows, snapshot.count
    if module is None or not rows.flags.c_contiguous or (metric != "cosine" and rows.dtype != np.float16):
        return None
    bits = None if allowed is None else np.packbits(allowed, bitorder="little")
    chosen = None if bits is None else module.IDSelectorBitmap(len(bits), module.swig_ptr(bits))
    if metric == "cosine" and k <= ROUGHLY and (coarse := snapshot.numbering.of(snapshot)) is not None:
        codes, error = coarse
        coder = module.ScalarQuantizer(rows.shape[1], module.ScalarQuantizer.QT_8bit_direct_signed)
        size = np.abs(query).max() / np.float32(127)
        near = np.rint(query / size)  # integers, too: a scan is of products of bytes
        rest = query - near * size
        error = 1.01 * (error + math.sqrt(rest @ rest) * (snapshot.largest + error))
        bound = (slack + 2 * error) / (float(size) * step(rows.shape[1]))
        found = _scan(codes, coder, near, k, k + ROUGHLY, metric, bound, chosen)
        if found is not None:
            return found
    if rows.dtype != np.float16:
        return None
    halves, coder = rows[:count].view(np.uint8), module.ScalarQuantizer(rows.shape[1], module.ScalarQuantizer.QT_fp16)
    slack *= 4 if metric == "l2" else 1  # of a sum of squares of differences
    return _scan(halves, coder, query, k, k + SPARE, metric, slack, chosen)


def _scan(
    codes: NDArray[np.uint8], coder: Any, query: Any, k: int, kept: int, metric: Metric, slack: float, chosen: Any
) -> NDArray[np.intp] | None:
    """Rows whose scores are at most ``slack`` below the ``k``-th; None if there may be more than ``kept``."""
    module, count = faiss(), len(codes)
    pointer, kept = module.swig_ptr, min(kept, count)
    better = module.METRIC_L2 if metric == "l2" else module.METRIC_INNER_PRODUCT
    scanner = coder.select_InvertedListScanner(better, None, False, chosen, False)
    scanner.set_query(pointer(query))
    scanner.set_list(0, 0.0)
    scores = np.full(kept, np.inf if metric == "l2" else -np.inf, np.float32)
    found, numbers = np.full(kept, -1, np.int64), _numbers(count)
    scanner.scan_codes(count, pointer(codes), pointer(numbers), pointer(scores), pointer(found), kept)
    if metric == "l2":
        np.negative(scores, out=scores)
    least = np.partition(scores, kept - k)[kept - k] - slack
    if kept < count and least <= scores.min() and found.min() >= 0:
        return None
    best: NDArray[np.intp] = found[(scores >= least) & (found >= 0)].astype(np.intp, copy=False)
    return best


@functools.lru_cache(2)
def _room(count: int) -> NDArray[np.int64]:
    return np.arange(count, dtype=np.int64)


def _numbers(count: int) -> NDArray[np.int64]:
    """0, 1, … up to ``count``."""
    return _room(1 << count.bit_length())[:count]
