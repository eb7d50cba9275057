"""Errors that begin with the call that the user wrote: ``xp.eye: shape …``, not the op behind it, ``memory.empty``."""

import functools
import re
from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast

from callboard.core.errors import DeviceMismatch, ShapeError, UnsupportedOp

__all__ = ["ABOUT_ARGUMENTS", "OPERATORS", "WRITES", "naming", "renamed"]

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

ABOUT_ARGUMENTS = (TypeError, ValueError, IndexError, OverflowError, ShapeError, DeviceMismatch, UnsupportedOp)
"""The errors of calls that are refused."""
OPERATORS = {
    "abs": "abs(x)",
    "add": "x + y",
    "bitwise_and": "x & y",
    "bitwise_invert": "~x",
    "bitwise_left_shift": "x << y",
    "bitwise_or": "x | y",
    "bitwise_right_shift": "x >> y",
    "bitwise_xor": "x ^ y",
    "divide": "x / y",
    "equal": "x == y",
    "floor_divide": "x // y",
    "greater": "x > y",
    "greater_equal": "x >= y",
    "less": "x < y",
    "less_equal": "x <= y",
    "matmul": "x @ y",
    "multiply": "x * y",
    "negative": "-x",
    "not_equal": "x != y",
    "positive": "+x",
    "pow": "x ** y",
    "remainder": "x % y",
    "subtract": "x - y",
}
"""Operators by the function that computes them."""
WRITES = {name: f"{text[:-2]}= y" for name, text in OPERATORS.items() if text.endswith(" y")}
"""In-place operators, likewise."""
_INNER = re.compile(
    r"(?:[A-Za-z_]\w*(?:\.\w+)+|expression '[^']*'|x\[(?:\.\.\.|mask)\](?: = value)?|"
    + "|".join(re.escape(text) for text in sorted({*OPERATORS.values(), *WRITES.values()}, key=len, reverse=True))
    + "): "
)
"""How the errors of ops, of expressions, and of calls inside a function begin."""


def renamed(error: BaseException, call: str) -> BaseException:
    """``error``, whose text begins with the call that was refused.

    An error that was found while the call waited for earlier work keeps the name of that work.

    Args:
        error: Changed in place, so that its class, its attributes and its traceback stay.
        call: As the user wrote it: ``"xp.eye"``, ``"x + y"``.
    """
    if not error.args or type(error.args[0]) is not str:
        return error
    if any(note.startswith("an operand depends on") for note in getattr(error, "__notes__", ())):
        return error
    text: str = error.args[0]
    while (inner := _INNER.match(text)) is not None:
        text = text[inner.end() :]
    error.args = (f"{call}: {text}", *error.args[1:])
    return error


def naming(prefix: str, but: Collection[str] = ()) -> Callable[[C], C]:
    """Decorates a namespace: the errors of each of its functions begin with the function's name.

    Args:
        prefix: The namespace in user code, ``"xp"``.
        but: Functions that see to it themselves, because they are called for a single element, too.
    """

    def decorate(namespace: C) -> C:
        for base in reversed(namespace.__mro__):
            for name, found in vars(base).items():
                inside = isinstance(found, staticmethod)
                function = found.__func__ if inside else found
                if name.startswith("_") or name in but or not callable(function) or isinstance(function, type):
                    continue
                wrapped: Any = _naming(f"{prefix}.{name}", function)
                setattr(namespace, name, staticmethod(wrapped) if inside else wrapped)
        return namespace

    return decorate


def _naming(call: str, function: F) -> F:
    @functools.wraps(function)
    def calls(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ABOUT_ARGUMENTS as e:
            renamed(e, call)
            raise

    return cast(F, calls)
