"""Shared by the checks of :mod:`smoke_gpu`: their list, values, tolerances, timing."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.core.dtype import DTYPES
from callboard.testing.session import LibrarySession, SessionArray

CHECKS: list[tuple[str, Callable[..., Any]]] = []
RNG = np.random.default_rng(7)
TOLERANCE = {"f16": 4e-3, "bf16": 4e-2, "f32": 3e-5, "c64": 3e-5, "f64": 1e-12, "c128": 1e-12, "i8": 0, "i32": 0}


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    CHECKS.append((function.__name__.replace("_", " "), function))
    return function


def each(values: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """One check per value, passed after the session."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__.replace("_", " ")
        CHECKS.extend((f"{name} [{value}]", lambda s, v=value: function(s, v)) for value in values)
        return function

    return add


def values(shape: Any, dtype: str) -> "np.ndarray[Any, Any]":
    if DTYPES[dtype].kind in ("int", "uint", "bool"):
        return RNG.integers(0 if DTYPES[dtype].kind != "int" else -7, 8, shape).astype(DTYPES[dtype].np)
    x = RNG.uniform(-1, 1, shape)
    if DTYPES[dtype].is_complex:
        x = x + 1j * RNG.uniform(-1, 1, shape)
    return x.astype(DTYPES[dtype].np)


def spaced(s: LibrarySession, x: "np.ndarray[Any, Any]", inc: int) -> SessionArray:
    """A view of these values on the device whose elements lie ``inc`` apart."""
    room = np.empty(len(x) * abs(inc), x.dtype)
    room[::inc] = x
    return s.put(room)[::inc]


def wide(x: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def close(got: Any, want: Any, dtype: str, size: int = 1) -> None:
    scale = TOLERANCE[dtype] * max(1.0, np.sqrt(size))
    np.testing.assert_allclose(wide(np.asarray(got)), want, rtol=scale, atol=scale)


def same_bytes(got: "np.ndarray[Any, Any]", want: "np.ndarray[Any, Any]") -> None:
    np.testing.assert_array_equal(np.ascontiguousarray(got).view(np.uint8), np.ascontiguousarray(want).view(np.uint8))


def per_call(function: Callable[[], Any], after: Callable[[], Any], n: int = 2000) -> str:
    """Median and 99th percentile, in µs, of a call; ``after`` runs every 64 calls, untimed."""
    took = []
    for i in range(n):
        start = time.perf_counter()
        function()
        took.append(time.perf_counter() - start)
        if i % 64 == 63:
            after()
    took.sort()
    return f"{took[n // 2] * 1e6:.2f} us (p99 {took[n * 99 // 100] * 1e6:.2f})"
