"""Plans of losses."""

from typing import Any

import numpy as np

from callboard.backends.cpu.dnn.arrays import Array, Plan, blocks, optional, view_of, view_of_out, wide
from callboard.backends.cpu.dnn.softmax import log_sums
from callboard.core.errors import ShapeError
from callboard.core.library import plans
from callboard.kernel.dnn.losses import CrossEntropy, CrossEntropyBackward, Mse, MseBackward, wrong_class
from callboard.kernel.dnn.operands import INDICES

__all__ = ["cross_entropy", "cross_entropy_backward", "mse", "mse_backward"]


def _classes(op: Any, target: Array, classes: int) -> tuple[Array, Array]:
    """The classes, 0 where they are ignored, and where they count.

    Raises:
        ShapeError: One is out of range.
    """
    counts = target != op.ignore_index
    wrong = counts & ((target < 0) | (target >= classes))
    if wrong.any():
        tag = type(op).__struct_config__.tag
        raise ShapeError(wrong_class(tag, int(target[wrong].flat[0]), int(wrong.sum()), target.size, classes))
    return np.where(counts, target, 0).astype(np.intp), counts


@plans(CrossEntropy)
def cross_entropy(op: CrossEntropy) -> Plan:
    """Called with ``(x, target, weight, loss, log_sum)``."""
    axis, classes = op.x.ndim - 1, op.x.shape[op.axis]
    soft, smoothing = op.target.dtype not in INDICES, op.label_smoothing
    view_x, view_target, weight_of = view_of(op.x), view_of(op.target), optional(op.weight)
    view_loss, view_log_sum = view_of_out(op, "loss"), view_of_out(op, "log_sum")

    def work(x: int, target: int, weight: int | None, loss: int, log_sum: int) -> None:
        given = np.moveaxis(view_x(x), op.axis, -1)
        kind = wide(given[:0]).dtype
        factors = weight_of(weight)
        factors = np.ones(classes, kind) if factors is None else factors.astype(kind, copy=False)
        goal = view_target(target)
        goal = np.moveaxis(goal, op.axis, -1) if soft else goal
        found = None if soft else _classes(op, goal, classes)
        losses, sums = np.zeros(given.shape[:-1], kind), np.zeros(given.shape[:-1], kind)
        for block in blocks(given.shape, range(axis)) if losses.size else ():
            part = wide(given[block])
            top = log_sums(part, -1)
            sums[block] = top[..., 0]
            logs = part - top
            if found is None:
                shares = wide(goal[block]) * kind.type(1 - smoothing) + kind.type(smoothing / classes)
                losses[block] = -_dot(shares, factors * logs)
                continue
            at, counts = found[0][block], found[1][block]
            own = -np.take_along_axis(logs, at[..., None], -1)[..., 0] * factors[at]
            if smoothing:
                own = (1 - smoothing) * own - smoothing / classes * (factors * logs).sum(axis=-1)
            losses[block] = np.where(counts, own, 0)
        view_log_sum(log_sum)[...] = sums
        if op.reduction == "none":
            view_loss(loss)[...] = losses
            return
        total = losses.sum()
        if op.reduction == "mean":
            total = total / kind.type(_divisor(found, factors, losses.size))
        view_loss(loss)[...] = total

    return work


def _dot(a: Array, b: Array) -> Array:
    """Sum along the last axis; a class with weight 0 adds nothing, even if its logarithm is -inf."""
    found: Array = np.where(a == 0, 0, a * b).sum(axis=-1)
    return found


def _divisor(found: tuple[Array, Array] | None, factors: Array, items: int) -> Any:
    """The divisor of a mean."""
    return items if found is None else np.where(found[1], factors[found[0]], 0).sum()


@plans(CrossEntropyBackward)
def cross_entropy_backward(op: CrossEntropyBackward) -> Plan:
    """Called with ``(dloss, x, target, log_sum, weight, dx)``."""
    classes, ndim = op.x.shape[op.axis], op.x.ndim
    soft, smoothing = op.target.dtype not in INDICES, op.label_smoothing
    view_dloss, view_x, view_target = view_of(op.dloss), view_of(op.x), view_of(op.target)
    view_log_sum, weight_of, view_dx = view_of(op.log_sum), optional(op.weight), view_of_out(op, "dx")

    def work(dloss: int, x: int, target: int, log_sum: int, weight: int | None, dx: int) -> None:
        given, result = np.moveaxis(view_x(x), op.axis, -1), np.moveaxis(view_dx(dx), op.axis, -1)
        kind = wide(given[:0]).dtype
        factors = weight_of(weight)
        factors = np.ones(classes, kind) if factors is None else factors.astype(kind, copy=False)
        goal = view_target(target)
        goal = np.moveaxis(goal, op.axis, -1) if soft else goal
        found = None if soft else _classes(op, goal, classes)
        items = given.shape[:-1]
        grads = np.broadcast_to(wide(view_dloss(dloss)), items)
        if op.reduction == "mean":
            grads = grads / kind.type(_divisor(found, factors, int(np.prod(items))))
        sums = view_log_sum(log_sum)
        for block in blocks(given.shape, range(ndim - 1)) if given.size else ():
            part = wide(given[block])
            softmax = np.exp(part - sums[block][..., None])
            if found is None:
                shares = (wide(goal[block]) * kind.type(1 - smoothing) + kind.type(smoothing / classes)) * factors
            else:
                at = found[0][block]
                shares = np.zeros_like(part) + kind.type(smoothing / classes) * factors
                own = np.take_along_axis(shares, at[..., None], -1)
                np.put_along_axis(shares, at[..., None], own + (1 - smoothing) * factors[at][..., None], -1)
            grad = grads[block][..., None] * (softmax * shares.sum(axis=-1, keepdims=True) - shares)
            result[block] = grad if found is None else np.where(found[1][block][..., None], grad, 0)

    return work


@plans(Mse)
def mse(op: Mse) -> Plan:
    """Called with ``(x, target, loss)``."""
    view_x, view_target, view_loss = view_of(op.x), view_of(op.target), view_of_out(op, "loss")

    def work(x: int, target: int, loss: int) -> None:
        squares = np.square(wide(view_x(x)) - wide(view_target(target)))
        if op.reduction != "none":
            squares = squares.sum()
            if op.reduction == "mean":
                squares = squares / squares.dtype.type(op.x.size)
        view_loss(loss)[...] = squares

    return work


@plans(MseBackward)
def mse_backward(op: MseBackward) -> Plan:
    """Called with ``(dloss, x, target, dx)``."""
    view_dloss, view_x, view_target, view_dx = (
        view_of(op.dloss),
        view_of(op.x),
        view_of(op.target),
        view_of_out(op, "dx"),
    )

    def work(dloss: int, x: int, target: int, dx: int) -> None:
        away = wide(view_x(x)) - wide(view_target(target))
        share = 2 / max(op.x.size, 1) if op.reduction == "mean" else 2
        view_dx(dx)[...] = away.dtype.type(share) * away * wide(view_dloss(dloss))

    return work
