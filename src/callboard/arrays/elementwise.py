"""Functions of each element: every one is an expression of :mod:`callboard.kernel.elementwise`, one kernel.

Promotion of arrays of several dtypes, and results for integers that the standard leaves open, follow the NumPy function
of the same name.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from callboard.arrays.fusion import Call, call_of, deferred, fused, rewritten
from callboard.arrays.handles import Ref, Scalar, cast, check_array, is_scalar, submit
from callboard.core.mode import Mode
from callboard.core.ref import DeferredRef, GpuRef
from callboard.core.ref.naming import ABOUT_ARGUMENTS, renamed
from callboard.kernel.elementwise import Map
from callboard.kernel.elementwise.promotion import range_of
from callboard.kernel.memory import Copy

__all__ = ["BINARY", "UNARY", "apply", "binary", "clip", "unary", "where", "write_into"]


class Unary(Protocol):
    """A function of one array."""

    def __call__(self, x: GpuRef[Mode], /) -> GpuRef[Mode]: ...


class Binary(Protocol):
    """A function of two arrays, or of an array and a number."""

    def __call__(self, x1: GpuRef[Mode] | Scalar, x2: GpuRef[Mode] | Scalar, /) -> GpuRef[Mode]: ...


def apply(text: str, out: Ref | None = None, /, **given: Any) -> Any:
    """The expression of these arrays and numbers, which are named in the order of their first place in the text."""
    return computed(call_of(text, tuple(given)), tuple(given.values()), out)


def computed(call: Call, values: Sequence[Any], out: Ref | None = None) -> Any:
    """The result of a call, deferred if that can be."""
    if out is None:
        later = deferred(call, values)
        if later is not None:
            return later

    def made(text: str, operands: tuple[Ref, ...], fields: dict[str, Any]) -> Map:
        return Map(expression=text, operands=operands, out=out, **fields)

    return fused(call, values, made, None if out is None else out.allocation)


def unary(name: str, does: str) -> Unary:
    """The function of this name."""
    call = Call(f"{name}(x)", ("x",))

    def function(x: GpuRef[Mode], /) -> GpuRef[Mode]:
        found: GpuRef[Mode] | None = deferred(call, (x,))
        if found is not None:
            return found
        try:
            made: GpuRef[Mode] = computed(call, (check_array(name, "x", x),))
        except ABOUT_ARGUMENTS as e:
            renamed(e, f"xp.{name}")
            raise
        return made

    named: Unary = _named(function, name, does)
    return named


def binary(name: str, does: str) -> Binary:
    """The function of this name."""
    call = PAIRS[name] = Call(f"{name}(x1, x2)", ("x1", "x2"))

    def function(x1: GpuRef[Mode] | Scalar, x2: GpuRef[Mode] | Scalar, /) -> GpuRef[Mode]:
        found: GpuRef[Mode] | None = deferred(call, (x1, x2))
        if found is not None:
            return found
        _check_pair(name, x1, x2)
        try:
            made: GpuRef[Mode] = computed(call, (x1, x2))
        except ABOUT_ARGUMENTS as e:
            renamed(e, f"xp.{name}")
            raise
        return made

    named: Binary = _named(function, name, does)
    return named


PAIRS: dict[str, Call] = {}


def comparison(name: str, does: str) -> Binary:
    """The comparison of this name. An integer that the other operand's dtype cannot hold lies beyond all its values."""
    compared = binary(name, does)

    def function(x1: GpuRef[Mode] | Scalar, x2: GpuRef[Mode] | Scalar, /) -> GpuRef[Mode]:
        if type(x2) is int:
            x2 = _held(x2, x1)
        elif type(x1) is int:
            x1 = _held(x1, x2)
        return compared(x1, x2)

    named: Binary = _named(function, name, does)
    return named


def power(name: str, does: str) -> Binary:
    """The power of this name. Integers have no powers to a negative number: it would be 0 nearly everywhere."""
    raised = binary(name, does)

    def function(x1: GpuRef[Mode] | Scalar, x2: GpuRef[Mode] | Scalar, /) -> GpuRef[Mode]:
        _check_exponent(x1, x2)
        return raised(x1, x2)

    named: Binary = _named(function, name, does)
    return named


def _check_exponent(x1: Any, x2: Any) -> None:
    if type(x2) is int and x2 < 0 and isinstance(x1, GpuRef) and x1.dtype.is_integer:
        raise ValueError(
            f"xp.pow: x1 has dtype {x1.dtype.name}, whose integers have no powers to the negative x2 = {x2}; "
            "convert it to a floating dtype, or write the exponent as one"
        )


def _held(number: int, beside: Any) -> int | float:
    """The number; infinity of its sign where the array's integer dtype cannot hold it."""
    if isinstance(beside, GpuRef) and beside.dtype.is_integer and number not in range_of(beside.dtype):
        return math.inf if number > 0 else -math.inf
    return number


def _check_pair(name: str, x1: Any, x2: Any) -> None:
    if isinstance(x1, GpuRef) and isinstance(x2, GpuRef | float | int):
        return
    if is_scalar(x1) and is_scalar(x2):
        raise TypeError(f"xp.{name}: x1 and x2 are numbers; one of them must be an array")
    for which, x in (("x1", x1), ("x2", x2)):
        if not is_scalar(x):
            check_array(name, which, x)


def _named(function: Any, name: str, does: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = does
    return function


UNARY: Mapping[str, str] = {
    "abs": "The absolute value; of complex numbers their magnitude, as real numbers.",
    "acos": "The arc cosine, in radians.",
    "acosh": "The inverse hyperbolic cosine.",
    "asin": "The arc sine, in radians.",
    "asinh": "The inverse hyperbolic sine.",
    "atan": "The arc tangent, in radians.",
    "atanh": "The inverse hyperbolic tangent.",
    "bitwise_invert": "Every bit the other way; of bools, not.",
    "ceil": "The next integer that is not smaller, as a number of the same dtype.",
    "conj": "The complex conjugate.",
    "cos": "The cosine of radians.",
    "cosh": "The hyperbolic cosine.",
    "exp": "e to this power.",
    "expm1": "``exp(x) - 1``, exact near 0.",
    "floor": "The next integer that is not larger, as a number of the same dtype.",
    "imag": "The imaginary part.",
    "isfinite": "Whether it is neither infinite nor NaN.",
    "isinf": "Whether it is infinite.",
    "isnan": "Whether it is NaN.",
    "log": "The natural logarithm.",
    "log10": "The logarithm to base 10.",
    "log1p": "``log(1 + x)``, exact near 0.",
    "log2": "The logarithm to base 2.",
    "logical_not": "Whether it is 0 or False.",
    "negative": "``-x``.",
    "positive": "A copy.",
    "real": "The real part.",
    "reciprocal": "``1 / x``.",
    "round": "The nearest integer, halves to the even one, as a number of the same dtype.",
    "sign": "-1, 0 or 1; NaN of NaN; of complex numbers ``x / abs(x)``.",
    "signbit": "Whether the sign bit is set, as of -0.0.",
    "sin": "The sine of radians.",
    "sinh": "The hyperbolic sine.",
    "sqrt": "The square root; of complex numbers the principal one.",
    "square": "``x * x``.",
    "tan": "The tangent of radians.",
    "tanh": "The hyperbolic tangent.",
    "trunc": "The integer without the fraction, as a number of the same dtype.",
}
BINARY: Mapping[str, str] = {
    "add": "``x1 + x2``.",
    "atan2": "The angle of the point ``(x2, x1)``, in radians.",
    "bitwise_and": "``x1 & x2``.",
    "bitwise_left_shift": "``x1 << x2``.",
    "bitwise_or": "``x1 | x2``.",
    "bitwise_right_shift": "``x1 >> x2``; of signed integers with their sign.",
    "bitwise_xor": "``x1 ^ x2``.",
    "copysign": "The magnitude of ``x1`` with the sign of ``x2``.",
    "divide": "``x1 / x2``; of integers in float64.",
    "equal": "``x1 == x2``.",
    "floor_divide": "``x1 // x2``, rounded down; of integers 0 where ``x2`` is.",
    "greater": "``x1 > x2``.",
    "greater_equal": "``x1 >= x2``.",
    "hypot": "``sqrt(x1**2 + x2**2)`` without overflow in between.",
    "less": "``x1 < x2``.",
    "less_equal": "``x1 <= x2``.",
    "logaddexp": "``log(exp(x1) + exp(x2))`` without overflow in between.",
    "logical_and": "Whether both are neither 0 nor False.",
    "logical_or": "Whether one of them is neither 0 nor False.",
    "logical_xor": "Whether exactly one of them is neither 0 nor False.",
    "maximum": "The larger one; NaN where one is.",
    "minimum": "The smaller one; NaN where one is.",
    "multiply": "``x1 * x2``.",
    "nextafter": "The next number after ``x1`` towards ``x2``.",
    "not_equal": "``x1 != x2``.",
    "pow": "``x1 ** x2``. Raises ``ValueError`` for integers with a negative int: they have no such powers.",
    "remainder": "``x1 % x2``, with the sign of ``x2``; of integers 0 where ``x2`` is.",
    "subtract": "``x1 - x2``.",
}


def where(condition: GpuRef[Mode], x1: GpuRef[Mode] | Scalar, x2: GpuRef[Mode] | Scalar, /) -> GpuRef[Mode]:
    """``x1`` where the condition holds, else ``x2``; all three broadcast."""
    check_array("where", "condition", condition)
    for which, x in (("x1", x1), ("x2", x2)):
        if not is_scalar(x):
            check_array("where", which, x)
    found: GpuRef[Mode] = apply("where(c, x1, x2)", c=condition, x1=x1, x2=x2)
    return found


def clip(
    x: GpuRef[Mode],
    /,
    min: GpuRef[Mode] | int | float | None = None,
    max: GpuRef[Mode] | int | float | None = None,
) -> GpuRef[Mode]:
    """The nearest number that is not smaller than ``min`` nor larger than ``max``, in the dtype of ``x``.

    ``max`` where ``max < min``; NaN stays NaN. Integers between bounds that are floating become floating, as in NumPy.
    """
    check_array("clip", "x", x)
    given = {name: bound for name, bound in (("lower", min), ("upper", max)) if bound is not None}
    for name, bound in given.items():
        if not is_scalar(bound):
            check_array("clip", "min" if name == "lower" else "max", bound)
    text = "maximum(x, lower)" if min is not None else "x"
    text = f"minimum({text}, upper)" if max is not None else text
    if not given:
        copied: GpuRef[Mode] = submit(x, Copy(src=x))
        return copied
    found: GpuRef[Mode] = apply(text, x=x, **given)
    return found if found.dtype.is_float and not x.dtype.is_float else cast(found, x.dtype)


def write_into(x: Ref, name: str, other: Any) -> Ref:
    """``x = name(x, other)`` in the memory of ``x``; returns ``x``, pending on this op.

    Raises:
        ShapeError: The result has another shape or dtype.
    """
    _check_pair(name, x, other)
    if name == "pow":
        _check_exponent(x, other)
    if rewritten(x, PAIRS[name], (x, other)):
        return x
    has_memory = isinstance(other, GpuRef) and not isinstance(other, DeferredRef)
    shared = has_memory and other.allocation is x.allocation
    if shared and (other.offset != x.offset or other.layout != x.layout):
        other = submit(x, Copy(src=other))  # the two may overlap
    written: Ref = computed(PAIRS[name], (x, other), x)
    return written


abs = unary("abs", UNARY["abs"])
acos = unary("acos", UNARY["acos"])
acosh = unary("acosh", UNARY["acosh"])
asin = unary("asin", UNARY["asin"])
asinh = unary("asinh", UNARY["asinh"])
atan = unary("atan", UNARY["atan"])
atanh = unary("atanh", UNARY["atanh"])
bitwise_invert = unary("bitwise_invert", UNARY["bitwise_invert"])
ceil = unary("ceil", UNARY["ceil"])
conj = unary("conj", UNARY["conj"])
cos = unary("cos", UNARY["cos"])
cosh = unary("cosh", UNARY["cosh"])
exp = unary("exp", UNARY["exp"])
expm1 = unary("expm1", UNARY["expm1"])
floor = unary("floor", UNARY["floor"])
imag = unary("imag", UNARY["imag"])
isfinite = unary("isfinite", UNARY["isfinite"])
isinf = unary("isinf", UNARY["isinf"])
isnan = unary("isnan", UNARY["isnan"])
log = unary("log", UNARY["log"])
log10 = unary("log10", UNARY["log10"])
log1p = unary("log1p", UNARY["log1p"])
log2 = unary("log2", UNARY["log2"])
logical_not = unary("logical_not", UNARY["logical_not"])
negative = unary("negative", UNARY["negative"])
positive = unary("positive", UNARY["positive"])
real = unary("real", UNARY["real"])
reciprocal = unary("reciprocal", UNARY["reciprocal"])
round = unary("round", UNARY["round"])
sign = unary("sign", UNARY["sign"])
signbit = unary("signbit", UNARY["signbit"])
sin = unary("sin", UNARY["sin"])
sinh = unary("sinh", UNARY["sinh"])
sqrt = unary("sqrt", UNARY["sqrt"])
square = unary("square", UNARY["square"])
tan = unary("tan", UNARY["tan"])
tanh = unary("tanh", UNARY["tanh"])
trunc = unary("trunc", UNARY["trunc"])
add = binary("add", BINARY["add"])
atan2 = binary("atan2", BINARY["atan2"])
bitwise_and = binary("bitwise_and", BINARY["bitwise_and"])
bitwise_left_shift = binary("bitwise_left_shift", BINARY["bitwise_left_shift"])
bitwise_or = binary("bitwise_or", BINARY["bitwise_or"])
bitwise_right_shift = binary("bitwise_right_shift", BINARY["bitwise_right_shift"])
bitwise_xor = binary("bitwise_xor", BINARY["bitwise_xor"])
copysign = binary("copysign", BINARY["copysign"])
divide = binary("divide", BINARY["divide"])
equal = comparison("equal", BINARY["equal"])
floor_divide = binary("floor_divide", BINARY["floor_divide"])
greater = comparison("greater", BINARY["greater"])
greater_equal = comparison("greater_equal", BINARY["greater_equal"])
hypot = binary("hypot", BINARY["hypot"])
less = comparison("less", BINARY["less"])
less_equal = comparison("less_equal", BINARY["less_equal"])
logaddexp = binary("logaddexp", BINARY["logaddexp"])
logical_and = binary("logical_and", BINARY["logical_and"])
logical_or = binary("logical_or", BINARY["logical_or"])
logical_xor = binary("logical_xor", BINARY["logical_xor"])
maximum = binary("maximum", BINARY["maximum"])
minimum = binary("minimum", BINARY["minimum"])
multiply = binary("multiply", BINARY["multiply"])
nextafter = binary("nextafter", BINARY["nextafter"])
not_equal = comparison("not_equal", BINARY["not_equal"])
pow = power("pow", BINARY["pow"])
remainder = binary("remainder", BINARY["remainder"])
subtract = binary("subtract", BINARY["subtract"])
