"""``check_hook``: a method that an application has overridden can be called as ours is."""

import inspect
from typing import Any

__all__ = ["check_hook"]


def check_hook(owner: str, value: Any, base: type, method: str) -> None:
    """Check a method before something depends on it.

    Args:
        owner: How the error names the object.
        value: The object.
        base: Our class, whose method of that name has the parameters.

    Raises:
        TypeError: It is no function, a coroutine function, or takes other arguments.
    """
    given = getattr(value, method)
    expected = list(inspect.signature(getattr(base, method)).parameters)[1:]
    called = f"{method}({', '.join(expected)})"
    if not callable(given):
        raise TypeError(f"{owner}.{method} is {given!r:.200}; make it a method, {called}")
    if inspect.iscoroutinefunction(given):
        raise TypeError(f"{owner}.{method} is a coroutine function; make it an ordinary one")
    try:
        signature = inspect.signature(given)
    except ValueError:  # of a builtin
        return
    try:
        signature.bind(*expected)
    except TypeError as e:
        raise TypeError(f"{owner}.{method}{signature} is called as {called}: {e}") from None
