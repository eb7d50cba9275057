"""Operators on elements: which there are, and which dtypes have them.

The names are cuTENSOR's. Floating-point types support all; complex types have no order, so they support neither
comparisons nor functions of a real argument; integers support operators with integer results.
"""

from typing import Literal

from callboard.core.dtype import DTYPES, DType
from callboard.kernel.checks import AnyOp, refuse

__all__ = ["BINARY", "DTYPES_OF_TENSORS", "UNARY", "Binary", "Conj", "Unary", "check_binary", "check_unary"]

DTYPES_OF_TENSORS = tuple(DTYPES[name] for name in ("f16", "bf16", "f32", "f64", "c64", "c128", "i32", "i64"))

Conj = Literal["identity", "conj"]
Unary = Literal[
    "identity", "conj", "neg", "abs", "relu",
    "sqrt", "rcp", "sigmoid", "tanh", "exp", "log",
    "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh",
    "ceil", "floor", "mish", "swish", "soft_plus", "soft_sign",
]  # fmt: skip
"""``rcp``: 1/x. ``mish``: x·tanh(log(1 + eˣ)). ``swish``: x/(1 + e⁻ˣ). ``soft_plus``: log(1 + eˣ). ``soft_sign``:
x/(1 + \\|x\\|)."""
Binary = Literal["add", "mul", "max", "min"]

UNARY: tuple[str, ...] = Unary.__args__  # type: ignore[attr-defined]
"""The kernels refer to them by position."""
BINARY: tuple[str, ...] = Binary.__args__  # type: ignore[attr-defined]

_COMPLEX = frozenset({"identity", "conj", "neg"})
_WHOLE = _COMPLEX | {"abs", "relu"}


def check_unary(op: AnyOp, dtype: DType, **chosen: str) -> None:
    """The dtype must have these operators on one element."""
    known = _COMPLEX if dtype.is_complex else _WHOLE if dtype.is_integer else UNARY
    for name, operator in chosen.items():
        if operator not in known:
            raise refuse(
                op, f"{name} is {operator!r} and the arrays are {dtype}, which have {', '.join(sorted(known))}"
            )


def check_binary(op: AnyOp, dtype: DType, **chosen: str) -> None:
    """The dtype must have these operators on two elements."""
    for name, operator in chosen.items():
        if dtype.is_complex and operator in ("max", "min"):
            raise refuse(op, f"{name} is {operator!r} and the arrays are {dtype}; complex numbers have no order")
