"""Transforms along drawn axes of arrays of drawn strides, against SciPy's in its widest type."""

from typing import Any

import numpy as np
import pytest
import scipy.fft
from blas_lab import SHARED, execute, seeds
from fft_lab import (
    NORMS,
    PRECISIONS,
    check,
    complex_numbers,
    half_spectrum,
    loaded,
    norm_scale,
    norms,
    place,
    precisions,
    problems,
    real,
    stored,
    strides,
    transformed,
)
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import layout_of
from callboard.kernel.fft import Fft, Irfft, IrfftOverwrite, Rfft
from callboard.testing.tolerances import assert_close

DIRECTIONS = ("forward", "inverse")


def draw_out(session: Any, data: st.DataObject, like: Any, pairs: bool) -> Any:
    """A given output with NaN in it, or None."""
    if not data.draw(st.booleans(), "given output"):
        return None
    return place(session, np.full_like(like, np.nan), data.draw(strides(like.ndim - pairs)), pairs)


@SHARED
@given(data=st.data(), precision=precisions, norm=norms, seed=seeds)
def test_complex(session: Any, data: st.DataObject, precision: str, norm: Any, seed: int) -> None:
    shape, axes = data.draw(problems(precision))
    pairs = precision == "f16"
    x = complex_numbers(precision, shape, seed)
    at_x = place(session, x, data.draw(strides(len(shape))), pairs)
    direction: Any = data.draw(st.sampled_from(DIRECTIONS))
    out = at_x if data.draw(st.booleans(), "in place") else draw_out(session, data, x, pairs)
    op = Fft(x=at_x.ref, out=None if out is None else out.ref, axes=axes, direction=direction, norm=norm)
    got = session.get(execute(session, op))
    wide, points = loaded(x, precision), int(np.prod([shape[a] for a in axes]))
    want = transformed("fftn" if direction == "forward" else "ifftn", wide, axes=axes, norm=norm)
    check(session, loaded(got, precision), want, precision, wide, axes, points, norm_scale(points, direction, norm))
    if out is not None:
        out.check_surroundings(session)
    if out is not at_x:
        np.testing.assert_array_equal(session.get(at_x.ref), x)


@SHARED
@given(data=st.data(), precision=precisions, norm=norms, seed=seeds)
def test_from_real(session: Any, data: st.DataObject, precision: str, norm: Any, seed: int) -> None:
    shape, axes = data.draw(problems(precision))
    x = real(precision, shape, seed)
    at_x = place(session, x, data.draw(strides(len(shape))))
    want = transformed("rfftn", x, axes=axes, norm=norm)
    pairs = precision == "f16"
    out = draw_out(session, data, complex_numbers(precision, want.shape, 0), pairs)
    op = Rfft(x=at_x.ref, out=None if out is None else out.ref, axes=axes, norm=norm)
    got = session.get(execute(session, op))
    points = int(np.prod([shape[a] for a in axes]))
    check(session, loaded(got, precision), want, precision, x, axes, points, norm_scale(points, "forward", norm))
    if out is not None:
        out.check_surroundings(session)
    np.testing.assert_array_equal(session.get(at_x.ref), x)


@SHARED
@given(data=st.data(), precision=precisions, norm=norms, seed=seeds)
def test_to_real(session: Any, data: st.DataObject, precision: str, norm: Any, seed: int) -> None:
    shape, axes = data.draw(problems(precision))
    pairs, n = precision == "f16", shape[axes[-1]]
    x = half_spectrum(precision, shape, axes, seed)
    at_x = place(session, x, data.draw(strides(len(shape))), pairs)
    out = draw_out(session, data, real(precision, shape, 0), False)
    overwrite = data.draw(st.booleans(), "overwrite")
    message = IrfftOverwrite if overwrite else Irfft
    given_n = None if n % 2 == 0 and data.draw(st.booleans()) else n
    op = message(x=at_x.ref, out=None if out is None else out.ref, n=given_n, axes=axes, norm=norm)
    got = session.get(execute(session, op))
    wide, points = loaded(x, precision), int(np.prod([shape[a] for a in axes]))
    want = transformed("irfftn", wide, s=[shape[a] for a in axes], axes=axes, norm=norm)
    check(session, got, want, precision, wide, axes, points, norm_scale(points, "inverse", norm))
    if out is not None:
        out.check_surroundings(session)
    if not overwrite:
        np.testing.assert_array_equal(session.get(at_x.ref), x)
    at_x.check_surroundings(session)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [1, 2, 97, 1009, 1024, 1000, 65537])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_lengths_of_every_kind(session: Any, precision: str, n: int, norm: Any) -> None:
    """Powers of two, products of small primes, and primes; there and back again."""
    x = complex_numbers(precision, (3, n), n)
    wide = loaded(x, precision)
    there = execute(session, Fft(x=session.put(x), norm=norm))
    scale = norm_scale(n, "forward", norm)
    want = transformed("fft", wide, norm=norm)
    got = loaded(session.get(there), precision)
    check(session, got, want, precision, wide, (-1,), n, scale)
    if precision == "f16":
        return  # what has been rounded to f16 once is no longer the spectrum of x
    back = loaded(session.get(execute(session, Fft(x=there, direction="inverse", norm=norm))), precision)
    check(session, back, wide, precision, want, (-1,), n, norm_scale(n, "inverse", norm))
    energy = np.sum(np.abs(got) ** 2, axis=-1) / scale**2 / n  # Parseval
    assert_close(energy.astype(float), np.sum(np.abs(wide) ** 2, axis=-1).astype(float), precision, n, kind="transform")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_hermitian_array_and_its_half(session: Any, precision: str) -> None:
    """The transform of a real array is that of the complex array with these real parts."""
    x = real(precision, (4, 8, 16), 5)
    half = execute(session, Rfft(x=session.put(x), axes=(0, 2)))
    zeros = loaded(np.stack([x, np.zeros_like(x)], -1), "f16")
    whole = execute(session, Fft(x=session.put(stored(zeros, precision)), axes=(0, 2)))
    got, want = loaded(session.get(half), precision), loaded(session.get(whole), precision)[:, :, :9]
    check(session, got, want, precision, x, (0, 2), 64, 1.0)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_batches_of_nothing(session: Any, precision: str) -> None:
    empty = complex_numbers(precision, (0, 16), 1)
    assert session.get(execute(session, Fft(x=session.put(empty)))).shape == empty.shape
    half = complex_numbers(precision, (0, 9), 1)
    assert session.get(execute(session, Irfft(x=session.put(half)))).shape == (0, 16)
    assert session.get(execute(session, Rfft(x=session.put(real(precision, (8, 0), 1)), axes=(0,)))).shape[0] == 5


@pytest.mark.parametrize("precision", ["f32", "f64"])
def test_a_repeated_array_and_windows_that_overlap(session: Any, precision: str) -> None:
    """Inputs may name an element several times."""
    x = real(precision, (64,), 3)
    at_x = session.put(x)
    spread = strided(at_x, (3, 64), (0, 1))
    got = loaded(session.get(execute(session, Rfft(x=spread))), precision)
    check(session, got, transformed("rfft", np.stack([x] * 3)), precision, x[None], (-1,), 64, 1.0)
    windows = strided(at_x, (7, 16), (8, 1))
    got = loaded(session.get(execute(session, Rfft(x=windows))), precision)
    want = transformed("rfft", np.lib.stride_tricks.sliding_window_view(x, 16)[::8])
    check(session, got, want, precision, x[None], (-1,), 16, 1.0)


def strided(ref: Any, shape: tuple[int, ...], steps: tuple[int, ...]) -> Any:
    layout = layout_of(ref.dtype, shape, steps)
    return ref._view(layout, ref.offset) if hasattr(ref, "_view") else type(ref)(ref.block, layout, ref.offset)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_parts_of_an_array(session: Any, precision: str) -> None:
    """A real array that begins anywhere."""
    x = real(precision, (70,), 4)
    at_x = session.put(x)
    for first in (1, 2, 3, 5):
        part = x[first : first + 64]
        got = loaded(session.get(execute(session, Rfft(x=at_x[first : first + 64]))), precision)
        check(session, got, transformed("rfft", part), precision, part, (-1,), 64, 1.0)


@pytest.mark.parametrize("norm", NORMS)
def test_large(session: Any, norm: Any) -> None:
    """Several passes over memory."""
    x = complex_numbers("f32", (1 << 18,), 6)
    wide = x.astype(np.complex128)
    got = session.get(execute(session, Fft(x=session.put(x), norm=norm))).astype(np.complex128)
    check(
        session, got, scipy.fft.fft(wide, norm=norm), "f32", wide, (0,), 1 << 18, norm_scale(1 << 18, "forward", norm)
    )


def refused(session: Any, op: Any) -> str:
    with pytest.raises(ShapeError) as caught:
        session.submit(op)
    return str(caught.value)


def test_what_does_not_fit_is_refused(session: Any) -> None:
    c, r = session.empty((4, 6), "c64"), session.empty((4, 6), "f32")
    assert "rfft takes real arrays" in refused(session, Fft(x=r))
    assert "fft takes complex arrays" in refused(session, Rfft(x=c))
    assert "must be f16, f32 or f64" in refused(session, Rfft(x=session.empty(4, "i32")))
    assert "there is no axis 2" in refused(session, Fft(x=c, axes=(2,)))
    assert "there is no axis -3" in refused(session, Fft(x=c, axes=(-3,)))
    assert "once" in refused(session, Fft(x=c, axes=(0, -2)))
    assert "1 to 3 axes" in refused(session, Fft(x=c, axes=()))
    assert "1 to 3 axes" in refused(session, Fft(x=session.empty((1, 2, 3, 4), "c64"), axes=(0, 1, 2, 3)))
    assert "no points" in refused(session, Fft(x=session.empty((4, 0), "c64")))
    assert "axis 1 of x must have 3 points and has 6" in refused(session, Irfft(x=c, n=5))
    assert "give n" in refused(session, Irfft(x=session.empty((4, 1), "c64")))
    assert "expected c64[4, 4]" in refused(session, Rfft(x=r, out=session.empty((4, 6), "c64")))
    assert "dtype must be c64" in refused(session, Fft(x=c, out=session.empty((4, 6), "f32")))
    assert "f16 in pairs" in refused(session, Fft(x=session.empty((4, 6), "i16")))
    assert "real and imaginary part: extent 2" in refused(session, Fft(x=session.empty((4, 6), "f16")))
    assert "copy it first" in refused(session, Fft(x=session.empty((4, 4), "f16")[:, ::2]))


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_output_may_not_share_memory_with_input_otherwise(session: Any, name: str) -> None:
    if not hasattr(session, "device") or not hasattr(session.device, "fft"):
        pytest.skip("overlaps are looked for by devices; this session has none")
    complex_name = {"f32": "c64", "f64": "c128"}[name]
    whole = session.put(np.zeros(10, DTYPES[complex_name].np))
    with pytest.raises(ShapeError, match="shares memory"):
        session.submit(Fft(x=whole[:8], out=whole[2:]))
    with pytest.raises(ShapeError, match="shares memory"):
        session.submit(Rfft(x=session.device.view(whole, dtype=name)[:8], out=whole[:5]))


def test_a_plan_is_made_once_for_all_that_decides_it(session: Any) -> None:
    device = getattr(session, "device", None)
    if not hasattr(device, "stats"):
        pytest.skip("plans are counted by devices; this session has none")
    x = session.put(np.ones((10, 21), np.complex64))

    def misses() -> int:
        return int(session._run(device.stats()).plans["fft"].misses)

    session.submit(Fft(x=x, norm="forward"))
    before = misses()
    for _ in range(3):
        session.submit(Fft(x=x, axes=(1,), norm="forward"))  # the same, said otherwise
    assert misses() == before
    for other in (Fft(x=x, norm="ortho"), Fft(x=x, axes=(0,)), Fft(x=x[:, ::2])):
        session.submit(other)
    assert misses() == before + 3
