"""Expressions of Python numbers only, computed once per call and not per element.

Functions that are exact on bools and ints use Python's arithmetic; all others use NumPy in ``f64`` or ``c128``.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import IntegerRangeError, ShapeError
from callboard.kernel.elementwise.functions import FUNCTIONS
from callboard.kernel.elementwise.promotion import WEAK_KINDS, Weak, range_of
from callboard.kernel.elementwise.tree import Apply, Literal, Name, Number, Tree

__all__ = ["as_number", "evaluate", "kind_of"]

_EXACT: Mapping[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "negative": operator.neg,
    "positive": operator.pos,
    "abs": abs,
    "square": lambda x: x * x,
    "maximum": max,
    "minimum": min,
    "fmax": max,
    "fmin": min,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "bitwise_left_shift": lambda x, n: x << n if 0 <= n < 64 else 0,
    "bitwise_right_shift": lambda x, n: x >> n if n >= 0 else 0,
    "floor_divide": lambda x, y: x // y if y else 0,
    "remainder": lambda x, y: x % y if y else 0,
    "pow": lambda x, n: x**n if 0 <= n <= 64 else float(x) ** n if x else np.inf if n < 0 else 0,
    **dict.fromkeys(("floor", "ceil", "trunc", "round", "real", "conj"), lambda x: x),
}
"""Functions of bools and ints."""
_LOGIC: Mapping[str, Callable[..., Any]] = {
    "logical_and": lambda x, y: bool(x) and bool(y),
    "logical_or": lambda x, y: bool(x) or bool(y),
    "logical_xor": lambda x, y: bool(x) is not bool(y),
    "logical_not": operator.not_,
    "where": lambda c, x, y: x if c else y,
    "complex": complex,
}
_CONVERSIONS: Mapping[str, Callable[..., Any]] = {
    "bool": bool,
    "int": int,
    "uint": int,
    "float": float,
    "complex": complex,
}


def kind_of(value: Number) -> Weak:
    """The kind of a number."""
    return WEAK_KINDS[(bool, int, float, complex).index(type(value))]


def evaluate(tree: Tree, numbers: Mapping[str, Number]) -> Number:
    """Evaluate a tree of numbers.

    Raises:
        ShapeError: These numbers have no such function.
    """
    if isinstance(tree, Literal):
        return tree.value
    if isinstance(tree, Name):
        return numbers[tree.name]
    arguments = [evaluate(one, numbers) for one in tree.arguments]
    try:
        return _applied(tree.function, arguments)
    except (TypeError, ValueError, OverflowError) as e:
        shown = ", ".join(map(repr, arguments))
        raise ShapeError(f"{tree.function}({shown}) of numbers: {e}") from None


def _applied(name: str, arguments: list[Number]) -> Number:
    if name.startswith("cast:"):
        return _CONVERSIONS[DTYPES[name[5:]].kind](*arguments)  # type: ignore[no-any-return]
    if name in _LOGIC:
        return _LOGIC[name](*arguments)  # type: ignore[no-any-return]
    whole = [x for x in arguments if isinstance(x, int)]
    if name in _EXACT and len(whole) == len(arguments):
        return _EXACT[name](*(whole if name.startswith("bitwise_") else map(int, whole)))  # type: ignore[no-any-return]
    wide: Any = np.complex128 if any(isinstance(x, complex) for x in arguments) else np.float64
    with np.errstate(all="ignore"):
        found = _function(name)(*(wide(x) for x in arguments))
    return found.item()  # type: ignore[no-any-return]


def _function(name: str) -> Callable[..., Any]:
    path = FUNCTIONS[name].numpy
    if path == "rsqrt":
        return lambda x: 1 / np.sqrt(x)
    if path.startswith("special."):
        import scipy.special

        return getattr(scipy.special, path.partition(".")[2])  # type: ignore[no-any-return]
    return getattr(np, path)  # type: ignore[no-any-return]


def as_number(value: Number, dtype: DType, what: str) -> Number:
    """The number as an element of this dtype takes it.

    Raises:
        ShapeError: It is not a value of an integer dtype.
    """
    if dtype.kind == "bool":
        return bool(value)
    if dtype.is_integer:
        whole = int(value.real)
        if whole not in range_of(dtype):
            limits = range_of(dtype)
            raise IntegerRangeError(
                f"{what} is {whole}, and with {dtype} it must lie in [{limits[0]}, {limits[-1]}]; "
                "convert the array first, by x.astype('i64'), in an expression by i64(x)"
            )
        return whole
    return complex(value) if dtype.is_complex else float(value.real)


def names_in(tree: Tree) -> frozenset[str]:
    """The names that a tree reads."""
    if isinstance(tree, Apply):
        return frozenset().union(*map(names_in, tree.arguments))
    return frozenset([tree.name]) if isinstance(tree, Name) else frozenset()
