"""Arrays for the tests of the BLAS mapping, on the host and on the stand-in device."""

from typing import Any

import numpy as np

from callboard.core.dtype import DTYPES
from callboard.testing.session import LibrarySession, SessionArray

FLOATS = ("f32", "f64", "c64", "c128")
HALVES = ("f16", "bf16")
TOLERANCE = {"f16": 4e-3, "bf16": 4e-2, "f32": 2e-5, "c64": 2e-5, "f64": 1e-12, "c128": 1e-12, "i8": 0, "i32": 0}
BOTH = (False, True)


class Host:
    """A host array and its twin on the device."""

    def __init__(self, session: LibrarySession, seed: int) -> None:
        self.session = session
        self.rng = np.random.default_rng(seed)

    def values(self, shape: tuple[int, ...], dtype: str) -> "np.ndarray[Any, Any]":
        if dtype in ("i8", "i32"):
            return self.rng.integers(-7, 8, shape).astype(DTYPES[dtype].np)
        x = self.rng.uniform(-1, 1, shape)
        if DTYPES[dtype].is_complex:
            x = x + 1j * self.rng.uniform(-1, 1, shape)
        return x.astype(DTYPES[dtype].np)

    def matrix(self, rows: int, cols: int, dtype: str, layout: str = "row") -> SessionArray:
        """A matrix of random values that lies as ``layout`` says; ``wide`` ones are parts of larger arrays."""
        extra = 3 if layout.startswith("wide") else 0
        if layout.endswith("row"):
            return self.session.put(self.values((rows + extra, cols + extra), dtype))[extra:, extra:]
        return self.session.put(self.values((cols + extra, rows + extra), dtype))[extra:, extra:].T

    def vector(self, n: int, dtype: str, inc: int = 1) -> SessionArray:
        whole = self.session.put(self.values((n * abs(inc),), dtype))
        return whole[::inc]

    def scalar(self, value: Any, dtype: str) -> SessionArray:
        return self.session.put(np.asarray(value), dtype)

    def get(self, x: SessionArray) -> "np.ndarray[Any, Any]":
        """In double precision."""
        x = self.session.get(x)
        return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def close(got: Any, want: Any, dtype: str, size: int = 1) -> None:
    scale = TOLERANCE[dtype] * max(1.0, np.sqrt(size))
    np.testing.assert_allclose(got, want, rtol=scale, atol=scale)


def numbers(dtype: str) -> tuple[Any, Any]:
    if DTYPES[dtype].is_complex:
        return 0.5 - 1.5j, -0.25 + 2j
    return (3, -2) if dtype in ("i8", "i32") else (0.5, -1.5)
