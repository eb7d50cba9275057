"""Losses of classes."""

from typing import Any

import numpy as np

from callboard.kernel.engine.mapped.tools import Tools, Value, name_of, operator

__all__: list[str] = []


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood(
    t: Tools,
    x: Value,
    target: Value,
    weight: Value = None,
    *,
    ignore_index: int | None = None,
    reduction: bytes = b"mean",
) -> Value:
    x, target = t.ref(x), t.ref(target)
    xp = t.xp(x)
    counted = None if ignore_index is None else xp.not_equal(target, ignore_index)
    places = target if counted is None else xp.where(counted, target, xp.zeros_like(target))
    picked = xp.take_along_axis(x, xp.expand_dims(places, axis=1), axis=1)
    loss, shares = xp.negative(xp.squeeze(picked, axis=1)), None
    if weight is not None:
        flat = xp.take(t.ref(weight), xp.reshape(places, (places.size,)), axis=0)
        shares = xp.reshape(flat, places.shape)
    if counted is not None:
        ones = xp.ones_like(loss) if shares is None else shares
        shares = xp.where(counted, ones, xp.zeros_like(ones))
    if shares is not None:
        loss = xp.multiply(loss, shares)
    if reduction == b"none":
        return loss
    if reduction == b"sum":
        return xp.sum(loss, dtype=loss.dtype)
    if shares is None:
        return xp.mean(loss)
    return xp.divide(xp.sum(loss, dtype=loss.dtype), xp.sum(shares, dtype=loss.dtype))


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    t: Tools,
    scores: Value,
    labels: Value,
    weight: Value = None,
    *,
    ignore_index: int | None = None,
    reduction: bytes = b"mean",
) -> Any:
    logs = t.dnn.log_softmax(t.ref(scores), axis=1)
    loss = negative_log_likelihood(t, logs, labels, weight, ignore_index=ignore_index, reduction=reduction)
    return (loss, logs)[: t.outputs]


@operator("Hardmax")
def hardmax(t: Tools, x: Value, *, axis: int = -1) -> Value:
    xp = t.xp(x)
    best = t.cast(xp.argmax(x, axis=axis, keepdims=True), "i64")
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    both, (b, steps) = t.both(best, np.arange(x.shape[axis]).reshape(shape))
    return t.cast(both.equal(b, steps), name_of(x))
