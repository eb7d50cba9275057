"""Plans of softmax and its logarithm, block by block of lines."""

from collections.abc import Callable

import numpy as np

from callboard.backends.cpu.dnn.accumulating import accumulating
from callboard.backends.cpu.dnn.arrays import Array, Plan, blocks, view_of, view_of_out, wide
from callboard.core.library import plans
from callboard.kernel.dnn.softmax import LogSoftmax, LogSoftmaxBackward, Softmax, SoftmaxBackward

__all__ = ["backward", "forward", "log_sums"]


SHORT = 16
"""Elements of a line that is computed across lines: a loop of NumPy for each line takes longer than its elements."""


def log_sums(x: Array, axis: int) -> Array:
    """``log(sum(exp(x)))`` of wide lines, which stay with an extent of 1."""
    top = x.max(axis=axis, keepdims=True)
    top = np.where(np.isneginf(top), 0, top)
    total: Array = np.exp(x - top).sum(axis=axis, keepdims=True)
    return np.log(total) + top


def _softmax(x: Array, axis: int) -> Array:
    y: Array = x - x.max(axis=axis, keepdims=True)
    np.exp(y, out=y)
    y /= y.sum(axis=axis, keepdims=True)
    return y


def _log_softmax(x: Array, axis: int) -> Array:
    away = x - x.max(axis=axis, keepdims=True)
    y: Array = away - np.log(np.exp(away).sum(axis=axis, keepdims=True))
    return y


def _softmax_gradient(dy: Array, y: Array, axis: int) -> Array:
    dx: Array = y * (dy - (dy * y).sum(axis=axis, keepdims=True))
    return dx


def _log_softmax_gradient(dy: Array, y: Array, axis: int) -> Array:
    dx: Array = dy - np.exp(y) * dy.sum(axis=axis, keepdims=True)
    return dx


def _across(compute: Callable[..., Array], axis: int, *lines: Array) -> Array:
    """The same, with the elements of each line apart and those of different lines side by side."""
    found = compute(*(np.ascontiguousarray(np.moveaxis(one, axis, 0)) for one in lines), 0)
    return np.moveaxis(found, 0, axis)


@plans(LogSoftmax, Softmax)
@accumulating
def forward(op: Softmax | LogSoftmax) -> Plan:
    """Called with ``(x, out)``."""
    shape, axis, view_x, view_out = op.x.shape, op.axis % op.x.ndim, view_of(op.x), view_of_out(op)
    compute: Callable[[Array, int], Array] = _softmax if isinstance(op, Softmax) else _log_softmax
    others = [a for a in range(len(shape)) if a != axis]

    def work(x: int, out: int) -> None:
        given, result = view_x(x), view_out(out)
        for block in blocks(shape, others) if result.size else ():
            if shape[axis] <= SHORT:
                result[block] = _across(compute, axis, wide(given[block]))
            else:
                result[block] = compute(wide(given[block]), axis)

    return work


@plans(LogSoftmaxBackward, SoftmaxBackward)
@accumulating
def backward(op: SoftmaxBackward | LogSoftmaxBackward) -> Plan:
    """Called with ``(dy, y, dx)``."""
    shape, axis = op.y.shape, op.axis % op.y.ndim
    view_dy, view_y, view_dx = view_of(op.dy), view_of(op.y), view_of_out(op, "dx")
    compute = _softmax_gradient if isinstance(op, SoftmaxBackward) else _log_softmax_gradient
    others = [a for a in range(len(shape)) if a != axis]

    def work(dy: int, y: int, dx: int) -> None:
        grad, given, result = view_dy(dy), view_y(y), view_dx(dx)
        for block in blocks(shape, others) if result.size else ():
            if shape[axis] <= SHORT:
                result[block] = _across(compute, axis, wide(grad[block]), wide(given[block]))
            else:
                result[block] = compute(wide(grad[block]), wide(given[block]), axis)

    return work
