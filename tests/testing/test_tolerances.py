from typing import Any

import numpy as np
import pytest

from callboard.core.dtype import DTYPES
from callboard.testing.tolerances import ROUNDOFF, assert_close

FLOATS = [name for name, dtype in DTYPES.items() if dtype.is_float or dtype.is_complex]
SUMMED = ["f16", "bf16", "f32", "f64", "c64", "c128"]


def product(name: str, k: int) -> tuple[Any, Any, Any]:
    """A matrix product in the accumulator's precision, rounded at the end, and the reference."""
    dtype = DTYPES[name]
    draw = np.random.default_rng(3).standard_normal
    a, b = draw((8, k)), draw((k, 8))
    if dtype.is_complex:
        a, b = a + 1j * draw((8, k)), b + 1j * draw((k, 8))
    a, b = a.astype(dtype.np), b.astype(dtype.np)
    wide = np.complex128 if dtype.is_complex else np.float64
    accumulate = dtype.np if dtype.itemsize >= 4 else np.float32
    got = (a.astype(accumulate) @ b.astype(accumulate)).astype(dtype.np)
    return got, a.astype(wide) @ b.astype(wide), np.abs(a.astype(wide)) @ np.abs(b.astype(wide))


@pytest.mark.parametrize("k", [1, 16, 4096])
@pytest.mark.parametrize("name", SUMMED)
def test_an_honest_product_passes(name: str, k: int) -> None:
    got, want, scale = product(name, k)
    assert_close(got, want, name, terms=k)
    assert_close(got, want, name, terms=k, scale=scale)


@pytest.mark.parametrize("name", SUMMED)
def test_a_wrong_element_fails_and_is_named(name: str) -> None:
    got, want, _ = product(name, 16)
    got = got.copy()
    got[2, 3] = want[2, 3] + 64 * ROUNDOFF[name].unit * np.abs(want).max()
    with pytest.raises(AssertionError, match=r"1 of 64 elements differ .*worst at \(2, 3\)"):
        assert_close(got, want, name, terms=16)


def test_a_term_left_out_fails() -> None:
    a, b = np.random.default_rng(4).standard_normal((2, 64, 64))
    with pytest.raises(AssertionError):
        assert_close((a[:, 1:] @ b[1:]).astype("f4"), a @ b, "f32", terms=64)


def test_f32_held_to_the_bound_of_tf32_is_looser() -> None:
    want = np.ones(4)
    got = (want * (1 + 2**-12)).astype("f4")
    assert_close(got, want, "tf32", terms=16)
    with pytest.raises(AssertionError):
        assert_close(got, want, "f32", terms=16)


@pytest.mark.parametrize("name", FLOATS)
def test_one_rounding_passes_and_two_units_fail(name: str) -> None:
    dtype = DTYPES[name].np
    want = np.random.default_rng(5).uniform(1, 2, 50)
    assert_close(want.astype(dtype), want, name, kind="rounded")
    off = want.astype(dtype).astype(want.dtype if DTYPES[name].is_float else dtype) + 4 * ROUNDOFF[name].unit
    with pytest.raises(AssertionError):
        assert_close(off.astype(dtype), want, name, kind="rounded")


@pytest.mark.parametrize("name", ["i8", "u64", "bool"])
def test_integers_are_exact(name: str) -> None:
    want = np.array([0, 1, 1]).astype(DTYPES[name].np)
    assert_close(want.copy(), want, name)
    with pytest.raises(AssertionError, match=r"worst at \(0,\)"):
        assert_close(~want if name == "bool" else want + 1, want, name)


@pytest.mark.parametrize(
    "got, want",
    [(np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0), (np.inf, -np.inf), (1.0, np.inf), (np.nan, np.inf), (np.inf, np.nan)],
)
def test_specials_must_stand_in_the_same_places(got: float, want: float) -> None:
    with pytest.raises(AssertionError):
        assert_close(np.float32([1, got]), np.array([1, want]), "f32")


def test_equal_specials_pass_and_do_not_widen_the_bound() -> None:
    special = np.array([np.nan, np.inf, -np.inf, 1.0])
    assert_close(special.astype("f4"), special, "f32", terms=100)
    with pytest.raises(AssertionError, match=r"worst at \(3,\)"):
        assert_close(np.float32([np.nan, np.inf, -np.inf, 1.1]), special, "f32", terms=100)


def test_what_overflows_in_the_type_is_an_infinity() -> None:
    with np.errstate(over="ignore"):
        assert_close(np.float16([np.inf]), np.array([1e6]), "f16")
    with pytest.raises(AssertionError):
        assert_close(np.float16([65504]), np.array([1e6]), "f16")


def test_shapes_must_agree() -> None:
    with pytest.raises(AssertionError, match=r"shape \(2,\), want \(1, 2\)"):
        assert_close(np.zeros(2), np.zeros((1, 2)), "f64")


def test_exact_is_exact_and_empty_passes() -> None:
    assert_close(np.zeros((0, 3), "f4"), np.zeros((0, 3)), "f32", terms=3)
    with pytest.raises(AssertionError):
        assert_close(np.float32([1e-45]), np.zeros(1), "f32", kind="exact")


def test_the_table_has_every_floating_type() -> None:
    assert set(ROUNDOFF) == {*FLOATS, "tf32", "half", "brain"}


def test_what_was_rounded_or_summed_on_the_way_widens_the_bound() -> None:
    """A bf16 result of a small sum of large products; an f32 result of fp8 products."""
    want = np.zeros(1)
    assert_close(np.float32([0.02]), want, "bf16", 4, scale=1.0, between=1.0)
    with pytest.raises(AssertionError):
        assert_close(np.float32([0.02]), want, "bf16", 4, scale=1.0)
    assert_close(np.float32([2e-4]), want, "f32", 4, scale=1.0, factors="f8_e4m3")
    with pytest.raises(AssertionError):
        assert_close(np.float32([2e-4]), want, "f32", 4, scale=1.0)
