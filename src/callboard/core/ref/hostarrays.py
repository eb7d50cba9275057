"""``host_array``: the one entrance for values of the host that become a device array, or an error with the cure."""

import numbers
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from callboard.core.dtype import DTYPES, DType, as_dtype
from callboard.core.errors import AccelError, ShapeError
from callboard.core.reply import Reply

__all__ = ["host_array", "is_masked", "refuse_masked", "told"]

Array = np.ndarray[Any, Any]
T = TypeVar("T")

_TORCH = {"bfloat16": "bf16", "float8_e4m3fn": "f8_e4m3", "float8_e5m2": "f8_e5m2"}
"""Dtypes of torch for which its tensors give no NumPy array."""
_NUMBERS = frozenset({bool, int, float, complex})


def host_array(value: Any, dtype: DType | None, what: str = "put") -> Array:
    """Convert a value of the host to an array; a copy only if the dtype or the kind of object needs one.

    Nothing that the value says is left out: masks, missing values and the entries of sparse matrices are refused.

    Args:
        value: Anything that ``numpy.asarray`` takes.
        dtype: Converted to it; None keeps the value's own.
        what: The function that was called, for errors.

    Raises:
        TypeError: It is not an array, or of a dtype that no device holds; names the type and what to do.
        ShapeError: It is nested lists of different lengths, or has texts that are not numbers.
    """
    wanted = None if dtype is None else dtype.np
    if type(value) is np.ndarray:
        array = value
    else:
        value = _known(value, what)
        array = _read(value, None, what)
    if wanted is not None:
        if array.dtype.kind == "O":
            _check_numbers(array, value, what)
        elif array.dtype.kind in ("USMmV" if isinstance(value, np.ndarray) else "Mm"):
            as_dtype(array.dtype, f"{what}: the array's dtype")
    if wanted is not None and array.dtype != wanted:
        array = array.astype(wanted) if isinstance(value, np.ndarray) else _read(value, wanted, what)
    if array.dtype.kind in "OUSMm" and not isinstance(value, np.ndarray):
        missing = ", without missing values" if array.dtype.kind == "O" else ""
        raise TypeError(
            f"{what}: the value is of type {type(value).__name__}; pass an array, or lists of numbers{missing}"
        )
    as_dtype(array.dtype, f"{what}: the array's dtype")
    return array


def is_masked(value: Any) -> bool:
    """True for an array of NumPy with masked elements."""
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.getmaskarray(value).any())


def refuse_masked(value: Any, what: str, cure: str = "") -> None:
    """Refuse a masked array, also within lists: no array of a device has a mask, so it would be left out.

    Args:
        value: Any value.
        what: The function that was called, or the value's name, for the error.
        cure: What to pass; by default that of a function of an array.

    Raises:
        TypeError: An element is masked.
    """
    if isinstance(value, np.ma.MaskedArray):
        if is_masked(value):
            cure = cure or f"{what}(array.filled(value))"
            raise TypeError(f"{what}: the array has masked elements; fill them first: {cure}")
    elif isinstance(value, list | tuple) and not _NUMBERS.issuperset(map(type, value)):
        for item in value:
            refuse_masked(item, what, cure)


def told(what: str, array: Any, name: str, ask: Callable[[], T]) -> T:
    """The answer of a method of an array that belongs to the caller.

    Args:
        what: The function that asks, for errors.
        array: The array.
        name: The method, for errors.
        ask: Calls it.

    Raises:
        TypeError: The method has raised an exception.
        AccelError: Raised by a ref that the method has used.
    """
    try:
        return ask()
    except AccelError:
        raise
    except Exception as e:  # of the caller's object, whatever it is
        kind = type(array)
        raise TypeError(
            f"{what}: the array ({kind.__module__}.{kind.__qualname__}) cannot be read, its {name} raised {_text(e)}"
        ) from e


def _text(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # of its __str__, which is the caller's, too
        return type(error).__name__


def _known(value: Any, what: str) -> Any:
    """Objects that NumPy would misread, in a form that it reads."""
    refuse_masked(value, what)
    if isinstance(value, Reply):
        raise TypeError(
            f"{what}: the value is a {type(value).__name__}, which is pending; await it first, and pass the result"
        )
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor(value, torch, what)
    sparse = sys.modules.get("scipy.sparse")
    if sparse is not None and sparse.issparse(value):
        raise TypeError(
            f"{what}: the value is a {type(value).__name__} of SciPy; use dev.sparse.from_scipy(matrix), or pass "
            "matrix.toarray() for a dense array"
        )
    pandas = sys.modules.get("pandas")
    if pandas is not None and hasattr(value, "isna") and _lacks_values(value, pandas):
        raise TypeError(
            f"{what}: the value is a {type(value).__name__} of pandas with missing values; fill them first: "
            "value.fillna(number)"
        )
    if isinstance(value, dict):
        raise TypeError(
            f"{what}: the value is a dict; put each array: {{name: dev.put(x) for name, x in value.items()}}"
        )
    if value is None:
        raise TypeError(f"{what}: the value is None; pass an array, or make one on the device: dev.empty, dev.zeros")
    return value


def _lacks_values(value: Any, pandas: Any) -> bool:
    """True if a value of pandas has missing ones, of which NumPy makes NaN. NaN itself is a number."""
    dtypes = list(value.dtypes) if isinstance(value, pandas.DataFrame) else [getattr(value, "dtype", None)]
    nullable = any(getattr(dtype, "na_value", None) is pandas.NA for dtype in dtypes)
    return nullable and bool(np.asarray(value.isna()).any())


def _tensor(value: Any, torch: Any, what: str) -> Any:
    try:
        tensor = value.detach().resolve_conj().resolve_neg()
        name = _TORCH.get(str(tensor.dtype).removeprefix("torch."))
        if name is None:
            return tensor.numpy()
        held = DTYPES[name]
        bits = torch.int16 if held.itemsize == 2 else torch.uint8
        return tensor.view(bits).numpy().view(held.np)
    except Exception as e:  # it is sparse, quantized, without memory, on another device …
        raise TypeError(
            f"{what}: the tensor ({value.dtype}, {value.layout}, {value.device}) is not readable: {e}"
        ) from e


def _read(value: Any, dtype: "np.dtype[Any] | None", what: str) -> Array:
    """``numpy.asarray``; what the value's own methods raise is the caller's error."""
    try:
        return np.asarray(value, dtype)
    except AccelError:
        raise
    except ValueError as e:
        if isinstance(value, list | tuple | str | bytes):
            raise ShapeError(
                f"{what}: the value ({type(value).__name__}) is not a regular array; pass lists of equal lengths: {e}"
            ) from None
        raise _unreadable(value, what, e) from e
    except Exception as e:  # likewise
        raise _unreadable(value, what, e) from e


def _unreadable(value: Any, what: str, error: Exception) -> TypeError:
    kind = type(value)
    return TypeError(
        f"{what}: the value ({kind.__module__}.{kind.__qualname__}) gives no array: {type(error).__name__}: {error}"
    )


def _check_numbers(array: Array, value: Any, what: str) -> None:
    """Objects become numbers only if they are numbers: NumPy makes ``None`` and what is missing a NaN."""
    flat: Iterable[Any] = array.flat
    for item in flat:
        if not isinstance(item, numbers.Number | np.bool_):
            raise TypeError(
                f"{what}: the value ({type(value).__name__}) holds {item!r:.80}, which is not a number; fill or "
                "convert it first"
            )
