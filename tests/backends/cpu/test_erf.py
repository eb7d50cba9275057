"""``erf`` of f32 by vectors: right to three units in the last place, the same bits by NumPy and by machine code."""

import numpy as np
import pytest
import scipy.special

import callboard as cb
from callboard.backends.cpu.elementwise.erf import erf
from callboard.backends.cpu.elementwise.native import compiler

X = np.concatenate(
    [np.linspace(-6, 6, 100_001), np.logspace(-45, 38, 100_001), -np.logspace(-8, 1, 10_001)], dtype="f4"
)
ODD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 0.927734375, 4.0, -4.0], "f4")


def test_it_is_right_to_three_units_in_the_last_place() -> None:
    found = np.empty_like(X)
    with np.errstate(all="ignore"):
        erf(X, found)
    expected = scipy.special.erf(X.astype("f8"))
    assert np.max(np.abs(found - expected) / np.spacing(np.abs(expected.astype("f4")))) < 3


@pytest.mark.parametrize("in_place", [False, True])
def test_special_values_keep_their_meaning(in_place: bool) -> None:
    x = ODD.copy()
    found = x if in_place else np.empty_like(x)
    with np.errstate(all="ignore"):
        erf(x, found)
    np.testing.assert_allclose(found, scipy.special.erf(ODD), rtol=3e-7)
    assert np.signbit(found[:2]).tolist() == [False, True]
    one = np.empty((), "f4")
    erf(np.float32(2), one)
    assert one == pytest.approx(scipy.special.erf(2.0), rel=3e-7)


@pytest.mark.skipif(compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("expression", ["erf(x)", "0.5 * x * (1.0 + erf(0.7071067811865476 * x))"])
def test_machine_code_gives_the_same_bits(expression: str) -> None:
    import os

    from callboard.backends.cpu.elementwise.native import compiling

    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 12, dtype=np.uint32).view("f4")
    x = np.concatenate([X[::101], ODD, bits])
    with cb.sync.device("cpu", isolation="thread") as dev:
        ref = dev.put(x)
        before = dev.elementwise.map(expression, x=ref).get()
        for _ in range(60):
            dev.elementwise.map(expression, x=ref)
        dev.elementwise.map(expression, x=ref).get()
        by = compiling(os.getpid())
        assert by is not None
        by.settle()
        after = dev.elementwise.map(expression, x=ref).get()
    nan = np.isnan(before)
    assert np.array_equal(nan, np.isnan(after))
    assert np.array_equal(before.view("u4")[~nan], after.view("u4")[~nan])
