"""Unpacking and checking of a model's pass."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.patterns.batching.results import rows_of
from callboard.patterns.requests.errors import BadBatchResult

__all__ = ["logits_of"]


def logits_of(result: Any, rows: list[int]) -> list[NDArray[Any]]:
    """The logits of each sequence, ``(rows[i], vocabulary)``.

    Raises:
        BadBatchResult: Another number of sequences, or of rows.
    """
    found: list[NDArray[Any]] = []
    for i, (given, expected) in enumerate(zip(rows_of(result, len(rows)), rows, strict=True)):
        logits = np.asarray(given)
        if logits.ndim != 2 or len(logits) != expected or not logits.shape[1]:
            raise BadBatchResult(
                f"forward returned logits of shape {logits.shape} for sequence {i}; expected ({expected}, vocabulary)",
                expected,
                len(logits) if logits.ndim else None,
            )
        found.append(logits)
    return found
