"""Activations and their derivatives, as expressions of :mod:`callboard.kernel.elementwise`.

f16 and bf16 are computed in f32 and rounded once.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out
from callboard.kernel.checks import refuse
from callboard.kernel.dnn.accumulation import Accumulating
from callboard.kernel.dnn.operands import FLOATS, accumulator, check_floats, check_like
from callboard.kernel.elementwise.program import Program, compiled

__all__ = ["ACTIVATIONS", "Activation", "ActivationBackward", "ActivationKind", "Formula", "numbers_of", "program_of"]

ActivationKind = Literal[
    "relu",
    "leaky_relu",
    "elu",
    "gelu",
    "gelu_tanh",
    "sigmoid",
    "tanh",
    "swish",
    "softplus",
    "clipped_relu",
    "identity",
]


class Formula(NamedTuple):
    """An activation.

    Attributes:
        forward: Expression of ``x`` and ``a``.
        backward: Statements on ``dy``, ``x`` and ``a``; the last one is the gradient.
        parameter: The default of ``a``; None for an activation without parameter.
        positive: True if ``a`` must be > 0.
    """

    forward: str
    backward: str
    parameter: float | None = None
    positive: bool = False


SLOPE, CUBIC = math.sqrt(2 / math.pi), 0.044715
HALF_ROOT, DENSITY = math.sqrt(0.5), 1 / math.sqrt(2 * math.pi)

# exp of a number that is never positive: neither branch overflows
LOGISTIC = "e = exp(-abs(x)); s = where(x >= 0, 1, e) / (1 + e)"
BENT = "e = exp(-abs(a * x)); s = where(a * x >= 0, 1, e) / (1 + e)"
INNER = f"t = tanh({SLOPE!r} * (x + {CUBIC} * x * x * x))"

ACTIVATIONS: Mapping[str, Formula] = {
    "relu": Formula("out = maximum(x, 0)", "out = where(x <= 0, 0, dy)"),
    "leaky_relu": Formula("out = where(x > 0, x, a * x)", "out = where(x > 0, dy, a * dy)", 0.01),
    # D.-A. Clevert, T. Unterthiner, S. Hochreiter, arXiv:1511.07289
    "elu": Formula(
        "out = where(x > 0, x, a * expm1(minimum(x, 0)))", "out = where(x > 0, dy, dy * a * exp(minimum(x, 0)))", 1.0
    ),
    # D. Hendrycks, K. Gimpel, arXiv:1606.08415; erfc keeps the digits of results far below 0
    "gelu": Formula(
        f"out = 0.5 * x * erfc(-{HALF_ROOT!r} * x)",
        f"d = where(isinf(x), 0, x * exp(-0.5 * x * x)) * {DENSITY!r}; out = dy * (0.5 * erfc(-{HALF_ROOT!r} * x) + d)",
    ),
    "gelu_tanh": Formula(
        f"{INNER}; out = 0.5 * x * (1 + t)",
        f"{INNER}; d = where(abs(t) == 1, 0, 0.5 * x * (1 - t * t) * {SLOPE!r} * (1 + {3 * CUBIC!r} * x * x));"
        "out = dy * (0.5 * (1 + t) + d)",
    ),
    "sigmoid": Formula(f"{LOGISTIC}; out = s", f"{LOGISTIC}; out = dy * e / ((1 + e) * (1 + e))"),
    "tanh": Formula("out = tanh(x)", "e = exp(-2 * abs(x)); out = dy * 4 * e / ((1 + e) * (1 + e))"),
    "swish": Formula(
        f"{BENT}; out = x * s",
        f"{BENT}; out = dy * (s + where(e == 0, 0, a * x * e / ((1 + e) * (1 + e))))",
        1.0,
    ),
    "softplus": Formula(
        "out = (maximum(a * x, 0) + log1p(exp(-abs(a * x)))) / a", f"{BENT}; out = dy * s", 1.0, positive=True
    ),
    "clipped_relu": Formula(
        "out = minimum(maximum(x, 0), a)", "out = where((x <= 0) | (x >= a), 0, dy)", 6.0, positive=True
    ),
    "identity": Formula("out = x", "out = dy"),
}
"""Every activation by name, in the order of :data:`ActivationKind`."""
assert tuple(ACTIVATIONS) == get_args(ActivationKind)


class Activation(Accumulating, tag="dnn.activation"):
    """An activation of each element.

    ``relu`` max(x, 0) · ``leaky_relu`` x, or a·x below 0 (a = 0.01) · ``elu`` x, or a·(exp(x) - 1) below 0 (a = 1) ·
    ``gelu`` x·Φ(x) · ``gelu_tanh`` its approximation with tanh · ``sigmoid`` · ``tanh`` · ``swish`` x·sigmoid(a·x)
    (a = 1: SiLU) · ``softplus`` log(1 + exp(a·x)) / a (a = 1), without a threshold · ``clipped_relu`` min(max(x, 0), a)
    (a = 6) · ``identity``. NaN stays NaN.

    Args:
        x: f16, bf16, f32 or f64, any strides.
        kind: The kind.
        parameter: The number ``a``; the default above when None. Must be > 0 for ``softplus`` and ``clipped_relu``.
        out: Shape and dtype of ``x``, any strides; a new row-major array when None. May be ``x``.
        addend, alpha, beta: The result becomes ``alpha * result + beta * addend``. ``addend`` is like ``out``, and
            may be the same array, which then accumulates; it is not read if ``beta`` is 0. Halves are rounded before
            and after.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "x"), ("out", "addend")})

    x: In
    kind: ActivationKind
    parameter: float | None = None
    out: Out | None = None

    def infer(self) -> Outputs:
        check_parameter_of(self, self.kind, self.parameter)
        return self.accumulated(layout_of(check_floats(self, "x", self.x), self.x.shape))


class ActivationBackward(Accumulating, tag="dnn.activation_backward"):
    """The gradient of :class:`Activation`; at a bend it is that of the lower side.

    Args:
        dy: The gradient by the result; dtype and shape of ``x``, any strides.
        x: The input of the forward pass, any strides.
        kind: The same as forward.
        parameter: The same as forward.
        dx: Shape and dtype of ``x``; a new row-major array when None. May be ``dy`` or ``x``.
        addend, alpha, beta: The result becomes ``alpha * result + beta * addend``. ``addend`` is like ``dx``, and may
            be the same array, which then accumulates; it is not read if ``beta`` is 0. Halves are rounded before and
            after.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("dx",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("dx", "dy"), ("dx", "x"), ("dx", "addend")})

    dy: In
    x: In
    kind: ActivationKind
    parameter: float | None = None
    dx: Out | None = None

    def infer(self) -> Outputs:
        check_parameter_of(self, self.kind, self.parameter)
        check_like(self, "dy", self.dy, "x", self.x)
        return self.accumulated(layout_of(check_floats(self, "x", self.x), self.x.shape))


def check_parameter_of(op: Op[Any, Any], kind: str, parameter: float | None) -> None:
    """The number of an activation."""
    if parameter is None:
        return
    if ACTIVATIONS[kind].parameter is None:
        raise refuse(op, f"parameter is {parameter!r}, but {kind} has no parameter; leave it out")
    if not math.isfinite(parameter):
        raise refuse(op, f"parameter is {parameter!r}; it must be a finite number")
    if ACTIVATIONS[kind].positive and not parameter > 0:
        raise refuse(op, f"parameter is {parameter!r}; that of {kind} must be > 0")


def program_of(kind: str, dtype: DType, *, backward: bool) -> Program:
    """The expression of an activation for arrays of a dtype: of ``x``; or of ``dy`` and ``x``."""
    formula, work = ACTIVATIONS[kind], accumulator(dtype)
    arrays = ("dy", "x") if backward else ("x",)
    statements = [f"{name} = {work}({name})" for name in arrays]
    statements += [formula.backward if backward else formula.forward, f"out = {dtype}(out)"]
    numbers: tuple[tuple[str, Any], ...] = () if formula.parameter is None else (("a", "float"),)
    return compiled("; ".join(statements), (dtype,) * len(arrays), numbers)


def numbers_of(kind: str, parameter: float | None) -> tuple[float, ...] | None:
    """The numbers that a program takes in addition to the arrays."""
    own = ACTIVATIONS[kind].parameter
    return None if own is None else (own if parameter is None else parameter,)
