"""Operators of reductions and scans: NumPy's, or made of a text."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.core.errors import LibraryError
from callboard.core.op import Op

__all__ = ["COMPARISONS", "Array", "Joined", "compiled", "identity", "joined", "no_text"]

Array = np.ndarray[Any, Any]

UFUNCS: dict[str, np.ufunc] = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}
COMPARISONS: dict[str, np.ufunc] = {
    "less": np.less,
    "less_equal": np.less_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}


def compiled(op: "Op[Any, Any]", text: str, *names: str) -> Callable[..., Any]:
    """The function of these names that a caller's expression stands for.

    Raises:
        LibraryError: It is not an expression of Python's.
    """
    tag = type(op).__struct_config__.tag
    try:
        code = compile(f"lambda {', '.join(names)}: ({text}\n)", f"<python of {tag}>", "eval")
    except (SyntaxError, ValueError) as e:
        raise LibraryError(f"{tag}: python is {text!r}, which is not an expression: {e}", "python") from e
    # The text is the program's own, as its functions are; it is sent to its own host only.
    made: Callable[..., Any] = eval(code, {"np": np})
    return made


def identity(operation: str, dtype: "np.dtype[Any]") -> Any:
    """The identity element of an operation."""
    if operation in ("sum", "product"):
        return dtype.type(operation == "product")
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return dtype.type(limits.max if operation == "min" else limits.min)
    return dtype.type(np.inf if operation == "min" else -np.inf)


class Joined:
    """A custom operator with the methods of a ufunc that are needed, along the last axis.

    Args:
        function: Function of two arrays.
    """

    def __init__(self, function: Callable[[Array, Array], Array]) -> None:
        self._function = function

    def __call__(self, a: Any, b: Any) -> Any:
        a, b = np.broadcast_arrays(a, b)
        return np.broadcast_to(np.asarray(self._function(a, b)), a.shape).astype(b.dtype, copy=False)

    def reduce(self, x: Array) -> Array:
        """Neighbours are joined until one is left, in order; of at least one."""
        while x.shape[-1] > 1:
            pairs = self(x[..., 0:-1:2], x[..., 1::2])
            x = np.concatenate([pairs, x[..., -1:]], -1) if x.shape[-1] % 2 else pairs
        return x[..., 0]

    def accumulate(self, x: Array) -> Array:
        """Running results, by doubling steps (Hillis and Steele)."""
        step = 1
        while step < x.shape[-1]:
            x = np.concatenate([x[..., :step], self(x[..., :-step], x[..., step:])], -1)
            step *= 2
        return x


def joined(op: Any) -> Any:
    """The operator of a message: a ufunc, or a function like one along the last axis."""
    if op.operation != "custom":
        return UFUNCS[op.operation]
    return Joined(compiled(op, op.python, "a", "b"))


def no_text(op: Any) -> str | None:
    """A custom operator has to have a body for here."""
    if op.cuda is not None and op.python is None:
        return "its operator has a body in CUDA C++ only; pass python, an expression, too"
    return None


def number(value: Any, dtype: "np.dtype[Any]") -> Any:
    """A number in a dtype; integers wrap around."""
    return np.array(value).astype(dtype)[()]
