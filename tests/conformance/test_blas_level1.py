"""Level 1: vectors of any increment, against NumPy in higher precision."""

import math
from typing import Any

import numpy as np
import pytest
from blas_lab import (
    SHARED,
    complex_factors,
    dtypes,
    execute,
    factors,
    place_vector,
    poisoned,
    scale_of,
    seeds,
    steps,
    values,
    wide,
)
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES, DType
from callboard.kernel.blas import Asum, Axpy, Copy, Dot, Dotc, Dotu, Iamax, Iamin, Nrm2, Rot, Scal, Swap
from callboard.testing.tolerances import assert_close

FLOATS = ("f16", "bf16", "f32", "f64", "c64", "c128")
BLAS = ("f32", "f64", "c64", "c128")
EVERY = [pytest.param(DTYPES[name], id=name) for name in FLOATS]
sizes = st.integers(0, 40)


def pair(session: Any, data: st.DataObject, dtype: DType, n: int, seed: int) -> tuple[Any, Any, Any, Any]:
    """Two vectors on the host and on the device."""
    x, y = values(dtype, (n,), seed), values(dtype, (n,), seed + 1)
    return x, y, place_vector(session, x, data.draw(steps)), place_vector(session, y, data.draw(steps))


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), n=sizes, seed=seeds)
def test_axpy(session: Any, data: st.DataObject, dtype: DType, n: int, seed: int) -> None:
    x, y, at_x, at_y = pair(session, data, dtype, n, seed)
    alpha = data.draw(complex_factors() if dtype.is_complex else factors())
    result = execute(session, Axpy(x=at_x.ref, y=at_y.ref, alpha=alpha.of(session, scale_of(dtype))))
    want = wide(y) + alpha.value * wide(x)
    assert_close(session.get(result), want, dtype, 2, scale=abs(alpha.value) * abs(wide(x)) + abs(wide(y)))
    np.testing.assert_array_equal(session.get(at_y.ref), session.get(result), err_msg="y is changed in place")
    np.testing.assert_array_equal(session.get(at_x.ref), x)
    at_y.check_surroundings(session)


@pytest.mark.parametrize("dtype", EVERY)
def test_axpy_with_itself(session: Any, dtype: DType) -> None:
    x = values(dtype, (9,), 1)
    ref = session.put(x)
    result = execute(session, Axpy(x=ref, y=ref, alpha=2))
    assert_close(session.get(result), 3 * wide(x), dtype, 2, scale=3 * abs(wide(x)))


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), n=sizes, seed=seeds, step=steps)
def test_scal(session: Any, data: st.DataObject, dtype: DType, n: int, seed: int, step: int) -> None:
    x = values(dtype, (n,), seed)
    at_x = place_vector(session, x, step)
    alpha = data.draw(complex_factors() if dtype.is_complex else factors())
    result = execute(session, Scal(x=at_x.ref, alpha=alpha.of(session, scale_of(dtype))))
    assert_close(session.get(result), alpha.value * wide(x), dtype, scale=abs(alpha.value) * abs(wide(x)))
    at_x.check_surroundings(session)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), n=sizes, seed=seeds)
def test_copy(session: Any, data: st.DataObject, dtype: DType, n: int, seed: int) -> None:
    x = values(dtype, (n,), seed)
    at_x = place_vector(session, x, data.draw(steps))
    out = place_vector(session, poisoned(dtype, (n,)), data.draw(steps)) if data.draw(st.booleans()) else None
    result = execute(session, Copy(x=at_x.ref, out=None if out is None else out.ref))
    np.testing.assert_array_equal(session.get(result), x)
    if out is not None:
        out.check_surroundings(session)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), n=sizes, seed=seeds)
def test_swap(session: Any, data: st.DataObject, dtype: DType, n: int, seed: int) -> None:
    x, y, at_x, at_y = pair(session, data, dtype, n, seed)
    result = execute(session, Swap(x=at_x.ref, y=at_y.ref))
    np.testing.assert_array_equal(session.get(result.x), y)
    np.testing.assert_array_equal(session.get(result.y), x)
    for placed in (at_x, at_y):
        placed.check_surroundings(session)


@SHARED
@given(data=st.data(), dtype=dtypes(*BLAS), n=sizes, seed=seeds, angle=st.sampled_from([0.0, 0.25, 2.0, -1.0]))
def test_rot(session: Any, data: st.DataObject, dtype: DType, n: int, seed: int, angle: float) -> None:
    x, y, at_x, at_y = pair(session, data, dtype, n, seed)
    c, s = (np.asarray(f(angle), dtype.real.np).item() for f in (np.cos, np.sin))
    if dtype.is_complex and data.draw(st.booleans(), "complex sine"):
        s = complex(np.asarray(s * (0.6 + 0.8j), dtype.np))
    on_device = data.draw(st.booleans(), "on the device")
    op = Rot(
        x=at_x.ref,
        y=at_y.ref,
        c=session.put(np.array(c, dtype.real.np)) if on_device else c,
        s=session.put(np.array(s, dtype.np)) if on_device else s,
    )
    result = execute(session, op)
    scale = abs(c) * abs(wide(x)) + abs(s) * abs(wide(y)), abs(c) * abs(wide(y)) + abs(s) * abs(wide(x))
    assert_close(session.get(result.x), c * wide(x) + s * wide(y), dtype, 2, scale=scale[0])
    assert_close(session.get(result.y), c * wide(y) - np.conj(s) * wide(x), dtype, 2, scale=scale[1])
    for placed in (at_x, at_y):
        placed.check_surroundings(session)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), n=sizes, seed=seeds)
def test_dot_products(session: Any, data: st.DataObject, dtype: DType, n: int, seed: int) -> None:
    x, y, at_x, at_y = pair(session, data, dtype, n, seed)
    cls = data.draw(st.sampled_from([Dotu, Dotc])) if dtype.is_complex else Dot
    left = wide(x).conj() if cls is Dotc else wide(x)
    want, scale = np.sum(left * wide(y)), np.sum(abs(left) * abs(wide(y)))
    value = execute(session, cls(x=at_x.ref, y=at_y.ref))
    assert type(value) is (complex if dtype.is_complex else float)
    assert_close(np.array(value, dtype.np), want, dtype, max(n, 1), scale=scale, kind="sum")
    out = session.empty((), dtype)
    assert_close(
        session.get(execute(session, cls(x=at_x.ref, y=at_y.ref, out=out))),
        want,
        dtype,
        max(n, 1),
        scale=scale,
        kind="sum",
    )


@pytest.mark.parametrize("dtype", EVERY)
def test_a_dot_product_with_itself(session: Any, dtype: DType) -> None:
    x = values(dtype, (30,), 1)
    ref = session.put(x)
    value = execute(session, (Dotc if dtype.is_complex else Dot)(x=ref, y=ref))
    want = np.sum(abs(wide(x)) ** 2)
    assert_close(np.array(value, dtype.np), wide(np.array(want, dtype.np)) * 0 + want, dtype, 30, scale=want)


@SHARED
@given(dtype=dtypes(*FLOATS), n=sizes, seed=seeds, step=steps)
def test_norms(session: Any, dtype: DType, n: int, seed: int, step: int) -> None:
    x = values(dtype, (n,), seed)
    at_x, real = place_vector(session, x, step), dtype.real
    length, total = np.sqrt(np.sum(abs(wide(x)) ** 2)), np.sum(abs(wide(x).real) + abs(wide(x).imag))
    for cls, want in ((Nrm2, length), (Asum, total)):
        value = execute(session, cls(x=at_x.ref))
        assert type(value) is float
        assert_close(np.array(value, real.np), want, real, max(n, 1), scale=want, kind="sum")
        out = execute(session, cls(x=at_x.ref, out=session.empty((), real)))
        assert_close(session.get(out), want, real, max(n, 1), scale=want, kind="sum")


@pytest.mark.parametrize("size", [1e-30, 1e30])
@pytest.mark.parametrize("name", ["bf16", "f32", "c64"])
def test_nrm2_does_not_square_out_of_range(session: Any, name: str, size: float) -> None:
    dtype = DTYPES[name]
    x = np.full(16, size, dtype.np)
    value = execute(session, Nrm2(x=session.put(x)))
    assert_close(np.array(value, dtype.real.np), 4 * abs(wide(x)[0]), dtype.real, 16, scale=4 * size)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), n=st.integers(1, 40), seed=seeds, step=st.sampled_from([1, 2, 3]))
def test_positions_of_extremes(session: Any, data: st.DataObject, dtype: DType, n: int, seed: int, step: int) -> None:
    """Of several the first one, counted from 0."""
    x = np.random.default_rng(seed).integers(-4, 5, n).astype(dtype.np)
    if dtype.is_complex:
        x = x + 1j * np.roll(x, 1)
        x = x.astype(dtype.np)
    at_x = place_vector(session, x, step)
    size = abs(wide(x).real) + abs(wide(x).imag)
    for cls, want in ((Iamax, np.argmax(size)), (Iamin, np.argmin(size))):
        value = execute(session, cls(x=at_x.ref))
        assert (value, type(value)) == (want, int)
        out = execute(session, cls(x=at_x.ref, out=session.empty((), "i64")))
        assert session.get(out) == want


@pytest.mark.parametrize("dtype", EVERY)
def test_contiguous_arrays_of_any_shape_are_vectors(session: Any, dtype: DType) -> None:
    x, y = values(dtype, (3, 4, 2), 1), values(dtype, (3, 4, 2), 2)
    got = session.get(execute(session, Axpy(x=session.put(x), y=session.put(y))))
    assert_close(got, wide(x) + wide(y), dtype, 2, scale=abs(wide(x)) + abs(wide(y)))
    assert execute(session, Iamax(x=session.put(x))) == np.argmax(abs(wide(x).real) + abs(wide(x).imag))
    one = values(dtype, (), 3)
    assert_close(session.get(execute(session, Scal(x=session.put(one), alpha=2))), 2 * wide(one), dtype)


@pytest.mark.parametrize("name", FLOATS)
def test_an_infinity_reaches_the_result(session: Any, name: str) -> None:
    dtype = DTYPES[name]
    x = np.ones(20, dtype.np)
    x[7] = -np.inf
    ref, ones = session.put(x), session.put(np.ones(20, dtype.np))
    assert execute(session, Nrm2(x=ref)) == math.inf
    assert execute(session, Asum(x=ref)) == math.inf
    assert execute(session, Iamax(x=ref)) == 7
    if not dtype.is_complex:  # an infinity times a zero, of an imaginary part, is NaN
        assert execute(session, Dot(x=ref, y=ones)) == -math.inf
    summed = wide(session.get(execute(session, Axpy(x=ref, y=ones))))
    assert summed[7].real == -np.inf
    np.testing.assert_array_equal(np.delete(summed, 7), 2)


@pytest.mark.parametrize("name", FLOATS)
def test_nan_reaches_the_result(session: Any, name: str) -> None:
    dtype = DTYPES[name]
    x = np.ones(20, dtype.np)
    x[3] = np.nan
    ref, ones = session.put(x), session.put(np.ones(20, dtype.np))
    assert math.isnan(execute(session, Nrm2(x=ref)))
    assert math.isnan(execute(session, Asum(x=ref)))
    assert np.isnan(execute(session, (Dotu if dtype.is_complex else Dot)(x=ref, y=ones)))
    assert 0 <= execute(session, Iamax(x=ref)) < 20
    x[7] = np.inf
    both = session.put(x)
    assert not math.isfinite(execute(session, Nrm2(x=both)))  # which of the two is the library's choice
    assert math.isnan(execute(session, Asum(x=both)))
    summed = wide(session.get(execute(session, Axpy(x=both, y=ones))))
    assert np.isnan(summed[3])
    assert np.isinf(summed[7].real)
    assert 0 <= execute(session, Iamax(x=both)) < 20


def test_iterations_never_leave_the_device(session: Any) -> None:
    """``y += (x . y) x`` with the product as alpha."""
    x, y = values(DTYPES["f64"], (25,), 1), values(DTYPES["f64"], (25,), 2)
    at_x, at_y = session.put(x), session.put(y)
    product = execute(session, Dot(x=at_x, y=at_y, out=session.empty((), "f64")))
    got = session.get(execute(session, Axpy(x=at_x, y=at_y, alpha=product)))
    assert_close(got, y + (x @ y) * x, "f64", 25, scale=abs(y) + (abs(x) @ abs(y)) * abs(x))
