"""Gradients as workers push them: checked against the weights, and their means."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from callboard.core.errors import ShapeError
from callboard.train.errors import NotFinite
from callboard.train.parameterserver.compression import Compressed

__all__ = ["Gradients", "SparseRows", "as_array", "bytes_of", "checked", "checked_rows", "mean"]

Array = np.ndarray[Any, Any]


class SparseRows(msgspec.Struct, frozen=True):
    """A gradient that is 0 outside some rows: of an embedding, for example.

    The update is that of the whole gradient, with zeros. A row that is named twice gets the sum.

    Attributes:
        rows: Numbers of the rows, integers.
        values: One row of the weight's shape for each.
    """

    rows: Any
    values: Any


Gradients = Mapping[str, Array | SparseRows]


def as_array(value: Any) -> Array:
    """An array, a tensor of torch or a list as an array of the host."""
    return np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)


def checked(gradients: Any, weights: Mapping[str, Array]) -> dict[str, Array | SparseRows]:
    """Copies of what a worker pushes.

    Raises:
        TypeError, ShapeError, NotFinite: It does not fit; the text names the gradient.
    """
    if not isinstance(gradients, Mapping) or not gradients:
        raise TypeError(f"gradients is {gradients!r:.60}; pass a dict of gradients by the names of their weights")
    for name in gradients:
        if name not in weights:
            known = ", ".join(map(repr, list(weights)[:8]))
            raise ShapeError(f"gradients[{name!r}]: there is no such weight; the weights are {known}")
    return {name: _checked(f"gradients[{name!r}]", value, weights[name]) for name, value in gradients.items()}


def _checked(where: str, value: Any, weight: Array) -> Array | SparseRows:
    if isinstance(value, Compressed):
        array = value.decoded()
    elif isinstance(value, SparseRows):
        rows = checked_rows(f"{where}.rows", value.rows, weight)
        where = f"{where}.values"
        return SparseRows(rows, _fitting(where, as_array(value.values), (len(rows), *weight.shape[1:]), weight.dtype))
    else:
        array = as_array(value)
    return _fitting(where, array, weight.shape, weight.dtype)


def checked_rows(where: str, rows: Any, weight: Array) -> Array:
    """Numbers of rows of a weight, as i64.

    Raises:
        ShapeError: They are no integers, or outside; the text names them by ``where``.
    """
    array = as_array(rows)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise ShapeError(f"{where}: {array.dtype}{list(array.shape)} does not fit; pass a list of integers")
    if not weight.ndim:
        raise ShapeError(f"{where}: the weight is a single number and has no rows")
    outside = (array < 0) | (array >= len(weight))
    if outside.any():
        raise ShapeError(f"{where}: row {array[outside][0]} is outside; the weight has {len(weight)} rows")
    return array.astype(np.int64)


def _fitting(where: str, array: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    if array.shape != shape:
        raise ShapeError(f"{where}: shape {list(array.shape)} does not fit; the weight needs {list(shape)}")
    if array.dtype != dtype:
        raise ShapeError(f"{where}: dtype {array.dtype} does not fit; the weight is {dtype}, convert the gradient")
    own = np.array(array, order="C")
    flat = own.reshape(-1)
    with np.errstate(all="ignore"):
        finite = math.isfinite(float(np.dot(flat, flat))) or bool(np.isfinite(own).all())  # the sum may overflow
    if not finite:
        bad = int(np.flatnonzero(~np.isfinite(flat))[0])
        raise NotFinite(f"{where}: item {bad} is {flat[bad]}; look for NaN in the batch, or clip the gradient")
    return own


def mean(several: Sequence[Gradients]) -> dict[str, Array | SparseRows]:
    """The mean of several workers' gradients; one that lacks a weight counts as 0 there."""
    if len(several) == 1:
        return dict(several[0])
    names = {name: None for gradients in several for name in gradients}
    return {name: _mean([one[name] for one in several if name in one], len(several)) for name in names}


def _mean(several: list[Array | SparseRows], count: int) -> Array | SparseRows:
    dense = [one for one in several if not isinstance(one, SparseRows)]
    sparse = [one for one in several if isinstance(one, SparseRows)]
    if not dense:
        rows, values = (
            np.concatenate(parts) for parts in zip(*((one.rows, one.values) for one in sparse), strict=True)
        )
        return SparseRows(rows, values / values.dtype.type(count))
    total = dense[0].copy()
    for one in dense[1:]:
        total += one
    for part in sparse:
        np.add.at(total, part.rows, part.values)
    total /= count
    return total


def bytes_of(gradients: Gradients) -> int:
    """Bytes of the arrays."""
    return sum(
        one.rows.nbytes + one.values.nbytes if isinstance(one, SparseRows) else one.nbytes for one in gradients.values()
    )
