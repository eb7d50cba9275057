"""The functions of expressions: names, arguments, and compute dtypes.

Names are those of the Python array API standard 2025.12 if it has the function, else those of NumPy or CUDA; results
are those of NumPy's function. ``ALIASES`` has other names for them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from callboard.core.dtype import DTYPES, DType
from callboard.kernel.elementwise.promotion import complex_of, floating, join

__all__ = ["ALIASES", "FUNCTIONS", "Function", "Refusal", "Types"]

BOOL = DTYPES["bool"]


class Refusal(Exception):
    """These dtypes have no such function; the text names the alternative."""


class Types(NamedTuple):
    """In which dtypes a function is computed.

    Attributes:
        arguments: The dtype that each argument is converted to first.
        result: The dtype of the result.
    """

    arguments: tuple[DType, ...]
    result: DType


Rule = Callable[[Sequence[DType]], Types]


class Function(NamedTuple):
    """A function of an expression.

    Attributes:
        arity: Number of arguments.
        rule: Returns the dtypes of the function, given those of the arguments; raises :class:`Refusal`.
        numpy: NumPy's function that it is; ``"special.erf"`` for one of SciPy's.
    """

    arity: int
    rule: Rule
    numpy: str


def _joined(dtypes: Sequence[DType]) -> DType:
    found = dtypes[0]
    for dtype in dtypes[1:]:
        found = join(found, dtype)
    return found


def _same(dtypes: Sequence[DType]) -> Types:
    common = _joined(dtypes)
    return Types((common,) * len(dtypes), common)


def _real(rule: Rule) -> Rule:
    def of(dtypes: Sequence[DType]) -> Types:
        if any(d.is_complex for d in dtypes):
            raise Refusal("it does not support complex numbers; apply abs(), real() or imag() first")
        return rule(dtypes)

    return of


def _numbers(rule: Rule) -> Rule:
    """Bools alone count as ``i8``, as in NumPy."""

    def of(dtypes: Sequence[DType]) -> Types:
        return rule([DTYPES["i8"], *dtypes[1:]] if all(d is BOOL for d in dtypes) else dtypes)

    return of


def _no_bools(rule: Rule) -> Rule:
    def of(dtypes: Sequence[DType]) -> Types:
        if all(d is BOOL for d in dtypes):
            raise Refusal("bools are not subtracted; use ^ or logical_not()")
        return rule(dtypes)

    return of


def _in_floats(dtypes: Sequence[DType]) -> Types:
    common = floating(_joined(dtypes))
    return Types((common,) * len(dtypes), common)


def _quotient(dtypes: Sequence[DType]) -> Types:
    common = _joined(dtypes)
    if common.kind not in ("float", "complex"):
        common = DTYPES["f64"]
    return Types((common,) * len(dtypes), common)


def _bits(dtypes: Sequence[DType]) -> Types:
    if any(d.kind in ("float", "complex") for d in dtypes):
        raise Refusal("bits are those of integers and bools; convert it first, as in i64(x)")
    return _whole(dtypes)


def _whole(dtypes: Sequence[DType]) -> Types:
    types = _same(dtypes)
    if types.result.is_float:
        raise Refusal("no integer type holds both u64 and signed integers; convert one, as in i64(x)")
    return types


def _compared(dtypes: Sequence[DType]) -> Types:
    if all(d.is_integer for d in dtypes) and _joined(dtypes).is_float:
        return Types(tuple(dtypes), BOOL)  # u64 beside signed: compared by value
    common = _joined(dtypes)
    return Types((common,) * 2, BOOL)


def _truth(dtypes: Sequence[DType]) -> Types:
    return Types((BOOL,) * len(dtypes), BOOL)


def _asked(dtypes: Sequence[DType]) -> Types:
    return Types(tuple(dtypes), BOOL)


def _sign_bit(dtypes: Sequence[DType]) -> Types:
    types = _in_floats(dtypes)
    return Types(types.arguments, BOOL)


def _magnitude(dtypes: Sequence[DType]) -> Types:
    return Types(tuple(dtypes), dtypes[0].real)


def _angle(dtypes: Sequence[DType]) -> Types:
    wide = complex_of(dtypes[0])
    return Types((wide,), wide.real)


def _chosen(dtypes: Sequence[DType]) -> Types:
    common = _joined(dtypes[1:])
    return Types((BOOL, common, common), common)


def _counted(dtypes: Sequence[DType]) -> Types:
    return Types(_bits(dtypes).arguments, DTYPES["u8"])


def _halves(dtypes: Sequence[DType]) -> Types:
    common = _in_floats(dtypes).result
    wide = complex_of(common)
    return Types((wide.real, wide.real), wide)


FUNCTIONS: Mapping[str, Function] = {
    # arithmetic
    "add": Function(2, _same, "add"),
    "subtract": Function(2, _no_bools(_same), "subtract"),
    "multiply": Function(2, _same, "multiply"),
    "divide": Function(2, _quotient, "divide"),
    "floor_divide": Function(2, _real(_numbers(_same)), "floor_divide"),
    "remainder": Function(2, _real(_numbers(_same)), "remainder"),
    "fmod": Function(2, _real(_numbers(_same)), "fmod"),
    "pow": Function(2, _numbers(_same), "power"),
    "negative": Function(1, _no_bools(_same), "negative"),
    "positive": Function(1, _no_bools(_same), "positive"),
    "abs": Function(1, _magnitude, "absolute"),
    "sign": Function(1, _no_bools(_same), "sign"),
    "square": Function(1, _numbers(_same), "square"),
    "reciprocal": Function(1, _quotient, "reciprocal"),
    # the larger and the smaller: a NaN wins in maximum and minimum, and loses in fmax and fmin
    "maximum": Function(2, _real(_same), "maximum"),
    "minimum": Function(2, _real(_same), "minimum"),
    "fmax": Function(2, _real(_same), "fmax"),
    "fmin": Function(2, _real(_same), "fmin"),
    # comparisons and logic
    "equal": Function(2, _compared, "equal"),
    "not_equal": Function(2, _compared, "not_equal"),
    "less": Function(2, _real(_compared), "less"),
    "less_equal": Function(2, _real(_compared), "less_equal"),
    "greater": Function(2, _real(_compared), "greater"),
    "greater_equal": Function(2, _real(_compared), "greater_equal"),
    "logical_and": Function(2, _truth, "logical_and"),
    "logical_or": Function(2, _truth, "logical_or"),
    "logical_xor": Function(2, _truth, "logical_xor"),
    "logical_not": Function(1, _truth, "logical_not"),
    "where": Function(3, _chosen, "where"),
    # bits
    "bitwise_and": Function(2, _bits, "bitwise_and"),
    "bitwise_or": Function(2, _bits, "bitwise_or"),
    "bitwise_xor": Function(2, _bits, "bitwise_xor"),
    "bitwise_invert": Function(1, _bits, "invert"),
    "bitwise_left_shift": Function(2, _numbers(_bits), "left_shift"),
    "bitwise_right_shift": Function(2, _numbers(_bits), "right_shift"),
    "bitwise_count": Function(1, _numbers(_counted), "bitwise_count"),
    # what a number is
    "isnan": Function(1, _asked, "isnan"),
    "isinf": Function(1, _asked, "isinf"),
    "isfinite": Function(1, _asked, "isfinite"),
    "signbit": Function(1, _real(_sign_bit), "signbit"),
    "copysign": Function(2, _real(_in_floats), "copysign"),
    "nextafter": Function(2, _real(_in_floats), "nextafter"),
    # complex numbers
    "real": Function(1, _magnitude, "real"),
    "imag": Function(1, _magnitude, "imag"),
    "conj": Function(1, _same, "conjugate"),
    "angle": Function(1, _angle, "angle"),
    "complex": Function(2, _real(_halves), "complex"),
    # to whole numbers
    **{name: Function(1, _real(_same), name) for name in ("floor", "ceil", "trunc")},
    "round": Function(1, _same, "rint"),
    # roots, powers, angles
    **{name: Function(1, _in_floats, name) for name in ("sqrt", "exp", "exp2", "expm1", "log", "log2", "log10")},
    **{name: Function(1, _in_floats, name) for name in ("log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{name: Function(1, _in_floats, f"arc{name[1:]}") for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    **{name: Function(1, _real(_in_floats), name) for name in ("cbrt", "deg2rad", "rad2deg")},
    "rsqrt": Function(1, _real(_in_floats), "rsqrt"),
    "atan2": Function(2, _real(_in_floats), "arctan2"),
    "hypot": Function(2, _real(_in_floats), "hypot"),
    "logaddexp": Function(2, _real(_in_floats), "logaddexp"),
    "erf": Function(1, _real(_in_floats), "special.erf"),
    "erfc": Function(1, _real(_in_floats), "special.erfc"),
    "gamma": Function(1, _real(_in_floats), "special.gamma"),
    "lgamma": Function(1, _real(_in_floats), "special.gammaln"),
}
"""Every function by name."""

ALIASES: Mapping[str, str] = {
    "max": "maximum",
    "min": "minimum",
    "absolute": "abs",
    "power": "pow",
    "mod": "remainder",
    "rint": "round",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
    "popcount": "bitwise_count",
    "conjugate": "conj",
    "arg": "angle",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "true_divide": "divide",
    "select": "where",
    "tgamma": "gamma",
}
