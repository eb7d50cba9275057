"""Arrays with channels and spatial axes, read and written as ``[n, c, *spatial]`` whatever their layout."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.views import viewer
from callboard.core.dtype import DType
from callboard.core.layout import Layout
from callboard.kernel.dnn.checks import DataLayout

__all__ = ["Array", "compute_type", "viewer_of_image"]

Array = np.ndarray[Any, Any]


def viewer_of_image(array: Layout, layout: DataLayout) -> Callable[[int], Array]:
    """A function that returns the array at an address, with the channels after the batch."""
    view = viewer(array)
    return view if layout == "NCHW" else lambda address: np.moveaxis(view(address), -1, 1)


def compute_type(dtype: DType) -> Any:
    """The compute dtype: f64 for f64, else f32."""
    return np.float64 if dtype.name == "f64" else np.float32
