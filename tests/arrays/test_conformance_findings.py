"""Requirements of the array API's own test suite beyond NumPy's results that were once missing here."""

import inspect
import itertools
import math
from typing import Any

import numpy as np
import pytest

import callboard as cb

PAIRS = list(itertools.product((math.inf, -math.inf, 0.0, -0.0, 3.5, -3.5, math.nan), repeat=2))


def floor_quotient(x: float, y: float) -> float:
    """Of the standard, where one of the numbers is infinite: the quotient, rounded down."""
    with np.errstate(all="ignore"):
        return float(np.floor(np.divide(x, y)))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_floor_divide_of_infinities(session: cb.sync.Device, dtype: Any) -> None:
    pairs = [pair for pair in PAIRS if any(map(math.isinf, pair))]
    x, y = (session.put(np.array(one), dtype=dtype) for one in zip(*pairs, strict=True))
    want = np.array([floor_quotient(*pair) for pair in pairs])
    for got in (session.xp.floor_divide(x, y).get(), (x // y).get()):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[got == 0]))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_power_of_one_half(session: cb.sync.Device, dtype: Any) -> None:
    x = session.put(np.array([-math.inf, -0.0, 0.0, 4.0, math.inf, -1.0]), dtype=dtype)
    for got in ((x**0.5).get(), session.xp.pow(x, session.xp.full_like(x, 0.5)).get()):
        np.testing.assert_array_equal(got, [math.inf, 0.0, 0.0, 2.0, math.inf, math.nan])
        assert not np.signbit(got[:-1]).any()


def test_a_power_of_one_half_in_place(session: cb.sync.Device) -> None:
    x = session.put(np.array([-math.inf, 4.0]))
    x **= 0.5
    np.testing.assert_array_equal(x.get(), [math.inf, 2.0])


def test_asarray_joins_refs(session: cb.sync.Device) -> None:
    xp = session.xp
    x = session.put(np.arange(6.0).reshape(2, 3))
    nested = xp.asarray([[x[i, j] for i in range(2)] for j in range(3)])
    np.testing.assert_array_equal(nested.get(), np.arange(6.0).reshape(2, 3).T)
    np.testing.assert_array_equal(xp.asarray(xp.unstack(x, axis=1), dtype="f32").get(), x.get().T.astype("f4"))
    cube = session.put(np.arange(8.0).reshape(2, 2, 2))
    parts = xp.asarray(xp.unstack(cube, axis=1), dtype=xp.float64)  # whose rows have gaps
    np.testing.assert_array_equal(parts.get(), np.moveaxis(cube.get(), 1, 0))
    mixed = xp.asarray([x[0, 1], 7])
    assert mixed.dtype is xp.float64
    np.testing.assert_array_equal(mixed.get(), [1.0, 7.0])
    with pytest.raises(cb.ShapeError, match="several shapes"):
        xp.asarray([x[0], x[0, 0]])
    with pytest.raises(cb.ShapeError, match="different lengths"):
        xp.asarray([[x[0]], [x[0], x[1]]])


def test_distinct_complex_numbers(session: cb.sync.Device) -> None:
    xp = session.xp
    numbers = np.array([1 + 2j, 1 + 1j, 0, 1 + 2j, complex(math.nan, 1), complex(-0.0, 0), complex(math.nan, 1)])
    values, indices, inverse, counts = (one.get() for one in xp.unique_all(session.put(numbers)))
    np.testing.assert_array_equal(values, [0, 1 + 1j, 1 + 2j, complex(math.nan, 1), complex(math.nan, 1)])
    np.testing.assert_array_equal(numbers[indices], values)
    np.testing.assert_array_equal(values[inverse], numbers)
    assert counts.tolist() == [2, 1, 2, 1, 1]
    np.testing.assert_array_equal(xp.unique_values(session.put(numbers)).get(), values)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64])
def test_running_products_of_complex_numbers(session: cb.sync.Device, n: int) -> None:
    rng = np.random.default_rng(n)
    x = np.exp(1j * rng.uniform(size=(3, n, 2)))
    got = session.xp.cumulative_prod(session.put(x), axis=1)
    assert got.dtype is session.xp.complex128
    np.testing.assert_allclose(got.get(), np.cumprod(x, 1), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["i8", "u8", "u64"])
def test_repeats_of_each_integer_dtype(session: cb.sync.Device, dtype: Any) -> None:
    x, repeats = session.put(np.arange(3.0)), np.array([2, 0, 1])
    got = session.xp.repeat(x, session.put(repeats, dtype=dtype))
    np.testing.assert_array_equal(got.get(), np.repeat(np.arange(3.0), repeats))


@pytest.mark.parametrize("k", [10**30, -(10**30), 2**63, -(2**63)])
def test_a_diagonal_far_outside(session: cb.sync.Device, k: int) -> None:
    xp, ones, zeros = session.xp, np.ones((2, 3)), np.zeros((2, 3))
    x = session.put(ones)
    np.testing.assert_array_equal(xp.eye(2, 3, k=k).get(), zeros)
    np.testing.assert_array_equal(xp.tril(x, k=k).get(), ones if k > 0 else zeros)
    np.testing.assert_array_equal(xp.triu(x, k=k).get(), zeros if k > 0 else ones)


@pytest.mark.parametrize("unit", [1.0, -1.0, 1j])
def test_numbers_whose_difference_overflows(session: cb.sync.Device, unit: complex) -> None:
    largest = float(np.finfo(np.float64).max)
    got = session.xp.linspace(-largest * unit, largest * unit, 5).get()
    np.testing.assert_allclose(got / largest, np.array([-1, -0.5, 0, 0.5, 1]) * unit, rtol=1e-15)


def test_dlpack_names_its_parameters(session: cb.sync.Device) -> None:
    parameters = inspect.signature(session.put(np.ones(3)).__dlpack__).parameters
    assert list(parameters) == ["stream", "max_version", "dl_device", "copy"]
    assert {one.kind for one in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("kept", [True, False])
def test_a_mask_without_axes(session: cb.sync.Device, kept: bool) -> None:
    x, mask = np.arange(6).reshape(2, 3), np.array(kept)
    np.testing.assert_array_equal(session.put(x)[session.put(mask)].get(), x[mask])
    scalar = np.array(4.0)
    np.testing.assert_array_equal(session.put(scalar)[session.put(mask)].get(), scalar[mask])
    ref = session.put(x)
    ref[session.put(mask)] = -1
    x[mask] = -1
    np.testing.assert_array_equal(ref.get(), x)


def test_no_differences_of_what_is_put_before_it(session: cb.sync.Device) -> None:
    x = session.put(np.arange(3.0))
    np.testing.assert_array_equal(session.xp.diff(x, n=0, prepend=x).get(), np.arange(3.0))


@pytest.mark.parametrize("ord", ["nuc", 1, 2, math.inf])
@pytest.mark.parametrize("shape", [(0, 0), (0, 2), (3, 2, 0)])
def test_norms_of_empty_matrices(session: cb.sync.Device, shape: tuple[int, ...], ord: Any) -> None:
    got = session.xp.linalg.matrix_norm(session.xp.zeros(shape), ord=ord)
    np.testing.assert_array_equal(got.get(), np.zeros(shape[:-2]))


@pytest.mark.parametrize("stack", [(), (3,), (2, 40)])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_gives_nan(session: cb.sync.Device, stack: tuple[int, ...], bad: float) -> None:
    linalg = session.xp.linalg
    a = np.broadcast_to(np.eye(3) * 2, (*stack, 3, 3)).copy()
    a[..., 1, 1] = bad
    ref, ones = session.put(a), session.put(np.ones(3))
    r = linalg.qr(ref).R.get()
    assert not np.isfinite(r).all()
    np.testing.assert_array_equal(r, np.triu(r))
    assert not np.isfinite(linalg.det(ref).get()).any()
    assert not np.isfinite(linalg.slogdet(ref).logabsdet.get()).any()
    for result in (linalg.solve(ref, ones), linalg.inv(ref)) if math.isnan(bad) else ():
        assert np.isnan(result.get()).any()
    finite = session.put(np.broadcast_to(np.eye(3), a.shape).copy())
    assert not np.isfinite(linalg.solve(finite, session.put(np.array([1.0, bad, 2.0]))).get()).all()


@pytest.mark.parametrize("axis", [3, -4])
def test_no_such_axis_is_an_index_error(session: cb.sync.Device, axis: int) -> None:
    x = session.put(np.ones((2, 3)))
    for call in (session.xp.expand_dims, session.xp.sum, session.xp.sort):
        with pytest.raises(cb.ShapeError, match="axis is") as caught:
            call(x, axis=axis)
        assert isinstance(caught.value, IndexError)
