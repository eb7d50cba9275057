"""Refs that recognise the methods of their actor's class, so that ``ref.add(5)`` can name the correct call.

There is one subclass of the ref per class of actors: a ``__getattr__`` would make ``tell`` a third slower.
"""

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["ref_class"]

R = TypeVar("R")

Cure = Callable[[type[Any], str], str]
"""Function of the actor's class and the method's name that returns the recommended call."""


_known: "weakref.WeakKeyDictionary[type[Any], dict[type[Any], type[Any]]]" = weakref.WeakKeyDictionary()


class _Method:
    """A method of the actor, looked up on its ref."""

    def __init__(self, actor: type[Any], name: str, cure: Cure) -> None:
        self._what = actor.__qualname__, name  # not the class, which could not be collected then
        self._cure = cure(actor, name)

    def __get__(self, ref: object, owner: type[Any]) -> "_Method":
        if ref is None:
            return self
        cls, name = self._what
        raise AttributeError(
            f"{name} is a method of the actor ({cls}), and this is its {owner.__name__}: use {self._cure}",
            name=name,
            obj=ref,
        )


def ref_class(base: type[R], actor: Any, cure: Cure) -> type[R]:
    """The subclass of ``base`` for actors of the class ``actor``; ``base`` itself if that is not a class."""
    if not isinstance(actor, type):
        return base
    known: dict[type[Any], type[Any]] = _known.setdefault(actor, {})
    found: Any = known.get(base)
    if found is None:
        missing = [
            n for n in dir(actor) if not n.startswith("_") and callable(getattr(actor, n)) and not hasattr(base, n)
        ]
        methods: dict[str, Any] = {name: _Method(actor, name, cure) for name in missing}
        methods |= {"__slots__": (), "__module__": base.__module__, "__qualname__": base.__qualname__}
        found = known[base] = type(base.__name__, (base,), methods)
    refs: type[R] = found
    return refs
