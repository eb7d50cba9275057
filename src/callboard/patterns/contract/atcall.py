"""``at_the_call``: methods that take their first argument when they are called, also where their code runs later."""

import functools
import types
from collections.abc import Callable
from typing import Any, TypeVar, cast

from callboard.patterns.contract.taking import taken

__all__ = ["as_given", "at_the_call"]

F = TypeVar("F", bound=Callable[..., Any])


class AtTheCall:
    """A method that gets :func:`taken` of its first argument, such as the item of a request.

    The code of a coroutine or a generator runs when it is awaited or read. By then its caller may have used the buffer
    again, so a copy that the code itself makes would come too late. This takes the argument before.

    It has the attributes of a function, so ``inspect`` tells of it what it tells of the method: that it is a coroutine
    function, its signature and its text.

    Args:
        method: The method.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        functools.update_wrapper(self, method)
        given: Any = method
        self.method = method
        self.__code__ = given.__code__
        self.__defaults__ = given.__defaults__
        self.__kwdefaults__ = given.__kwdefaults__
        self._name = self.__code__.co_varnames[1]

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self if owner is None else types.MethodType(self, owner)

    def __call__(self, owner: Any, *args: Any, **options: Any) -> Any:
        if args:
            return self.method(owner, taken(args[0]), *args[1:], **options)
        if self._name in options:
            options[self._name] = taken(options[self._name])
        return self.method(owner, **options)  # which names the argument that is missing


def at_the_call(method: F) -> F:
    """The method, which takes its first argument when it is called."""
    return cast(F, AtTheCall(method))


def as_given(method: F) -> F:
    """The same bound method without that: its argument is no other code's. Any other function is returned as it is."""
    function = getattr(method, "__func__", None)
    if isinstance(function, AtTheCall):
        return cast(F, types.MethodType(function.method, cast(Any, method).__self__))
    return method
