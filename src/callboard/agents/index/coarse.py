"""Coarse rows: eight bits a number, beside rows of f16 or f32. A scan for one query then reads a half or a quarter."""

import math
import threading
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from callboard.agents.index.snapshot import Snapshot

__all__ = ["CoarseRows", "step"]

SHARPEST = 0.03
"""Largest error of a row with which coarse rows are of use: beyond it too many rows may be the best."""
WIDTH = 6.0
"""Largest number of a row of length 1 that is represented, in units of their root mean square."""
AT_ONCE = 1 << 19
"""Numbers that one query converts, in some milliseconds."""


def step(dim: int) -> float:
    """Difference of neighbouring numbers of a coarse row."""
    return min(1.0, WIDTH / math.sqrt(dim)) / 127


class CoarseRows:
    """Coarse rows of rows of length 1, for the snapshots of one numbering: code ``c`` is ``(c - 128) * step(dim)``.

    Each query that could use them converts some rows, so that they take time and memory only where such queries are.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._codes = np.empty((0, 0), np.uint8)
        self._count, self._error = 0, 0.0

    def of(self, snapshot: "Snapshot") -> tuple[NDArray[np.uint8], float] | None:
        """The codes of all rows of a snapshot, and the largest L2 norm of an error; None: not yet, or of no use."""
        with self._lock:
            if self._count < snapshot.count and self._error <= SHARPEST:
                self._extend(snapshot)
            if self._count < snapshot.count or self._error > SHARPEST:
                return None
            return self._codes[: snapshot.count], self._error

    def _extend(self, snapshot: "Snapshot") -> None:
        dim, start = snapshot.rows.shape[1], self._count
        if len(self._codes) < snapshot.count:
            codes = np.empty((len(snapshot.rows), dim), np.uint8)
            codes[:start] = self._codes[:start].reshape(start, dim)
            self._codes = codes
        end = min(snapshot.count, start + max(1, AT_ONCE // dim))
        rows, size = snapshot.decoded(slice(start, end)), np.float32(step(dim))
        near = np.clip(np.rint(rows / size), -127, 127)
        self._codes[start:end] = near + 128
        near *= size
        near -= rows
        worst = float(np.sqrt(np.einsum("ij,ij->i", near, near).max()))
        self._count, self._error = end, max(self._error, worst)
        if worst > SHARPEST:
            self._codes = np.empty((0, 0), np.uint8)
