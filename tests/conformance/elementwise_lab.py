"""Shared by the elementwise suites: numbers of every dtype, and expressions as NumPy computes them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.special
from blas_lab import Array
from tensor_lab import place_tensor

from callboard.core.dtype import DTYPES, DType
from callboard.kernel.elementwise.functions import FUNCTIONS
from callboard.kernel.elementwise.promotion import ELEMENTS

__all__ = ["NAMES", "WIDE", "broadcastable", "by_numpy", "special_values", "whole_values"]

NAMES = tuple(d.name for d in ELEMENTS)
WIDE = {"bf16": np.float32}
"""In which type NumPy computes what it has not itself."""


def whole_values(dtype: DType, shape: tuple[int, ...], seed: int, most: int = 5) -> Array:
    """Small whole numbers, so that every dtype holds what is computed of a few of them."""
    generator = np.random.default_rng(seed)
    if dtype.kind == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    low = 0 if dtype.kind == "uint" else -most
    values: Array = generator.integers(low, most + 1, shape)
    if dtype.is_complex:
        values = values + 1j * generator.integers(low, most + 1, shape)
    return values.astype(dtype.np)


def special_values(dtype: DType, seed: int, size: int = 96) -> Array:
    """Numbers of all sizes, with those among them that functions treat apart."""
    generator = np.random.default_rng(seed)
    if dtype.kind == "bool":
        return generator.integers(0, 2, size).astype(bool)
    if dtype.is_integer:
        info = np.iinfo(dtype.np)
        values = generator.integers(info.min, info.max, size, dtype=dtype.np, endpoint=True)
        values[::2] = generator.integers(-9 if dtype.kind == "int" else 0, 9, values[::2].size).astype(dtype.np)
        values[:2] = info.min, info.max
        return generator.permutation(values)
    real = generator.standard_normal(size) * 3
    real[:8] = 0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5
    real = generator.permutation(real)
    if dtype.is_complex:  # what C99 says of infinities and NaN is not asked of a backend
        real = np.where(np.isfinite(real), real, 2.5)
        return (real + 1j * generator.standard_normal(size)).astype(dtype.np)
    return real.astype(dtype.np)


def by_numpy(name: str, arguments: list[Array], result: DType) -> Array:
    """A function of :data:`FUNCTIONS` as NumPy and SciPy compute it, in higher precision where they have one."""
    wide = [_widened(x, result) for x in arguments]
    with np.errstate(all="ignore"):
        if name == "where":
            return np.where(wide[0].astype(bool), *wide[1:])
        if name == "complex":
            return wide[0] + 1j * np.where(np.isfinite(wide[1]), wide[1], 0)
        if name == "round" and result.is_integer:
            return wide[0]
        if name == "rsqrt":
            return 1 / np.sqrt(wide[0])
        if name == "reciprocal":
            return 1 / wide[0]
        if name == "floor_divide" and result.is_float:  # where one is infinite, NumPy has NaN, or -1
            found = np.floor(wide[0] / wide[1])
            return np.where(np.isinf(wide[0]) | np.isinf(wide[1]), found, np.floor_divide(*wide))
        path = FUNCTIONS[name].numpy
        function: Any = getattr(scipy.special, path[8:]) if path.startswith("special.") else getattr(np, path)
        found: Array = function(*wide)
        return found


def _widened(x: Array, result: DType) -> Array:
    if x.dtype.kind == "c":
        return x.astype(np.complex128)
    return x.astype(np.float64) if x.dtype.kind not in "biu" or result.kind in ("float", "complex") else x


def evaluated(text: str, given: Mapping[str, Any]) -> Any:
    """An expression in Python's own syntax, by NumPy on arrays."""
    names = {name: getattr(np, f.numpy) for name, f in FUNCTIONS.items() if hasattr(np, f.numpy)}
    casts = {d.name: (lambda x, d=d: np.asarray(x).astype(d.np)) for d in ELEMENTS if d is not DTYPES["bf16"]}
    with np.errstate(all="ignore"):
        return eval(text, {**names, **casts, **given})


def broadcastable(shape: tuple[int, ...], ones: list[bool], dropped: int) -> tuple[int, ...]:
    """A shape that broadcasts to another one."""
    return tuple(1 if one else n for n, one in zip(shape, ones, strict=True))[dropped:]


place = place_tensor
