"""Quantised values: to integers and back, and products of integers."""

from typing import Any

import numpy as np

from callboard.core.dtype import DTYPES
from callboard.kernel.engine.mapped import arithmetic, networks
from callboard.kernel.engine.mapped.tools import Tools, Value, is_float, name_of, operator

__all__: list[str] = []


def _along(t: Tools, numbers: Value, x: Value, axis: int, block: int) -> Value:
    """Scales or zero points in a shape that broadcasts to ``x``: one, one for each place of an axis, or for blocks."""
    xp = t.xp(numbers)
    if block:
        axis = axis % x.ndim
        if block < 0:
            raise t.refusal(f"block_size is {block}")
        t.sized((*numbers.shape[:axis], numbers.shape[axis] * block, *numbers.shape[axis + 1 :]), numbers)
        wide = xp.repeat(numbers, block, axis=axis)
        return wide[(slice(None),) * axis + (slice(0, x.shape[axis]),)]
    count = 1
    for n in numbers.shape:
        count *= n
    if count == 1:
        return xp.reshape(numbers, ())
    if numbers.ndim != 1:
        raise t.refusal(f"scales of the shape {tuple(numbers.shape)} are not mapped")
    return xp.reshape(numbers, tuple(-1 if at == axis % x.ndim else 1 for at in range(x.ndim)))


def _integers(t: Tools, x: Value, dtype: str, zero: Value) -> Value:
    """Numbers rounded to even, moved by a zero point and limited to a dtype of integers."""
    limits = np.iinfo(DTYPES[dtype].np)
    xp = t.xp(x)
    found = xp.round(x)
    if zero is not None:
        xp, (found, zero) = t.both(found, t.cast(zero, name_of(found)))
        found = xp.add(found, zero)
    found = xp.minimum(xp.maximum(found, float(limits.min)), float(limits.max))
    return t.cast(found, dtype)


@operator("QuantizeLinear", since=10)
def quantize(
    t: Tools,
    x: Value,
    scale: Value,
    zero: Value = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Value:
    to = name_of(zero) if zero is not None else (t.element(output_dtype) if output_dtype else "u8")
    if not to.startswith(("i", "u", "f8")):
        raise t.refusal(f"QuantizeLinear to {to} is not mapped")
    scale = t.cast(_along(t, scale, x, axis, block_size), "f32")
    zero = None if zero is None else _along(t, zero, x, axis, block_size)
    xp, (a, s) = t.both(t.cast(x, "f32"), scale)
    if to.startswith("f8"):
        return arithmetic.converted(t, xp.divide(a, s), to, saturate)
    return _integers(t, xp.divide(a, s), to, zero)


@operator("DequantizeLinear", since=10)
def dequantize(
    t: Tools,
    x: Value,
    scale: Value,
    zero: Value = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Value:
    if is_float(x):
        zero = None  # of numbers of eight bits it is 0
    to = t.element(output_dtype) if output_dtype else name_of(scale)
    xp, (found, s) = t.both(t.cast(x, "f32"), t.cast(_along(t, scale, x, axis, block_size), "f32"))
    if zero is not None:
        xp, (found, z) = t.both(found, t.cast(_along(t, zero, x, axis, block_size), "f32"))
        found = xp.subtract(found, z)
    return t.cast(xp.multiply(found, s), to)


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize(t: Tools, x: Value) -> Any:
    xp = t.xp(x)
    high, low = xp.maximum(xp.max(x), 0.0), xp.minimum(xp.min(x), 0.0)
    width = xp.subtract(high, low)
    scale = xp.divide(xp.where(xp.equal(width, 0.0), xp.ones_like(width), width), 255.0)
    zero = xp.round(xp.minimum(xp.maximum(xp.divide(xp.negative(low), scale), 0.0), 255.0))
    return _integers(t, xp.divide(x, scale), "u8", zero), scale, t.cast(zero, "u8")


def _centred(t: Tools, x: Value, zero: Value, axis: int) -> Value:
    """Integers less their zero point, in f64, which holds their products exactly."""
    wide = t.cast(x, "f64")
    if zero is None:
        return wide
    zero = t.cast(zero, "f64")
    if zero.ndim == 1 and zero.shape[0] > 1:
        zero = _along(t, zero, x, axis, 0)
    elif zero.ndim <= 1:
        zero = t.xp(zero).reshape(zero, ())
    xp, (a, z) = t.both(wide, zero)
    return xp.subtract(a, z)


@operator("MatMulInteger", since=10)
def matmul_integer(t: Tools, a: Value, b: Value, a_zero: Value = None, b_zero: Value = None) -> Value:
    return t.cast(networks.matmul(t, _centred(t, a, a_zero, -2), _centred(t, b, b_zero, -1)), "i32")


def _scaled(t: Tools, found: Value, scales: tuple[Value, Value, Value], zero: Value) -> Value:
    """A product of integers by the scales of its factors and of its result."""
    factors = [t.cast(scale, "f64") for scale in scales]
    xp, (found, a, b, y) = t.both(found, *factors)
    return _integers(t, xp.multiply(found, xp.divide(xp.multiply(a, b), y)), name_of(zero), zero)


@operator("QLinearMatMul", since=10)
def qlinear_matmul(
    t: Tools, a: Value, a_scale: Value, a_zero: Value, b: Value, b_scale: Value, b_zero: Value,
    y_scale: Value, y_zero: Value,
) -> Value:  # fmt: skip
    found = networks.matmul(t, _centred(t, a, a_zero, -2), _centred(t, b, b_zero, -1))
    return _scaled(t, found, (a_scale, b_scale, y_scale), y_zero)


@operator("ConvInteger", since=10)
def conv_integer(
    t: Tools, x: Value, w: Value, x_zero: Value = None, w_zero: Value = None, *,
    auto_pad: bytes = b"NOTSET", dilations: list[int] | None = None, group: int = 1,
    kernel_shape: list[int] | None = None, pads: list[int] | None = None, strides: list[int] | None = None,
) -> Value:  # fmt: skip
    found = networks.conv(
        t, _centred(t, x, x_zero, 1), _centred(t, w, w_zero, 0),
        auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides,
    )  # fmt: skip
    return t.cast(found, "i32")


@operator("QLinearConv", since=10)
def qlinear_conv(
    t: Tools, x: Value, x_scale: Value, x_zero: Value, w: Value, w_scale: Value, w_zero: Value,
    y_scale: Value, y_zero: Value, b: Value = None, *,
    auto_pad: bytes = b"NOTSET", dilations: list[int] | None = None, group: int = 1,
    kernel_shape: list[int] | None = None, pads: list[int] | None = None, strides: list[int] | None = None,
) -> Value:  # fmt: skip
    found = networks.conv(
        t, _centred(t, x, x_zero, 1), _centred(t, w, w_zero, 0), None if b is None else t.cast(b, "f64"),
        auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides,
    )  # fmt: skip
    return _scaled(t, found, (x_scale, _along(t, w_scale, found, 1, 0), y_scale), y_zero)
