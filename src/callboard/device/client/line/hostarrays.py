"""``host_array``: the argument of ``put`` as a NumPy array, or an error with the cure."""

import sys
from typing import Any

import numpy as np

from callboard.core.dtype import DTYPES, DType, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.reply import Reply

__all__ = ["host_array"]

_TORCH = {"bfloat16": "bf16", "float8_e4m3fn": "f8_e4m3", "float8_e5m2": "f8_e5m2"}
"""Dtypes of torch for which its tensors give no NumPy array."""


def host_array(value: Any, dtype: DType | None) -> "np.ndarray[Any, Any]":
    """Convert the argument of ``put`` to an array; a copy only if the dtype or the kind of object needs one.

    Raises:
        TypeError: It is not an array, or of a dtype that no device holds; names the type and what to do.
        ShapeError: It is nested lists of different lengths, or has texts that are not numbers.
    """
    wanted = None if dtype is None else dtype.np
    if type(value) is np.ndarray:
        array = value if wanted is None else value.astype(wanted, copy=False)
    else:
        known = _known(value)
        try:
            array = np.asarray(known, wanted)
        except ValueError as e:
            raise ShapeError(
                f"put: the value ({type(value).__name__}) is not a regular array; pass lists of equal lengths: {e}"
            ) from None
    if array.dtype.kind in "OUSMm" and not isinstance(value, np.ndarray):
        raise TypeError(f"put: the value is of type {type(value).__name__}; pass an array, or lists of numbers")
    as_dtype(array.dtype, "put: the array's dtype")
    return array


def _known(value: Any) -> Any:
    """Objects that NumPy would misread, in a form that it reads."""
    if isinstance(value, np.ma.MaskedArray) and value.mask.any():
        raise TypeError("put: the array has masked elements; fill them first: put(array.filled(value))")
    if isinstance(value, Reply):
        raise TypeError(f"put: the value is a {type(value).__name__}, which is pending; put the result: await it first")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        tensor: Any = value
        tensor = tensor.detach().resolve_conj().resolve_neg()
        name = _TORCH.get(str(tensor.dtype).removeprefix("torch."))
        if name is not None:
            held = DTYPES[name]
            bits = torch.int16 if held.itemsize == 2 else torch.uint8
            return tensor.view(bits).numpy().view(held.np)
        return tensor
    sparse = sys.modules.get("scipy.sparse")
    if sparse is not None and sparse.issparse(value):
        raise TypeError(
            f"put: the value is a {type(value).__name__} of SciPy; use dev.sparse.from_scipy(matrix), or "
            "put(matrix.toarray()) for a dense array"
        )
    if isinstance(value, dict):
        raise TypeError("put: the value is a dict; put each array: {name: dev.put(x) for name, x in value.items()}")
    if value is None:
        raise TypeError("put: the value is None; pass an array, or make one on the device: dev.empty, dev.zeros")
    return value
