"""Shared by the BLAS suites: operands in drawn layouts, references in higher precision, numbers and 0-d arrays."""

from typing import Any, NamedTuple

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.core.op import OPS, Op

Array = np.ndarray[Any, Any]

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)  # one session for all

extents = st.integers(0, 7)
seeds = st.integers(0, 2**16)
MATRIX_LAYOUTS = ("rows", "padded rows", "columns", "padded columns")
matrix_layouts = st.sampled_from(MATRIX_LAYOUTS)
steps = st.sampled_from([1, 2, -1, -3])
SENTINEL = 77
"""Fills what lies beside an operand; no result is likely to write it."""


def dtypes(*names: str) -> Any:
    return st.sampled_from([DTYPES[name] for name in names])


# -- host arrays -------------------------------------------------------------------------------------------------------


def values(dtype: DType, shape: tuple[int, ...], seed: int) -> Array:
    """Numbers of both signs and moderate size, exactly as the dtype holds them."""
    generator = np.random.default_rng(seed)
    if dtype.is_integer:
        return generator.integers(-128, 128, shape).astype(dtype.np)
    array: Array = generator.standard_normal(shape)
    if dtype.is_complex:
        array = array + 1j * generator.standard_normal(shape)
    return array.astype(dtype.np)


def wide(array: Any) -> Array:
    """The same numbers in the reference's type: f64, c128 or Python integers."""
    array = np.asarray(array)
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    if array.dtype.kind in "iu":
        return array.astype(object)
    return array.astype(np.float64)


def turned(array: Array, transpose: bool, conj: bool) -> Array:
    array = array.T if transpose else array
    return array.conj() if conj else array


# -- device arrays -----------------------------------------------------------------------------------------------------


class Placed(NamedTuple):
    """An operand inside a larger array."""

    ref: Any
    around: Any
    """The larger array, and where in it the operand lies."""
    index: Any
    columns: bool

    def check_surroundings(self, session: Any) -> None:
        """Nothing beside the operand has been written."""
        whole = session.get(self.around)
        inside = np.zeros(whole.shape, bool)
        inside[self.index] = True
        np.testing.assert_array_equal(wide(whole)[~inside], SENTINEL)


def place_matrix(session: Any, array: Array, layout: str) -> Placed:
    """``array`` (two axes, or three with a batch first) on the device, in one of :data:`MATRIX_LAYOUTS`."""
    columns = layout.endswith("columns")
    stored = array.swapaxes(-1, -2) if columns else array
    before, after = ((1, 2), (2, 1)) if layout.startswith("padded") else ((0, 0), (0, 0))
    shape = (*stored.shape[:-2], stored.shape[-2] + sum(before), stored.shape[-1] + sum(after))
    index = (
        ...,
        slice(before[0], before[0] + stored.shape[-2]),
        slice(after[0], after[0] + stored.shape[-1]),
    )
    whole = np.full(shape, SENTINEL, array.dtype)
    whole[index] = stored
    around = session.put(whole)
    ref = around[index]
    if columns:
        ref = swap_axes(ref)
    return Placed(ref, around, index, columns)


def swap_axes(ref: Any) -> Any:
    """The last two axes exchanged, as views of ``.T`` and an index allow it."""
    if ref.ndim == 2:
        return ref.T
    from callboard.core.layout import layout_of

    batch, rows, cols = ref.shape
    steps = ref.strides
    layout = layout_of(ref.dtype, (batch, cols, rows), (steps[0], steps[2], steps[1]))
    return ref._view(layout, ref.offset) if hasattr(ref, "_view") else type(ref)(ref.block, layout, ref.offset)


def place_vector(session: Any, array: Array, step: int) -> Placed:
    """``array`` (one axis) on the device, at a distance of ``step`` elements from each other; negative: backwards."""
    n, size = array.size, array.size * abs(step)
    whole = np.full(size + 4, SENTINEL, array.dtype)
    first = 2 if step > 0 else 2 + (n - 1) * -step
    stop = first + n * step
    index = slice(first, stop if stop >= 0 else None, step) if n else slice(2, 2)
    whole[index] = array
    around = session.put(whole)
    return Placed(around[index], around, index, False)


# -- numbers -----------------------------------------------------------------------------------------------------------


class Factor(NamedTuple):
    """A drawn alpha or beta: its value, and whether it lies on the device."""

    value: Any
    on_device: bool

    def of(self, session: Any, dtype: DType) -> Any:
        """As the message takes it; ``dtype`` is that of a 0-d array."""
        return session.put(np.array(self.value, dtype.np)) if self.on_device else self.value


def factors(*numbers: float) -> Any:
    """Numbers that every float type holds exactly, host or device."""
    return st.builds(Factor, st.sampled_from(numbers or (0.0, 1.0, -0.5, 2.0)), st.booleans())


def complex_factors() -> Any:
    return factors() | st.builds(Factor, st.sampled_from([0.5 - 2j, 1j]), st.booleans())


def messages(*bases: type[Op[Any, Any]]) -> list[Any]:
    """The messages of families, in order of definition: what a suite shows of one, it shows of all."""
    return [op for op in OPS.values() if issubclass(op, bases)]


# -- execution ---------------------------------------------------------------------------------------------------------


def execute(session: Any, op: Op[Any, Any]) -> Any:
    """Submit; where another backend than the CPU says beforehand that it does not execute this op, go on without it."""
    reason = session.why_not(op)
    if reason is not None:
        assert session.backend.name != "cpu", f"the reference must execute every valid op: {reason}"
        if hypothesis.currently_in_test_context():
            hypothesis.reject()
        pytest.skip(reason)
    return session.submit(op)


def attempt(session: Any, op: Op[Any, Any]) -> tuple[Any, str]:
    """What the op answers, and why it was refused (``""`` if it was not)."""
    try:
        return execute(session, op), ""
    except ShapeError as e:
        return None, str(e)


def scale_of(dtype: DType) -> DType:
    """The dtype of a 0-d alpha, as the messages document it."""
    return DTYPES[{"f16": "f32", "bf16": "f32", "i8": "i32"}.get(dtype.name, dtype.name)]


def poisoned(dtype: DType, shape: tuple[int, ...]) -> Array:
    """All NaN (the largest number for integers): shows whether it is read."""
    if dtype.is_integer:
        return np.full(shape, np.iinfo(dtype.np).max, dtype.np)
    return np.full(shape, np.nan, dtype.np)
