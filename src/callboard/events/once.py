"""``once``: attributes that are made on first use."""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

__all__ = ["once"]

T = TypeVar("T")


class once(Generic[T]):  # noqa: N801 -- a decorator
    """A method without parameters whose result becomes the attribute of its name; all threads get the same one.

    Threads that use it first at the same time may each make a value, of which one is kept.
    ``functools.cached_property`` gives them different ones from Python 3.12 on.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self.func = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        return instance.__dict__.setdefault(self._name, self.func(instance))
