"""Element-wise reduction over ranks, in rank order, so that all runs give the same bits."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.lowprec import encode_f8
from callboard.core.dtype import DType
from callboard.kernel.collective.part import ReduceOp

__all__ = ["reducer", "scaled"]

Array = np.ndarray[Any, Any]

_UFUNCS: dict[str, Any] = {
    "sum": np.add,
    "avg": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def reducer(op: ReduceOp, dtype: DType, size: int) -> Callable[[Sequence[Array], Array], None]:
    """A function that reduces the arrays of all ranks into one, which may be one of them.

    f16, bf16, f8_e4m3 and f8_e5m2 are added up in f32 and rounded once, f8 to the largest finite value where it is
    exceeded. Integers wrap around; their average is rounded towards 0. A NaN stays one.
    """
    ufunc = _UFUNCS[op]
    narrow = dtype.is_float and dtype.itemsize <= 2
    kind: Any = np.float32 if narrow else dtype.np

    def reduce(arrays: Sequence[Array], out: Array) -> None:
        first, *rest = arrays
        if rest and not narrow:
            total = first
            for array in rest[:-1]:
                total = ufunc(total, array)
            ufunc(total, rest[-1], out=out)  # two ranks need no array between, which takes longer than the sum
            if op == "avg":
                _divide(out, size, dtype)
            return
        total = first.astype(kind)
        for array in rest:
            ufunc(total, array.astype(kind) if narrow else array, out=total)
        if op == "avg":
            _divide(total, size, dtype)
        _store(total, dtype, out)

    return reduce


def scaled(array: Array, factor: Any, dtype: DType) -> Array:
    """The array times a number, each product rounded to its dtype."""
    if dtype.is_integer:
        product: Array = np.multiply(array, np.asarray(factor).astype(dtype.np))
        return product
    wide: Any = np.float32 if dtype.itemsize <= 2 else dtype.np
    product = array.astype(wide) * np.asarray(factor).astype(dtype.np).astype(wide)
    out = np.empty(array.shape, dtype.np)
    _store(product, dtype, out)
    return out


def _divide(total: Array, size: int, dtype: DType) -> None:
    if not dtype.is_integer:
        np.divide(total, size, out=total)
        return
    floor = total // total.dtype.type(size)
    floor += (total < 0) & (floor * total.dtype.type(size) != total)
    total[...] = floor


def _store(total: Array, dtype: DType, out: Array) -> None:
    out[...] = encode_f8(total, dtype) if dtype.itemsize == 1 and dtype.is_float else total
