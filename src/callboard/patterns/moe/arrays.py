"""Arrays of other libraries as NumPy arrays, without a copy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.actors.errors import printable
from callboard.core.ref.hostarrays import refuse_masked

__all__ = ["Array", "Indices", "array_of", "floats_of"]

Array = NDArray[Any]
Indices = NDArray[np.int64]


def array_of(value: Any, what: str) -> Array:
    """The value as a NumPy array: on the same memory for an array, a CPU tensor or another object with DLPack.

    Raises:
        TypeError: It is none of these, or cannot be shared: it is on a device, or has a gradient or an unsupported
            dtype.
    """
    refuse_masked(value, what)
    if isinstance(value, np.ndarray):
        return value
    try:
        found = np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)
    except Exception as e:  # each library refuses in a class of its own
        raise TypeError(f"{what}: {type(value).__name__} does not convert to a NumPy array: {printable(e)}") from e
    if found.dtype == object:
        raise TypeError(f"{what} must be an array of numbers, but is {value!r}")
    return found


def floats_of(value: Any, what: str) -> Array:
    """The same, of f64 if it is f64 and of f32 otherwise; that copies unless it is one of them."""
    found = array_of(value, what)
    if found.dtype.kind not in "biuf":
        raise TypeError(f"{what} must be real numbers, but is of dtype {found.dtype}")
    return found if found.dtype in (np.float32, np.float64) else found.astype(np.float32)
