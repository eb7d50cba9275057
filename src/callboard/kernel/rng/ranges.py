"""Numbers that both backends must form in the same way, because the bits of a result depend on them."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from callboard.core.dtype import DTYPES, DType

__all__ = ["UNIFORM_BITS", "Range", "uniform_range"]

UNIFORM_BITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
"""Random bits of a uniform number in [0, 1): as many as keep every multiple of the last one exact in the dtype."""


class Range(NamedTuple):
    """A range of uniform numbers ``min(low + span * u, top)``, in the dtype that they are computed in.

    Attributes:
        low: The least.
        span: The length of the range.
        top: The largest number of the dtype that is below ``high``.
    """

    low: float
    span: float
    top: float


@lru_cache(maxsize=1024)
def uniform_range(low: float, high: float, dtype: DType) -> Range:
    """The scaling for uniform numbers in ``[low, high)``: f64 arithmetic for f64, f32 for the others."""
    real: Any = np.float64 if dtype is DTYPES["f64"] else np.float32
    kind: Any = dtype.np.type
    with np.errstate(over="ignore"):
        top = kind(high)
        if float(top) >= high:
            top = np.nextafter(top, kind(-np.inf))
        top = max(float(top), float(kind(low)))
        return Range(float(real(low)), float(real(high - low)), float(real(top)))
