"""Operators on elements: arithmetic, comparisons, activations, casts."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.kernel.engine.mapped.tools import Tools, Value, is_float, kind_of, name_of, operator

__all__ = ["converted"]

SAME = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "Equal": "equal",
    "Greater": "greater",
    "Less": "less",
    "GreaterOrEqual": "greater_equal",
    "LessOrEqual": "less_equal",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
}
"""Operators of two operands by the array API's names."""
ALONE = {
    "Abs": "abs",
    "Neg": "negative",
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Floor": "floor",
    "Ceil": "ceil",
    "Sin": "sin",
    "Cos": "cos",
    "Tan": "tan",
    "Asin": "asin",
    "Acos": "acos",
    "Atan": "atan",
    "Sinh": "sinh",
    "Cosh": "cosh",
    "Asinh": "asinh",
    "Acosh": "acosh",
    "Atanh": "atanh",
    "Tanh": "tanh",
    "Sign": "sign",
    "Round": "round",
    "Reciprocal": "reciprocal",
    "Not": "logical_not",
    "IsNaN": "isnan",
    "BitwiseNot": "bitwise_invert",
}
"""Operators of one operand."""
EXPRESSIONS = {
    "Erf": "erf(x)",
    "HardSwish": "x * minimum(maximum(x / 6.0 + 0.5, 0.0), 1.0)",
    "Mish": "x * tanh(maximum(x, 0.0) + log1p(exp(-abs(x))))",
    "Sigmoid": "1.0 / (1.0 + exp(-x))",
    "Softplus": "maximum(x, 0.0) + log1p(exp(-abs(x)))",
    "Softsign": "x / (1.0 + abs(x))",
}
"""Operators of one operand as expressions of ``dev.elementwise``."""


def _two(name: str) -> Callable[..., Any]:
    def call(t: Tools, a: Value, b: Value) -> Value:
        xp, (x, y) = t.together(a, b)
        return getattr(xp, name)(x, y)

    return call


def _one(name: str) -> Callable[..., Any]:
    def call(t: Tools, x: Value) -> Value:
        return getattr(t.xp(x), name)(x)

    return call


def _mapped(expression: str) -> Callable[..., Any]:
    return lambda t, x: t.map(expression, x=x)


for _onnx, _name in SAME.items():
    operator(_onnx, since=7)(_two(_name))
for _onnx, _name in ALONE.items():
    operator(_onnx, since=6 if _onnx != "Not" else 1)(_one(_name))
for _onnx, _text in EXPRESSIONS.items():
    operator(_onnx, since=6)(_mapped(_text))


@operator("Identity", since=1)
def identity(t: Tools, x: Value) -> Value:
    return x


@operator("Div", since=7)
def div(t: Tools, a: Value, b: Value) -> Value:
    xp, (x, y) = t.together(a, b)
    if is_float(x):
        return xp.divide(x, y)
    zero = xp.equal(y, 0)
    y = xp.where(zero, xp.ones_like(y), y)
    found = xp.floor_divide(x, y)
    if kind_of(x) != "u":  # towards 0
        inexact = xp.not_equal(xp.multiply(found, y), x)
        mixed = xp.not_equal(xp.less(x, 0), xp.less(y, 0))
        found = xp.add(found, t.cast(xp.logical_and(inexact, mixed), name_of(x)))
    return xp.where(zero, xp.zeros_like(found), found)  # by 0 it is 0, on every device


@operator("Mod", since=10)
def mod(t: Tools, a: Value, b: Value, *, fmod: int = 0) -> Value:
    xp, (x, y) = t.together(a, b)
    if not is_float(x):
        y = xp.where(xp.equal(y, 0), xp.ones_like(y), y)  # by 0 it is 0, on every device
    found = xp.remainder(x, y)
    if not fmod or kind_of(x) == "u":
        return found
    other = xp.logical_and(xp.not_equal(found, 0), xp.not_equal(xp.less(found, 0), xp.less(x, 0)))
    return xp.where(other, xp.subtract(found, y), found)


@operator("Pow", since=7)
def power(t: Tools, a: Value, b: Value) -> Value:
    if name_of(a) != name_of(b):
        if not is_float(a):
            raise t.refusal("Pow of an integer with an exponent of another dtype is not mapped")
        b = t.cast(b, name_of(a))
    xp, (x, y) = t.together(a, b)
    return xp.pow(x, y)


@operator("BitShift", since=11)
def bit_shift(t: Tools, a: Value, b: Value, *, direction: bytes) -> Value:
    xp, (x, y) = t.together(a, b)
    return (xp.bitwise_left_shift if direction == b"LEFT" else xp.bitwise_right_shift)(x, y)


def _all(t: Tools, name: str, values: tuple[Value, ...]) -> Value:
    xp, given = t.together(*values)
    return functools.reduce(getattr(xp, name), given)


@operator("Max", since=8)
def maximum(t: Tools, *values: Value) -> Value:
    return _all(t, "maximum", values)


@operator("Min", since=8)
def minimum(t: Tools, *values: Value) -> Value:
    return _all(t, "minimum", values)


@operator("Sum", since=8)
def total(t: Tools, *values: Value) -> Value:
    return _all(t, "add", values)


@operator("Mean", since=8)
def mean(t: Tools, *values: Value) -> Value:
    found = _all(t, "add", values)
    return t.xp(found).divide(found, len(values))


@operator("Where", since=9)
def where(t: Tools, condition: Value, a: Value, b: Value) -> Value:
    xp, (c, x, y) = t.together(condition, a, b)
    return xp.where(c, x, y)


@operator("Clip", since=11)
def clip(t: Tools, x: Value, low: Value = None, high: Value = None) -> Value:
    for name, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            xp, (x, y) = t.together(x, bound)
            x = getattr(xp, name)(x, y)
    return x


LARGEST = {"f8_e4m3": 448.0, "f8_e5m2": 57344.0}
"""The largest number of each dtype of eight bits."""


def converted(t: Tools, x: Value, dtype: str, saturate: int) -> Value:
    """The value in another dtype; one that is too large for eight bits becomes the largest, if it saturates."""
    if dtype in LARGEST and is_float(x) and saturate and name_of(x) not in LARGEST:
        xp = t.xp(x)
        x = xp.minimum(xp.maximum(t.cast(x, "f32"), -LARGEST[dtype]), LARGEST[dtype])
    return t.cast(x, dtype)


@operator("Cast", since=9)
def cast(t: Tools, x: Value, *, to: int, saturate: int = 1, round_mode: bytes = b"up") -> Value:
    return converted(t, x, t.element(to), saturate)


@operator("CastLike", since=15)
def cast_like(t: Tools, x: Value, like: Value, *, saturate: int = 1, round_mode: bytes = b"up") -> Value:
    return converted(t, x, name_of(like), saturate)


@operator("IsInf", since=10)
def is_inf(t: Tools, x: Value, *, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    xp = t.xp(x)
    found = xp.isinf(x)
    if not detect_negative:
        found = xp.logical_and(found, xp.greater(x, 0))
    if not detect_positive:
        found = xp.logical_and(found, xp.less(x, 0))
    return found


@operator("Dropout", since=12)
def dropout(t: Tools, x: Value, ratio: Value = None, training: Value = None, *, seed: int = 0) -> Any:
    if training is not None and t.host(training, "training_mode").any():
        raise t.refusal("Dropout in training is not mapped")
    return (x, t.xp(x).ones_like(x, dtype=bool)) if t.outputs > 1 else x


# -- activations -------------------------------------------------------------------------------------------------------


@operator("Relu", since=6)
def relu(t: Tools, x: Value) -> Value:
    return t.xp(x).maximum(x, x.dtype.type(0) if isinstance(x, np.ndarray) else 0)


@operator("PRelu", since=7)
def prelu(t: Tools, x: Value, slope: Value) -> Value:
    xp, (a, s) = t.together(x, slope)
    return xp.where(xp.less(a, 0), xp.multiply(a, s), a)


@operator("LeakyRelu", since=6)
def leaky_relu(t: Tools, x: Value, *, alpha: float = 0.01) -> Value:
    return t.map("where(x < 0.0, alpha * x, x)", x=x, alpha=alpha)


@operator("Elu", since=6)
def elu(t: Tools, x: Value, *, alpha: float = 1.0) -> Value:
    return t.map("where(x < 0.0, alpha * expm1(minimum(x, 0.0)), x)", x=x, alpha=alpha)


@operator("Celu", since=12)
def celu(t: Tools, x: Value, *, alpha: float = 1.0) -> Value:
    return t.map("where(x < 0.0, alpha * expm1(minimum(x, 0.0) / alpha), x)", x=x, alpha=alpha)


@operator("Selu", since=6)
def selu(
    t: Tools, x: Value, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Value:
    return t.map("gamma * where(x > 0.0, x, alpha * expm1(minimum(x, 0.0)))", x=x, alpha=alpha, gamma=gamma)


@operator("ThresholdedRelu", since=10)
def thresholded_relu(t: Tools, x: Value, *, alpha: float = 1.0) -> Value:
    return t.map("where(x > alpha, x, 0.0 * alpha)", x=x, alpha=alpha)


@operator("HardSigmoid", since=6)
def hard_sigmoid(t: Tools, x: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Value:
    return t.map("minimum(maximum(alpha * x + beta, 0.0), 1.0)", x=x, alpha=alpha, beta=beta)


@operator("Swish")
def swish(t: Tools, x: Value, *, alpha: float = 1.0) -> Value:
    return t.map("x / (1.0 + exp(-alpha * x))", x=x, alpha=alpha)


@operator("Shrink", since=9)
def shrink(t: Tools, x: Value, *, lambd: float = 0.5, bias: float = 0.0) -> Value:
    if not is_float(x):
        raise t.refusal("Shrink of integers is not mapped")
    text = "where(x < -lambd, x + bias, where(x > lambd, x - bias, 0.0 * bias))"
    return t.map(text, x=x, lambd=lambd, bias=bias)


@operator("Gelu")
def gelu(t: Tools, x: Value, *, approximate: bytes = b"none") -> Value:
    if approximate == b"tanh":
        return t.map("0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))", x=x)
    return t.map("0.5 * x * (1.0 + erf(0.7071067811865476 * x))", x=x)
