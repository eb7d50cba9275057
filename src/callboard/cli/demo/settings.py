"""The numbers of the demo's job, shared with the same job in plain torch."""

from typing import Any

import numpy as np

__all__ = ["CHECKPOINT", "FAULT_AT", "MOST", "POISONED", "RANK", "SETTLED", "first_block"]

RANK = 10
"""Components."""
CHECKPOINT = 10
"""Iterations between copies of the block to the host."""
SETTLED = 1e-7
"""The iteration ends when no variance changes by more than this part between two checkpoints."""
MOST = 400
"""Iterations at most."""
FAULT_AT = 35
"""Iteration after which the context is lost: between two checkpoints, with work in flight."""
POISONED = 70
"""Exit code of a process whose context is dead."""


def first_block(rank: int, features: int, seed: int = 1) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """A block ``[rank, features]`` to start from: random, so that it misses no component."""
    return np.random.default_rng(seed).standard_normal((rank, features))
