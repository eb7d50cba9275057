from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.testing.kernels import check_kernel

Array = np.ndarray[Any, Any]


@cb.kernel("in x: T[n], inout y: T[n], a: T, out sum: T[1], n: i32", cuda="text")
def axpy(x: Array, y: Array, a: Any, sum: Array) -> None:
    y += a * x
    sum[0] = y.sum()


@cb.kernel("in x: f32[n], out y: f32[n]", cuda="text")
def half_written(x: Array, y: Array) -> None:
    y[::2] = x[::2]


calls = 0


@cb.kernel("in x: f32[n], out y: f32[n]", cuda="text")
def changing(x: Array, y: Array) -> None:
    """Its first two calls are those of the NumPy body, the others the device's."""
    global calls
    calls += 1
    y[...] = x + (calls > 2)


def test_both_bodies_agree() -> None:
    x, y = np.arange(5.0), np.ones(5)
    found = check_kernel(axpy, x, y, 2, device="cpu")
    np.testing.assert_array_equal(found["y"], 2 * x + 1)
    assert found["sum"].tolist() == [25]
    assert y.tolist() == [1] * 5  # what was passed is left as it was
    with cb.sync.device("cpu", standby=None) as device:
        assert check_kernel(axpy, x.astype("i4"), y.astype("i4"), a=3, device=device)["sum"].tolist() == [35]


def test_an_output_that_is_not_written_whole_is_found() -> None:
    with pytest.raises(AssertionError, match="half_written: the NumPy body does not write all of y; declare it inout"):
        check_kernel(half_written, np.ones(4, "f4"), device="cpu")


def test_results_that_differ_are_named() -> None:
    with pytest.raises(AssertionError, match="changing: y: 3 of 3 elements differ"):
        check_kernel(changing, np.ones(3, "f4"), device="cpu")
