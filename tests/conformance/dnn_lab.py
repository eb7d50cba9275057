"""Shared by the suites of deep learning: arrays of both layouts, and PyTorch as the reference in f64."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES

__all__ = ["FLOATS", "SHARED", "drawn", "in_layout", "layouts", "seeds", "torch_of", "wide"]

Array = np.ndarray[Any, Any]

FLOATS = ("f16", "bf16", "f32", "f64")
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12)  # one session for all

layouts = st.sampled_from(["NCHW", "NHWC"])
seeds = st.integers(0, 2**31)


def drawn(seed: int, shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers of moderate size, exactly as the dtype holds them."""
    found: Array = np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype].np)
    return found


def wide(array: Any) -> Array:
    """In f64."""
    return np.asarray(array).astype(np.float64)


def in_layout(array: Array, layout: str) -> Array:
    """``[n, c, ...]`` in the order of a layout."""
    return array if layout == "NCHW" else np.ascontiguousarray(np.moveaxis(array, 1, -1))


def channels_first(array: Array, layout: str) -> Array:
    """The inverse."""
    return array if layout == "NCHW" else np.moveaxis(array, -1, 1)


def torch_of() -> Any:
    """PyTorch, the reference."""
    return pytest.importorskip("torch", reason="PyTorch is the reference")
