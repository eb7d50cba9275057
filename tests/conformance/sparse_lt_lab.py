"""Shared by the suites of structured sparsity: matrices with the pattern, references in f64, the pattern itself."""

from typing import Any, NamedTuple

import numpy as np
from blas_lab import Array, swap_axes, values
from hypothesis import strategies as st

from callboard.backends.cpu.lowprec import encode_f8
from callboard.core.dtype import DTYPES, DType
from callboard.kernel.sparse_lt import Compress, StructuredRef

NAMES = ("f16", "bf16", "f32", "i8", "f8_e4m3", "f8_e5m2")
LARGEST = {"f8_e4m3": 448.0, "f8_e5m2": 57344.0, "i8": 127.0}
STEP = {"f16": 16, "bf16": 16, "f32": 8, "i8": 32, "f8_e4m3": 32, "f8_e5m2": 32}
"""Extents that cuSPARSELt takes are multiples of it."""
INNER_ADJACENT = ("f32", "i8", "f8_e4m3", "f8_e5m2")
"""Dtypes that cuSPARSELt takes on Hopper with the inner axis adjacent only."""
LAYOUTS = ("rows", "padded rows", "columns", "padded columns")
SENTINEL = 64
"""Fills what lies beside an operand; every dtype holds it."""


def size_of(dtype: DType) -> int:
    """Neighbours in a group, of which half may differ from 0."""
    return 2 if dtype.name == "f32" else 4


def steps(dtype: DType) -> Any:
    """Extents that every backend takes."""
    return st.integers(1, 4).map(lambda n: n * STEP[dtype.name])


def wide(array: Any) -> Array:
    return np.asarray(array).astype(np.float64)


def drawn(dtype: DType, shape: tuple[int, ...], seed: int) -> Array:
    """Numbers of moderate size, exactly as the dtype holds them."""
    if dtype.name.startswith("f8"):
        return encode_f8(values(DTYPES["f64"], shape, seed), dtype)
    return values(dtype, shape, seed)


def structured(dtype: DType, shape: tuple[int, ...], seed: int) -> Array:
    """The same with the pattern: in each group random places, some of them 0 as well."""
    x, size = drawn(dtype, shape, seed), size_of(dtype)
    order = np.random.default_rng(seed + 7).random((*shape[:-1], shape[-1] // size, size)).argsort(-1)
    x[(order >= size // 2).reshape(shape)] = 0
    x[np.random.default_rng(seed + 8).random(shape) < 0.1] = 0
    return x


def has_pattern(x: Array, size: int) -> Array:
    """For each group of each row, whether at most half of it differs from 0."""
    counts = (wide(x).reshape(*x.shape[:-1], x.shape[-1] // size, size) != 0).sum(-1)
    found: Array = counts <= size // 2
    return found


class Placed(NamedTuple):
    """An operand inside a larger array; its rows (or columns) begin where tensor cores can load them."""

    ref: Any
    around: Any
    inside: Array

    def check_surroundings(self, session: Any) -> None:
        """Nothing beside the operand has been written."""
        np.testing.assert_array_equal(wide(session.get(self.around))[~self.inside], SENTINEL)


def place(session: Any, array: Array, layout: str) -> Placed:
    """``array`` on the device, in one of :data:`LAYOUTS`."""
    columns, padding = layout.endswith("columns"), 32 if layout.startswith("padded") else 0
    stored = array.swapaxes(-1, -2) if columns else array
    *batch, rows, cols = stored.shape
    whole = np.full((*batch, rows + 2 * padding // 32, cols + 2 * padding), SENTINEL).astype(array.dtype)
    index = (..., slice(padding // 32, padding // 32 + rows), slice(padding, padding + cols))
    whole[index] = stored
    inside = np.zeros(whole.shape, bool)
    inside[index] = True
    around = session.put(whole)
    ref = around[index]
    return Placed(swap_axes(ref) if columns else ref, around, inside)


def compressed(session: Any, x: Array) -> StructuredRef:
    """``x``, which has the pattern, as the device holds it."""
    answer: StructuredRef = session.submit(Compress(x=session.put(x)))
    return answer
