"""Scans of rows of f16 by faiss, where it is installed: a single query then needs no conversion to f32."""

import functools
import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.agents.index.protocol import Metric
from callboard.agents.index.snapshot import Snapshot

__all__ = ["FEW", "faiss", "scanned"]

FEW = 4
"""Queries of a search that are scanned one by one: a product of more is faster by NumPy."""
SPARE = 22
"""Rows beyond the best ``k`` that a scan keeps. If they are all as good, within rounding, NumPy searches instead."""


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
        snapshot: Has rows of f16. They are read where they are.
        query: One query.
        k: Number of results; so many rows are allowed.
        metric: What is nearest.
        slack: Error of a product.
        allowed: Mask of the rows that count; None for all.
    """
    module, rows = faiss(), snapshot.rows
    if module is None or rows.dtype != np.float16 or not rows.flags.c_contiguous:
        return None
    count, pointer = snapshot.count, module.swig_ptr
    kept = min(count, k + SPARE)
    bits = None if allowed is None else np.packbits(allowed, bitorder="little")
    chosen = None if bits is None else module.IDSelectorBitmap(len(bits), pointer(bits))
    kind = module.METRIC_L2 if metric == "l2" else module.METRIC_INNER_PRODUCT
    quantizer = module.ScalarQuantizer(rows.shape[1], module.ScalarQuantizer.QT_fp16)
    scanner = quantizer.select_InvertedListScanner(kind, None, False, chosen, False)
    scanner.set_query(pointer(query))
    scanner.set_list(0, 0.0)
    scores = np.full(kept, np.inf if metric == "l2" else -np.inf, np.float32)
    found, numbers = np.full(kept, -1, np.int64), _numbers(count)
    codes = rows[:count].view(np.uint8)
    scanner.scan_codes(count, pointer(codes), pointer(numbers), pointer(scores), pointer(found), kept)
    if metric == "l2":
        np.negative(scores, out=scores)
        slack *= 4  # of a sum of squares of differences
    if kept < count and found.min() >= 0 and np.partition(scores, kept - k)[kept - k] - slack <= scores.min():
        return None
    return found[found >= 0].astype(np.intp, copy=False)


@functools.lru_cache(2)
def _room(count: int) -> NDArray[np.int64]:
    return np.arange(count, dtype=np.int64)


def _numbers(count: int) -> NDArray[np.int64]:
    """0, 1, … up to ``count``."""
    return _room(1 << count.bit_length())[:count]
