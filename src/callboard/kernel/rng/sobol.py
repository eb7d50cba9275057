"""Sobol points: the numbers that a table of them is made of.

The direction numbers are those of Joe and Kuo, "Constructing Sobol sequences with better two-dimensional projections",
SIAM J. Sci. Comput. 30 (2008), which SciPy ships and cuRAND uses too.
"""

from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["SCRAMBLING", "point_table"]

SCRAMBLING = 0x40000000
"""Fourth counter word of the Philox blocks that scrambling draws from: block ``(r // 2, 0, dimension)`` holds rows
``r`` and ``r + 1`` of the dimension's random matrix, most significant bit first, and the shift as the row after the
last."""


@lru_cache(maxsize=16)
def point_table(dimensions: int, bits: int) -> "np.ndarray[Any, Any]":
    """The points with the numbers 1, 2, 4 …: ``[bits, dimensions]`` of uint64, integers of ``bits`` bits.

    The point with the number ``i`` is the exclusive or of those whose bit is set in ``i`` (the order of Antonov and
    Saleev's Gray code, USSR Comput. Math. Math. Phys. 19, 1979).
    """
    from scipy.stats import qmc

    # There is no public way to all 64 bits: points are doubles. A test compares with public points.
    directions = qmc.Sobol(dimensions, scramble=False, bits=bits)._sv.astype(np.uint64)
    table: np.ndarray[Any, Any] = directions.T.copy()
    table[1:] ^= directions.T[:-1]
    table.setflags(write=False)
    return table
