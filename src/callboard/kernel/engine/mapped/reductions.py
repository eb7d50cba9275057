"""Reductions, arg reductions, sums along an axis."""

import math
from collections.abc import Callable
from typing import Any

from callboard.core.operand import Operand
from callboard.kernel.engine.mapped.tools import Tools, Value, is_float, name_of, operator

__all__: list[str] = []


def _axes(t: Tools, x: Value, axes: Value, noop: int) -> tuple[int, ...] | None:
    """The axes of a reduction; None: it is the identity."""
    found = axes if isinstance(axes, list) else ([] if axes is None else t.ints(axes, "axes"))
    if not found:
        return None if noop else tuple(range(x.ndim))
    return tuple(t.axis(axis, x.ndim) if x.ndim else axis for axis in found)


def _reduction(first: Callable[[Tools, Value], Value], name: str, last: Callable[[Tools, Value], Value]) -> Any:
    def call(
        t: Tools, x: Value, given: Value = None, *, axes: Value = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Value:
        along = _axes(t, x, axes if given is None else given, noop_with_empty_axes)
        x = first(t, x)
        if along is None:
            return last(t, x)
        if not along:
            return last(t, x)
        xp, more = t.xp(x), {}
        if name in ("sum", "prod"):
            more["dtype"] = x.dtype
        elif name == "mean" and not is_float(x):
            raise t.refusal("means of integers are not mapped")
        return last(t, getattr(xp, name)(x, axis=along, keepdims=bool(keepdims), **more))

    return call


def _same(t: Tools, x: Value) -> Value:
    return x


def _abs(t: Tools, x: Value) -> Value:
    return t.xp(x).abs(x)


def _square(t: Tools, x: Value) -> Value:
    return t.xp(x).multiply(x, x)


def _exp(t: Tools, x: Value) -> Value:
    return t.xp(x).exp(x)


def _log(t: Tools, x: Value) -> Value:
    return t.xp(x).log(x)


def _sqrt(t: Tools, x: Value) -> Value:
    return t.xp(x).sqrt(x)


for _name, _parts in {
    "ReduceSum": (_same, "sum", _same),
    "ReduceMean": (_same, "mean", _same),
    "ReduceMax": (_same, "max", _same),
    "ReduceMin": (_same, "min", _same),
    "ReduceProd": (_same, "prod", _same),
    "ReduceL1": (_abs, "sum", _same),
    "ReduceL2": (_square, "sum", _sqrt),
    "ReduceSumSquare": (_square, "sum", _same),
    "ReduceLogSum": (_same, "sum", _log),
}.items():
    operator(_name, since=1)(_reduction(*_parts))


@operator("ReduceLogSumExp", since=1)
def log_sum_exp(
    t: Tools, x: Value, given: Value = None, *, axes: Value = None, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Value:
    along = _axes(t, x, axes if given is None else given, noop_with_empty_axes)
    if not along:
        return x
    xp = t.xp(x)
    top = xp.max(x, axis=along, keepdims=True)
    top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))
    found = xp.add(xp.log(xp.sum(xp.exp(xp.subtract(x, top)), axis=along, keepdims=True, dtype=x.dtype)), top)
    return found if keepdims else xp.squeeze(found, axis=along)


def _arg(name: str) -> Any:
    def call(t: Tools, x: Value, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Value:
        xp = t.xp(x)
        if not select_last_index:
            return t.cast(getattr(xp, name)(x, axis=axis, keepdims=bool(keepdims)), "i64")
        last = t.cast(getattr(xp, name)(xp.flip(x, axis=axis), axis=axis, keepdims=bool(keepdims)), "i64")
        return xp.add(xp.negative(last), x.shape[axis] - 1)

    return call


operator("ArgMax", since=1)(_arg("argmax"))
operator("ArgMin", since=1)(_arg("argmin"))


@operator("CumSum", since=11)
def cumulative_sum(t: Tools, x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Value:
    xp, along = t.xp(x), t.ints(axis, "axis")[0]
    x = xp.flip(x, axis=along) if reverse else x
    found = xp.cumulative_sum(x, axis=along, dtype=x.dtype)
    if exclusive:
        found = xp.subtract(found, x)
    return xp.flip(found, axis=along) if reverse else found


def _shares(name: str) -> Any:
    def call(t: Tools, x: Value, *, axis: int | None = None) -> Value:
        x = t.ref(x)
        if t.opset >= 13:
            return getattr(t.dnn, name)(x, axis=-1 if axis is None else axis)
        first = (1 if axis is None else axis) % x.ndim  # older versions take all axes from this one on as one
        if first == x.ndim - 1:
            return getattr(t.dnn, name)(x, axis=-1)
        lines = t.xp(x).reshape(x, (*x.shape[:first], math.prod(x.shape[first:])))
        return t.xp(x).reshape(getattr(t.dnn, name)(lines, axis=-1), x.shape)

    return call


operator("Softmax", since=1)(_shares("softmax"))
operator("LogSoftmax", since=1)(_shares("log_softmax"))


@operator("TopK", since=11)
def top_k(t: Tools, x: Value, k: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    count, x = t.ints(k, "k")[0], t.ref(x)
    if not 0 <= count <= x.shape[axis]:
        raise t.misfit(f"k is {count}, and axis {axis} has the extent {x.shape[axis]}")
    xp = t.xp(x)
    order = xp.argsort(x, axis=axis, descending=bool(largest), stable=True)
    where = [slice(None)] * x.ndim
    where[t.axis(axis, x.ndim)] = slice(0, count)
    order = order[tuple(where)]
    return xp.take_along_axis(x, order, axis=axis), t.cast(order, "i64")


@operator("LpNormalization", since=1)
def lp_normalization(t: Tools, x: Value, *, axis: int = -1, p: int = 2) -> Value:
    xp = t.xp(x)
    if p not in (1, 2):
        raise t.refusal(f"the norm of p = {p} is not mapped")
    parts = xp.abs(x) if p == 1 else xp.multiply(x, x)
    norm = xp.sum(parts, axis=axis, keepdims=True, dtype=x.dtype)
    if isinstance(x, Operand) and is_float(x):
        return t.map(f"where(n == 0.0, n, x / {'n' if p == 1 else 'sqrt(n)'})", x=x, n=norm)
    norm = norm if p == 1 else xp.sqrt(norm)
    found = xp.divide(x, norm)
    return xp.where(xp.equal(norm, 0), xp.zeros_like(found), found)


@operator("MeanVarianceNormalization", since=9)
def mean_variance_normalization(t: Tools, x: Value, *, axes: list[int] | None = None) -> Value:
    xp, along = t.xp(x), tuple(axes or (0, 2, 3))
    centred = xp.subtract(x, xp.mean(x, axis=along, keepdims=True))
    deviation = xp.sqrt(xp.mean(xp.multiply(centred, centred), axis=along, keepdims=True))
    return t.cast(xp.divide(centred, xp.add(deviation, 1e-9)), name_of(x))
