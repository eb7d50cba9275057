"""Plans of the largest elements, and of their gradient."""

import numpy as np

from callboard.backends.cpu.dnn.arrays import Array, Plan, view_of, view_of_out, wide
from callboard.core.errors import ShapeError
from callboard.core.library import plans
from callboard.kernel.dnn.embedding import wrong_rows
from callboard.kernel.dnn.top_k import TopK, TopKBackward

__all__ = ["backward", "forward"]


def _order(x: Array, largest: bool) -> Array:
    """The positions along the last axis, in order; ties by position, NaN as the largest."""
    if not largest:
        ascending: Array = np.argsort(x, axis=-1, kind="stable")
        return ascending
    backward: Array = x.shape[-1] - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return backward


def _candidates(x: Array, k: int, largest: bool) -> Array | None:
    """The positions, in order, of elements among which the first ``k`` are; None if sorting all is no slower."""
    n = x.shape[-1]
    if not 0 < 8 * k < n or np.isnan(x).any():
        return None
    border = np.partition(x, n - k if largest else k - 1, axis=-1)[..., [n - k if largest else k - 1]]
    ahead, tied = (x > border) if largest else (x < border), x == border
    missing = k - ahead.sum(axis=-1, keepdims=True)
    chosen = ahead | (tied & (np.cumsum(tied, axis=-1) <= missing))
    return np.nonzero(chosen)[-1].reshape(*x.shape[:-1], k)


@plans(TopK)
def forward(op: TopK) -> Plan:
    """Called with ``(x, values, indices)``."""
    view_x, view_values, view_indices = view_of(op.x), view_of_out(op, "values"), view_of_out(op, "indices")
    k = op.k

    def work(x: int, values: int, indices: int) -> None:
        given = np.moveaxis(view_x(x), op.axis, -1)
        keys = wide(given)
        chosen = _candidates(keys, k, op.largest)
        if chosen is None:
            order = _order(keys, op.largest)[..., :k]
        else:
            order = np.take_along_axis(chosen, _order(np.take_along_axis(keys, chosen, -1), op.largest), -1)
        np.moveaxis(view_values(values), op.axis, -1)[...] = np.take_along_axis(given, order, -1)
        np.moveaxis(view_indices(indices), op.axis, -1)[...] = order

    return work


@plans(TopKBackward)
def backward(op: TopKBackward) -> Plan:
    """Called with ``(dvalues, indices, dx)``."""
    view_dvalues, view_indices, view_dx = view_of(op.dvalues), view_of(op.indices), view_of_out(op, "dx")

    def work(dvalues: int, indices: int, dx: int) -> None:
        found, result = view_indices(indices), view_dx(dx)
        wrong = found[(found < 0) | (found >= op.extent)]
        if wrong.size:
            raise ShapeError(
                wrong_rows("dnn.top_k_backward", "indices", int(wrong[0]), wrong.size, found.size, op.extent)
            )
        result[...] = 0
        np.put_along_axis(result, found, view_dvalues(dvalues), op.axis)

    return work
