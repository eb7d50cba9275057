"""Dispatch: from the class of a message to its handler, and from the class of a result to how it is awaited."""

import asyncio
import concurrent.futures
from collections.abc import Callable
from types import CoroutineType, NoneType
from typing import Any, Final

__all__ = ["COMPLETION", "COROUTINE", "PLAIN", "ResultKinds", "bind", "check_handlers", "find", "handler_names"]

PLAIN: Final = 0
COROUTINE: Final = 1
COMPLETION: Final = 2

_cache_name: Final = "__callboard_table__"


def handler_names(cls: type) -> dict[type, str]:
    """Attribute name of the handler of each message class of an actor class, inherited ones included.

    Found once per class. Names, not functions: a subclass that overrides a handler method by name has its own called.
    """
    found: dict[type, str] | None = cls.__dict__.get(_cache_name)
    if found is None:
        found = {}
        for base in reversed(cls.__mro__):
            found |= _own_handlers(base)
        setattr(cls, _cache_name, found)
    return found


def check_handlers(cls: type) -> None:
    """Refuse a class body in which two methods handle one message.

    Raises:
        TypeError: Naming both.
    """
    _own_handlers(cls)


def _own_handlers(cls: type) -> dict[type, str]:
    found: dict[type, str] = {}
    for name, value in tuple(vars(cls).items()):  # another thread may cache something in the class meanwhile
        message = getattr(value, "__callboard_handles__", None)
        if not isinstance(message, type):
            continue
        other = found.setdefault(message, name)
        if vars(cls)[other] is not value:
            raise TypeError(
                f"{cls.__qualname__}: {other} and {name} both handle {message.__qualname__}; a message has one handler"
            )
    return found


def bind(actor: object) -> dict[type, Callable[[Any], Any]]:
    """The table of one instance: message class to bound method."""
    return {message: getattr(actor, name) for message, name in handler_names(type(actor)).items()}


def find(table: dict[type, Callable[[Any], Any]], message: type) -> Callable[[Any], Any] | None:
    """The handler of the nearest base of a message class, for handlers declared on a base message."""
    for base in message.__mro__:
        handler = table.get(base)
        if handler is not None:
            return handler
    return None


class ResultKinds(dict[type, int]):
    """Class of a handler's result to PLAIN, COROUTINE or COMPLETION.

    Kept per system, so that classes can be collected with it.
    """

    def __init__(self) -> None:
        super().__init__({NoneType: PLAIN, CoroutineType: COROUTINE, asyncio.Future: COMPLETION})

    def __missing__(self, cls: type) -> int:
        if issubclass(cls, CoroutineType):
            kind = COROUTINE
        elif issubclass(cls, concurrent.futures.Future) or hasattr(cls, "__await__"):
            kind = COMPLETION
        else:
            kind = PLAIN
        self[cls] = kind
        return kind
