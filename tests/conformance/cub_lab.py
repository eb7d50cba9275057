"""Arrays for the conformance suite of parallel primitives: drawn, and what NumPy makes of them."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES

NUMBERS = ("f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
ORDERED = (*NUMBERS, "bool")
FLOATS = ("f16", "bf16", "f32", "f64")
Array = np.ndarray[Any, Any]
OPERATIONS = ("sum", "product", "min", "max")


def operations_of(dtype: str) -> "st.SearchStrategy[str]":
    """All of f32 and i32, two of each other dtype, a different pair for each kind: on CUDA each is a compile."""
    if dtype in ("f32", "i32"):
        return st.sampled_from(OPERATIONS)
    if dtype == "bool":
        return st.sampled_from(OPERATIONS[2:])
    return st.sampled_from(OPERATIONS[ORDERED.index(dtype) % 2 :: 2])


seeds = st.integers(0, 2**31)
lengths = st.sampled_from(
    [0, 1, 2, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 2047, 2049, 4097, 10_000]
) | st.integers(0, 5000)
"""Around warps, blocks and the tiles of CUB."""


def drawn(seed: int, shape: Any, dtype: str, odd: bool = True, few: bool = False) -> Array:
    """Numbers of a dtype, with repetitions; of floating types, with ``odd``, some NaNs, infinities and zeros.

    ``few``: Of few values, which sums of every type hold.
    """
    rng, kind = np.random.default_rng(seed), DTYPES[dtype].np
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype not in FLOATS:
        limits = np.iinfo(kind)
        low, high = (0 if limits.min == 0 else -3, 4) if few else (limits.min, limits.max)
        wide = rng.integers(low, high, shape, kind, endpoint=True)
        return np.where(rng.random(shape) < 0.3, kind.type(1), wide)
    numbers = np.round(rng.standard_normal(shape) * 4, 1).astype(kind)
    if odd:
        chosen = rng.integers(0, 40, shape)
        specials = (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0)
        for at, special in enumerate(specials):
            numbers[chosen == at] = np.copysign(np.float64(np.nan), -1) if at == 1 else special
    return numbers


def wide(array: Array) -> Array:
    """Halves as f32, which NumPy computes with."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 and array.dtype.kind not in "iu" else array


def same(got: Array, want: Array) -> None:
    """Equal element by element, NaN to NaN, 0.0 to -0.0."""
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(wide(got), wide(want))


def ordered(keys: Array, descending: bool = False) -> Array:
    """The indices that sort the last axis, by comparing ranks: NaN last, or first."""
    flat = wide(keys)
    if flat.dtype.kind == "f":
        values = np.where(np.isnan(flat), np.inf, flat)
        nans = np.isnan(flat)
    else:
        values, nans = flat, np.zeros(flat.shape, bool)
    rows = values.reshape(-1, values.shape[-1]) if values.size else values.reshape(0, values.shape[-1])
    marks = nans.reshape(rows.shape)
    found = np.empty(rows.shape, np.int64)
    for at, (row, mark) in enumerate(zip(rows, marks, strict=True)):
        _, ranks = np.unique(row, return_inverse=True)
        ranks = np.where(mark, row.size, ranks)
        found[at] = np.lexsort((np.arange(row.size), -ranks if descending else ranks))
    return found.reshape(values.shape)
