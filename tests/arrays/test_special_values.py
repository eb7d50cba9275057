"""Special values and promotion, of every function of elements: infinities, NaN and signed zeros against NumPy, whose
floating functions are those of C99 as the standard's are; dtypes of every pair against ``array_api_strict``."""

import importlib.util
import itertools
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.arrays.elementwise import BINARY, UNARY

Array = np.ndarray[Any, Any]

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
DTYPES = ["bool", *INTEGERS, "float32", "float64", "complex64", "complex128"]
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 2.5, 3.0, -3.0, np.inf, -np.inf, np.nan])
COMPLEX = np.array([complex(a, b) for a, b in itertools.product((0.0, -0.0, 1.5, np.inf, -np.inf, np.nan), repeat=2)])
WHOLE = ("bitwise", "logical")
OF_COMPLEX = ("abs", "conj", "imag", "isfinite", "isinf", "isnan", "negative", "positive", "real")


def same(got: Any, want: Any, rtol: float) -> None:
    """The values and the signs of zeros, NaN for NaN."""
    want, values = np.asarray(want), got.get()
    assert (values.dtype, values.shape) == (want.dtype, want.shape)
    if want.dtype.kind not in "fc":
        np.testing.assert_array_equal(values, want)
        return
    np.testing.assert_allclose(values, want, rtol=rtol)
    for part in ("real", "imag") if want.dtype.kind == "c" else ("real",):
        one, other = getattr(values, part), getattr(want, part)
        zero = other == 0
        np.testing.assert_array_equal(np.signbit(one[zero]), np.signbit(other[zero]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [name for name in UNARY if not name.startswith(WHOLE)])
def test_special_values(session: cb.sync.Device, name: str, dtype: str) -> None:
    x = SPECIAL.astype(dtype)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x)
    same(getattr(session.xp, name)(session.array(x)), want, 1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [name for name in BINARY if not name.startswith(WHOLE)])
def test_special_values_of_two(session: cb.sync.Device, name: str, dtype: str) -> None:
    a, b = (one.ravel().astype(dtype) for one in np.meshgrid(SPECIAL, SPECIAL))
    if name == "floor_divide":  # the standard has infinities where NumPy has NaN: test_conformance_findings.py
        kept = np.isfinite(a) & np.isfinite(b)
        a, b = a[kept], b[kept]
    with np.errstate(all="ignore"):
        want = getattr(np, name)(a, b)
    got = getattr(session.xp, name)(session.array(a), session.array(b))
    same(got, want, 1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", OF_COMPLEX)
def test_special_values_of_complex_numbers(session: cb.sync.Device, name: str, dtype: str) -> None:
    x = COMPLEX.astype(dtype)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x)
    same(getattr(session.xp, name)(session.array(x)), want, 1e-5 if dtype == "complex64" else 1e-13)


@pytest.mark.skipif(importlib.util.find_spec("array_api_strict") is None, reason="array-api-strict is not installed")
@pytest.mark.parametrize("name", [*BINARY, "result_type"])
def test_promotion_of_every_pair(session: cb.sync.Device, name: str) -> None:
    import array_api_strict as strict

    ours = {dtype: session.array(np.ones(2, dtype)) for dtype in DTYPES}
    theirs = {dtype: strict.ones(2, dtype=getattr(strict, dtype)) for dtype in DTYPES}
    compared = 0
    for pair in itertools.product(DTYPES, DTYPES):
        try:
            want = getattr(strict, name)(*(theirs[dtype] for dtype in pair))
        except TypeError:
            continue  # the standard leaves it open
        got = getattr(session.xp, name)(*(ours[dtype] for dtype in pair))
        if name == "result_type":
            assert np.dtype(got.np) == np.dtype(str(want).rpartition(".")[2]), pair
        else:
            assert got.dtype.np == np.asarray(want).dtype, pair
        compared += 1
    assert compared


@pytest.mark.skipif(importlib.util.find_spec("array_api_strict") is None, reason="array-api-strict is not installed")
@pytest.mark.parametrize("number", [True, 2, 2.5, 1 + 2j])
def test_promotion_beside_numbers(session: cb.sync.Device, number: Any) -> None:
    import array_api_strict as strict

    for dtype in DTYPES:
        theirs = strict.ones(2, dtype=getattr(strict, dtype))
        try:
            want = np.asarray(theirs * number if dtype != "bool" else theirs & number)
        except TypeError:
            continue
        x = session.array(np.ones(2, dtype))
        got = x * number if dtype != "bool" else x & number
        assert got.dtype.np == want.dtype, dtype
        np.testing.assert_array_equal(got.get(), want)
