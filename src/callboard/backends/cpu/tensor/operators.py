"""Operators on elements, by NumPy: in f32 for f16 and bf16, else in the arrays' dtype."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from callboard.backends.cpu.blas.scalars import reader
from callboard.core.dtype import DTYPES, DType

__all__ = ["BINARY_UFUNCS", "Array", "Term", "term", "widened"]

Array = np.ndarray[Any, Any]
Term = Callable[[Array, Any], Any]
"""``term(array, factor)``: ``factor * operator(array)``; the number 0, unread, if the factor is 0."""


def widened(dtype: DType) -> "np.dtype[Any]":
    """In which type elements of this one are computed."""
    return DTYPES["f32"].np if dtype.name in ("f16", "bf16") else dtype.np


UNARY_FUNCTIONS: Mapping[str, Callable[[Array], Array]] = {
    "conj": np.conj,
    "neg": np.negative,
    "abs": np.abs,
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "sqrt": np.sqrt,
    "rcp": np.reciprocal,
    "sigmoid": lambda x: np.reciprocal(1 + np.exp(-x)),
    "tanh": np.tanh,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "floor": np.floor,
    "mish": lambda x: x * np.tanh(np.logaddexp(x.dtype.type(0), x)),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "soft_plus": lambda x: np.logaddexp(x.dtype.type(0), x),
    "soft_sign": lambda x: x / (1 + np.abs(x)),
}

BINARY_UFUNCS: Mapping[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def term(dtype: DType, operator: str, factor: Any) -> Term:
    """Return the function that applies operator and factor to an operand.

    Args:
        dtype: The dtype of the operand.
        operator: Operator applied to each element.
        factor: The op's field; a 0-d operand is read when the term is.
    """
    wide, read = widened(dtype), reader(factor)
    apply = None if operator == "identity" else UNARY_FUNCTIONS[operator]
    number = wide.type

    def run(array: Array, factor: Any) -> Any:
        value = read(factor)
        if value == 0:
            return number(0)
        if array.dtype != wide:
            array = array.astype(wide)
        if apply is not None:
            array = apply(array)
        return array if value == 1 else array * number(int(value) if dtype.is_integer else value)

    return run
