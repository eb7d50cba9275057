"""What tests of indexes share: clustered vectors, and a search in plain NumPy."""

from typing import Any

import numpy as np


def vectors(n: int, dim: int = 24, seed: int = 0) -> Any:
    draw = np.random.default_rng(seed)
    return (draw.standard_normal((8, dim))[draw.integers(8, size=n)] + draw.standard_normal((n, dim))).astype("f4")


def plain(rows: Any, ids: Any, query: Any, k: int, metric: str) -> list[int]:
    """Ids, nearest first, equal ones by id."""
    rows, query = rows.astype("f8"), query.astype("f8")
    if metric == "l2":
        scores = -np.linalg.norm(rows - query, axis=1)
    else:
        scores = rows @ query
        if metric == "cosine":
            scores /= np.linalg.norm(rows, axis=1)
    return [ids[n] for n in sorted(range(len(ids)), key=lambda n: (-np.float32(scores[n]), ids[n]))[:k]]
