"""The table of functions, and how their arguments are bound."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from callboard.core.ref.naming import ABOUT_ARGUMENTS, renamed

__all__ = ["TABLE", "bound", "function"]

F = TypeVar("F", bound=Callable[..., Any])

TABLE: dict[str, Callable[..., Any]] = {}
"""What makes each function, by its path in SciPy: ``"signal.stft"``."""


def function(section: str, *names: str) -> Callable[[F], F]:
    """Enter a function in the table under its own name, or under these.

    Its first parameter is the NumPy-like namespace of the device; the others are those of SciPy's that are supported.
    """

    def enter(made: F) -> F:
        for name in names or (made.__name__,):
            TABLE[f"{section}.{name}"] = made
        return made

    return enter


def bound(np: Any, path: str) -> Callable[..., Any]:
    """The function of this path for one device.

    Parameters that are annotated as ``Array`` or ``Maybe`` of :mod:`callboard.numpylike.binding` become arrays there.
    """
    made = TABLE[path]
    given = inspect.signature(made)
    signature = given.replace(parameters=list(given.parameters.values())[1:])
    converters = {
        name: one.annotation.__metadata__[0]
        for name, one in signature.parameters.items()
        if hasattr(one.annotation, "__metadata__")
    }
    call = f"scipy.{path}"

    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            values = signature.bind(*args, **kwargs)
        except TypeError as e:
            raise TypeError(f"{call}: {e}; the supported parameters are {signature}") from None
        try:
            for name in converters.keys() & values.arguments.keys():
                values.arguments[name] = converters[name](np, values.arguments[name])
            return made(np, *values.args, **values.kwargs)
        except ABOUT_ARGUMENTS as e:
            renamed(e, call)
            raise

    functools.update_wrapper(called, made)
    called.__name__ = called.__qualname__ = path.rpartition(".")[2]
    called.__signature__ = signature  # type: ignore[attr-defined] # read by inspect
    return called
