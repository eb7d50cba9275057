"""``mismatch``: why a response cannot be one like an expected response; ``finite``: whether its numbers are."""

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["finite", "mismatch"]


def mismatch(found: Any, expected: Any, where: str = "the response") -> str | None:
    """Describe how a response differs: in structure, shape or dtype, or not finite if the expected one is.

    Values may differ. Arrays are compared by their NumPy form; sequences and mappings item by item.

    Args:
        found, expected: Numbers, texts, arrays, lists, tuples and mappings of such.
        where: Names the response in the text.

    Returns:
        A text; None if nothing is wrong.
    """
    if isinstance(expected, Mapping):
        if not isinstance(found, Mapping) or found.keys() != expected.keys():
            return f"{where} is {_kind(found)}, but a mapping of {sorted(map(repr, expected))} is expected"
        return next(filter(None, (mismatch(found[key], expected[key], f"{where}[{key!r}]") for key in expected)), None)
    if isinstance(expected, list | tuple):
        if not isinstance(found, list | tuple) or len(found) != len(expected):
            return f"{where} is {_kind(found)}, but {len(expected)} items are expected"
        pairs = enumerate(zip(found, expected, strict=True))
        return next(filter(None, (mismatch(a, b, f"{where}[{n}]") for n, (a, b) in pairs)), None)
    if not (hasattr(expected, "__array__") or isinstance(expected, int | float | complex)):
        if isinstance(found, type(expected)):
            return None
        return f"{where} is {_kind(found)}, but {_kind(expected)} is expected"
    a, b = np.asarray(found), np.asarray(expected)
    if a.shape != b.shape:
        return f"{where} has the shape {a.shape}, but {b.shape} is expected"
    if a.dtype != b.dtype:
        return f"{where} has the dtype {a.dtype}, but {b.dtype} is expected"
    if a.dtype.kind in "fc" and bool((np.isfinite(b) & ~np.isfinite(a)).any()):
        return f"{where} is NaN or infinite where a finite number is expected"
    return None


def finite(response: Any) -> bool:
    """True if no number in a response (of the kinds that :func:`mismatch` supports) is NaN or infinite."""
    if isinstance(response, Mapping):
        return all(finite(each) for each in response.values())
    if isinstance(response, list | tuple):
        return all(finite(each) for each in response)
    if not (hasattr(response, "__array__") or isinstance(response, int | float | complex)):
        return True
    array = np.asarray(response)
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())


def _kind(value: Any) -> str:
    kind = type(value).__name__
    return f"{kind} of {len(value)}" if isinstance(value, list | tuple | Mapping) else kind
