"""Shared by the FFT suites: operands of drawn strides, references in higher precision, bounds."""

from typing import Any, NamedTuple

import numpy as np
import scipy.fft
from blas_lab import SENTINEL
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.testing.tolerances import assert_close

Array = np.ndarray[Any, Any]

PRECISIONS = ("f16", "f32", "f64")
NORMS = ("backward", "ortho", "forward")
COMPLEX_OF = {"f32": np.dtype(np.complex64), "f64": np.dtype(np.complex128)}
precisions = st.sampled_from(PRECISIONS)
norms = st.sampled_from(NORMS)


def extents(precision: str) -> Any:
    """What a transform may have points: cuFFT has powers of two only in half precision, so these are half of them."""
    any_number = st.integers(1, 17)
    return st.sampled_from([1, 2, 4, 8, 16]) | any_number if precision == "f16" else any_number


@st.composite
def problems(draw: st.DrawFn, precision: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape of one to four axes, and one to three of them."""
    ndim = draw(st.integers(1, 4))
    axes = draw(st.permutations(range(ndim)))[: draw(st.integers(1, min(3, ndim)))]
    shape = [draw(st.integers(0, 5)) for _ in range(ndim)]
    for axis in axes:
        shape[axis] = draw(extents(precision))
    signs = draw(st.lists(st.booleans(), min_size=len(axes), max_size=len(axes)))
    return tuple(shape), tuple(a - ndim if back else a for a, back in zip(axes, signs, strict=True))


class Strides(NamedTuple):
    """How an operand lies: axes from the slowest to the fastest, a step and a margin for each."""

    order: tuple[int, ...]
    steps: tuple[int, ...]
    margins: tuple[int, ...]


@st.composite
def strides(draw: st.DrawFn, ndim: int) -> Strides:
    """Row-major half of the time."""
    if draw(st.booleans()):
        return Strides(tuple(range(ndim)), (1,) * ndim, (0,) * ndim)
    order = tuple(draw(st.permutations(range(ndim))))
    steps = tuple(draw(st.sampled_from([1, 1, 2, -1])) for _ in range(ndim))
    return Strides(order, steps, tuple(draw(st.sampled_from([0, 0, 1, 3])) for _ in range(ndim)))


class Placed(NamedTuple):
    """An operand inside a longer array."""

    ref: Any
    around: Any
    reached: Array

    def check_surroundings(self, session: Any) -> None:
        """Nothing beside the operand has been written."""
        whole = np.asarray(session.get(self.around)).reshape(self.reached.size, -1)
        np.testing.assert_array_equal(whole[~self.reached], SENTINEL)


def place(session: Any, array: Array, how: Strides, pairs: bool = False) -> Placed:
    """``array`` on the device, in these strides; with ``pairs`` its last axis stays together."""
    shape = array.shape[:-1] if pairs else array.shape
    steps, reach = [0] * len(shape), 1
    for axis in reversed(how.order):
        steps[axis] = reach * how.steps[axis]
        reach *= max(1, shape[axis]) * abs(how.steps[axis]) + how.margins[axis]
    first = sum((n - 1) * -s for n, s in zip(shape, steps, strict=True) if s < 0 and n)
    whole = np.full((reach, 2) if pairs else (reach,), SENTINEL, array.dtype)
    item = whole.strides[0]
    inside = np.lib.stride_tricks.as_strided(
        whole[first:], array.shape, (*(s * item for s in steps), *([array.itemsize] if pairs else []))
    )
    inside[...] = array
    reached = np.zeros(reach, bool)
    np.lib.stride_tricks.as_strided(reached[first:], shape, steps)[...] = True
    if array.size == 0:
        first, reached[:] = 0, False
    around = session.put(whole)
    layout = layout_of(
        DTYPES[{"e": "f16", "f": "f32", "d": "f64", "F": "c64", "D": "c128"}[array.dtype.char]],
        array.shape,
        (*(2 * s for s in steps), 1) if pairs else tuple(steps),
    )
    offset = around.offset + first * item
    ref = around._view(layout, offset) if hasattr(around, "_view") else type(around)(around.block, layout, offset)
    return Placed(ref, around, reached)


# -- numbers -----------------------------------------------------------------------------------------------------------


def real(precision: str, shape: tuple[int, ...], seed: int) -> Array:
    """Normal numbers, exactly as the type holds them."""
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[precision].np)


def stored(values: Array, precision: str) -> Array:
    """Complex numbers as an operand holds them: halves in pairs."""
    if precision == "f16":
        return np.stack([values.real, values.imag], -1).astype(np.float16)
    return values.astype(COMPLEX_OF[precision])


def loaded(values: Array, precision: str) -> Array:
    """The complex numbers of an operand, wide."""
    values = np.asarray(values)
    if precision == "f16":
        values = values[..., 0].astype(np.longdouble) + 1j * values[..., 1]
    return values.astype(np.clongdouble)


def complex_numbers(precision: str, shape: tuple[int, ...], seed: int) -> Array:
    """Normal complex numbers as an operand holds them."""
    return stored(real("f64", shape, seed) + 1j * real("f64", shape, seed + 1), precision)


def half_spectrum(precision: str, shape: tuple[int, ...], axes: tuple[int, ...], seed: int) -> Array:
    """The first half of a Hermitian array, of the size of its signal, as an operand holds it."""
    return stored(scipy.fft.rfftn(real("f64", shape, seed), axes=axes, norm="ortho"), precision)


def transformed(name: str, x: Array, **settings: Any) -> Array:
    """SciPy's transform in its widest type."""
    wide = x.astype(np.clongdouble if np.iscomplexobj(x) else np.longdouble)
    found: Array = getattr(scipy.fft, name)(wide, **settings)
    return found


def check(
    session: Any,
    got: Array,
    want: Array,
    precision: str,
    x: Array,
    axes: tuple[int, ...],
    points: int,
    scale: float,
) -> None:
    """An element is as far away as the roundings of ``log2(points)`` stages make it, of the size of the signal.

    Args:
        session: Halves stay halves between the stages on a GPU, and are f32 on a CPU.
        got: Real, or complex and wide.
        want: What it should be.
        precision: Of the operands.
        x: What was transformed (wide).
        axes: Along which.
        points: Of one transform.
        scale: That the norm asks for.
    """
    kind: Any = "half" if precision == "f16" and session.backend.name != "cpu" else precision
    size = np.sqrt(np.sum(np.abs(x.astype(np.clongdouble)) ** 2, axis=axes, keepdims=True)).astype(float) * scale
    if np.iscomplexobj(want):
        for part in ("real", "imag"):
            one, other = getattr(got, part).astype(DTYPES[precision].np), getattr(want, part)
            assert_close(one, other, kind, 1 + int(np.log2(points)), kind="transform", scale=size)
    else:
        assert_close(got, want, kind, 1 + int(np.log2(points)), kind="transform", scale=size)


def norm_scale(points: int, direction: str, norm: str) -> float:
    """What the plain sum is multiplied by."""
    if norm == "ortho":
        return float(points**-0.5)
    return 1 / points if (direction == "inverse") == (norm == "backward") else 1.0
