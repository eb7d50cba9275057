"""``scipy.special``: functions of each element, one expression each, and sums of exponentials."""

import math
import re
from typing import Any

from callboard.arrays.elementwise import apply
from callboard.numpylike.binding import Array, Maybe
from callboard.scipylike.table import function

__all__ = ["EXPRESSIONS", "floats"]

EXPRESSIONS = {
    "erf": "erf(x)",
    "erfc": "erfc(x)",
    "gamma": "gamma(x)",
    "gammaln": "lgamma(x)",
    "expit": "1 / (1 + exp(-x))",
    "logit": "log(x / (1 - x))",
    "log_expit": "minimum(x, 0) - log1p(exp(-abs(x)))",
    "ndtr": "0.5 * erfc(x * -0.7071067811865476)",
    "entr": "where(x > 0, -x * log(x), where(x == 0, 0, where(x == x, -inf, x)))",
    "exp2": "exp2(x)",
    "exp10": "pow(10.0, x)",
    "expm1": "expm1(x)",
    "log1p": "log1p(x)",
    "cbrt": "cbrt(x)",
    "sinc": "where(x == 0, 1.0, sin(3.141592653589793 * x) / (3.141592653589793 * x))",
    "xlogy": "where((x == 0) & (y == y), x * 0, x * log(y))",
    "xlog1py": "where((x == 0) & (y == y), x * 0, x * log1p(y))",
    "rel_entr": (
        "where((x != x) | (y != y), x + y, where((x > 0) & (y > 0), x * log(x / y), "
        "where((x == 0) & (y >= 0), 0, inf)))"
    ),
    "kl_div": (
        "where((x != x) | (y != y), x + y, where((x > 0) & (y > 0), x * log(x / y) - x + y, "
        "where((x == 0) & (y >= 0), y, inf)))"
    ),
    "huber": "where(x < 0, inf, where(abs(y) <= x, 0.5 * y * y, x * (abs(y) - 0.5 * x)))",
    "pseudo_huber": ("where(x < 0, inf, where((x == 0) | (y == 0), 0, x * x * (sqrt(1 + (y / x) * (y / x)) - 1)))"),
    "betaln": (
        "where((x == 0) & (y == 0), inf, "
        "where((x == inf) & (y > 0) & (y < inf) | (y == inf) & (x > 0) & (x < inf), -inf, "
        "lgamma(x) + lgamma(y) - lgamma(x + y)))"
    ),
}
"""The expression of each function of elements, of ``x`` and, where there are two, ``y``. They take real numbers."""


def floats(np: Any, *given: Any) -> Any:
    """Arrays as numbers with a point: integers become f64, as in SciPy."""
    found = [x if x.dtype.kind in ("float", "complex") else np.asarray(x, dtype="f8") for x in map(np.asarray, given)]
    return found[0] if len(found) == 1 else found


def _entered(name: str, text: str) -> None:
    def one(np: Any, x: Array) -> Any:
        return apply(text, x=floats(np, x))

    def two(np: Any, x: Array, y: Array) -> Any:
        x, y = floats(np, x, y)
        return apply(text, x=x, y=y)

    made = two if re.search(r"\by\b", text) else one
    made.__doc__ = f"``{text}``, of each element."
    function("special", name)(made)


for _name, _text in EXPRESSIONS.items():
    _entered(_name, _text)


def _line(np: Any, x: Any) -> Any:
    """Numbers with a point along at least one axis, as SciPy takes a number."""
    x = floats(np, x)
    return x if x.ndim else np.reshape(x, (1,))


@function("special")
def logsumexp(np: Any, a: Array, axis: Any = None, b: Maybe = None, keepdims: bool = False) -> Any:
    """``log(sum(b * exp(a)))`` along axes, without overflow, -inf of nothing.

    ``b`` are factors, whose sum must not be negative; a factor of 0 leaves its value out, an infinite one too.
    """
    a = _line(np, a)
    a = a if b is None else np.where(b == 0, -math.inf, a)
    top = np.max(a, axis=axis, keepdims=True, initial=-math.inf)
    top = np.where(np.isfinite(top), top, 0)
    terms = np.exp(a - top) if b is None else b * np.exp(a - top)
    found = np.log(np.sum(terms, axis=axis, keepdims=True)) + top
    return found if keepdims else np.squeeze(found, axis=axis)


@function("special")
def softmax(np: Any, x: Array, axis: Any = None) -> Any:
    """``exp(x) / sum(exp(x))`` along axes."""
    line = _line(np, x)
    terms = np.exp(line - np.max(line, axis=axis, keepdims=True))
    return np.reshape(terms / np.sum(terms, axis=axis, keepdims=True), x.shape)


@function("special")
def log_softmax(np: Any, x: Array, axis: Any = None) -> Any:
    """``log(softmax(x))`` along axes, without underflow."""
    line = _line(np, x)
    top = np.max(line, axis=axis, keepdims=True)
    shifted = line - np.where(np.isfinite(top), top, 0)
    return np.reshape(shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True)), x.shape)
