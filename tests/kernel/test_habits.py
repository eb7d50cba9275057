"""NumPy idioms either work as in NumPy or raise by name before anything is enqueued."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import callboard as cb

A = np.array([[1, 2], [3, 4]], "f4")
HUGE = 10**400
"""No f64 holds it."""


@pytest.fixture(params=["thread", "process"])
def cpu(request: pytest.FixtureRequest) -> Iterator[Any]:
    with cb.sync.device("cpu", isolation=request.param, standby=None) as device:
        yield device


RIGHT: dict[str, tuple[Any, Any]] = {
    "a 0-d array is a number": (lambda d: d.blas.gemm(d.put(A), d.put(A), alpha=np.array(2.0)), 2 * A @ A),
    "of any dtype": (lambda d: d.blas.scal(d.put(A[0]), alpha=np.array(3, np.int8)), 3 * A[0]),
    "a 0-d array fills": (lambda d: d.full(2, np.array(3)), np.full(2, 3)),
    "a 0-d array is a parameter": (lambda d: d.rng.philox().normal(2, mean=np.array(5.0), std=0), np.full(2, 5.0)),
    "an array is a shape": (lambda d: d.zeros(np.array([2, 3])), np.zeros((2, 3))),
    "a 0-d array is an extent": (lambda d: d.zeros(np.array(3)), np.zeros(3)),
    "an array is a size": (lambda d: d.rng.philox().normal(np.array([1, 2]), std=0), np.zeros((1, 2))),
    "an array reshapes": (lambda d: d.put(A).reshape(np.array([4, 1])), A.reshape(4, 1)),
    "an array is -1": (lambda d: d.put(A).reshape(np.array(-1)), A.ravel()),
    "0-d arrays bound integers": (lambda d: d.rng.philox().integers(np.array(7), np.array(8), 3), np.full(3, 7)),
    "the last integer of 64 bits": (
        lambda d: d.rng.philox().integers(np.uint64(2**64 - 1), 2**64, 2, dtype="u64"),
        np.full(2, 2**64 - 1, np.uint64),
    ),
}

REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "a number that no f64 holds": (
        lambda d: d.blas.gemm(d.put(A), d.put(A), alpha=HUGE),
        OverflowError,
        "blas.gemm: alpha is beyond 1.8e308, the largest number of f64",
    ),
    "a fill that no f64 holds": (lambda d: d.full(2, -HUGE), OverflowError, "memory.fill: fill_value is beyond"),
    "a parameter that no f64 holds": (
        lambda d: d.rng.philox().gamma(HUGE, 1.0, 3),
        OverflowError,
        "rng.fill_gamma: shape is beyond",
    ),
    "an array for a number": (
        lambda d: d.blas.gemm(d.put(A), d.put(A), alpha=np.array([2.0])),
        TypeError,
        "blas.gemm: alpha is ndarray; pass a number or a 0-d GpuRef",
    ),
    "a setting beyond 64 bits": (
        lambda d: d.blas_lt.matmul(d.put(A), d.put(A), workspace_size=2**70),
        cb.ShapeError,
        f"blas_lt.matmul: workspace_size = {2**70}: an integer has at most 64 bits",
    ),
    "an extent beyond 64 bits": (
        lambda d: d.empty(2**70),
        cb.ShapeError,
        f"memory.empty: shape = ({2**70},): an integer has at most 64 bits",
    ),
    "a mode beyond 64 bits": (
        lambda d: d.tensor.contract(d.put(A), d.put(A), (2**70, 1), (1, 2), (2**70, 2)),
        cb.ShapeError,
        "tensor.contract: modes_a = ",
    ),
    "a size that is none": (lambda d: d.rng.philox().normal(2.0), cb.ShapeError, "size 2.0: pass an int or a sequence"),
    "a shape that is none": (lambda d: d.put(A).reshape(2.0, 2), cb.ShapeError, "shape (2.0, 2): pass an int or a"),
    "a host array of less than nothing": (
        lambda d: d.host_empty((2, -1)),
        cb.ShapeError,
        "host_empty: shape (2, -1): extents are >= 0",
    ),
    "a host array of objects": (
        lambda d: d.put(np.array([None])),
        TypeError,
        "put: the array's dtype dtype('O') is not supported; use one of f16",
    ),
    "a list for a generator's kind": (
        lambda d: d.rng.generator(["philox"]),
        cb.ShapeError,
        "kind ['philox'] is not a generator; use one of philox",
    ),
    "a list for a fill's kind": (
        lambda d: d.rng.fill_normal(d.zeros(4), kind=["philox"]),
        cb.ShapeError,
        "rng.fill_normal: kind ['philox'] is not a generator; use one of philox",
    ),
    "a host array to be filled with integers": (
        lambda d: d.rng.fill_integers(A),
        TypeError,
        "rng.fill_integers: out is ndarray; pass a GpuRef",
    ),
    "a list to be filled with integers": (
        lambda d: d.rng.fill_integers([1, 2]),
        TypeError,
        "rng.fill_integers: out is list; pass a GpuRef",
    ),
    "nothing for a bound": (
        lambda d: d.rng.fill_integers(d.zeros(4, "i32"), low=None),
        TypeError,
        "rng.fill_integers: low is NoneType; pass an integer",
    ),
    "points of other bits": (
        lambda d: d.rng.sobol(2, bits=16),
        cb.ShapeError,
        "bits is 16; points have 32 or 64",
    ),
    "a ref for a token": (lambda d: d.resolve(d.put(A)), TypeError, "resolve: token is GpuRef; pass a GpuToken"),
}


def test_what_is_meant_is_done(cpu: Any) -> None:
    for name, (call, want) in RIGHT.items():
        np.testing.assert_array_equal(call(cpu).get(), want, err_msg=name)


def test_what_cannot_be_done_is_refused_by_name(cpu: Any) -> None:
    said: dict[str, str] = {}
    for name, (call, kind, _) in REFUSED.items():
        with pytest.raises(kind) as caught:
            call(cpu)
        said[name] = str(caught.value)
    wanted = {name: says for name, (_, _, says) in REFUSED.items()}
    assert {name: text[: len(wanted[name])] for name, text in said.items()} == wanted


async def test_operands_whose_extents_are_not_known_are_still_told_from_numbers_that_are_too_long() -> None:
    async with cb.device("cpu", isolation="thread", standby=None) as dev:
        matrix = dev.sparse.from_dense(dev.put(A))  # answered at an await, at the earliest
        with pytest.raises(cb.ShapeError, match=r"a\.\w+ is .* and its extents depend on data: await it first"):
            dev.sparse.sp_mv(matrix, dev.put(A[0]))
        await matrix
