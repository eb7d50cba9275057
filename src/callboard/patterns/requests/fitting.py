"""What cannot be a model although it can be called: refused when a server is made, not with each request."""

import functools
import inspect
from typing import Any

from callboard.actors import Props
from callboard.device.client.residents.methods import signature_of
from callboard.device.client.residents.ref import ResidentRef
from callboard.device.protocol.residents.actor import ResidentActor

__all__ = ["check_fits", "check_function", "refuse_actors"]


def refuse_actors(function: Any) -> None:
    """Refuse a resident actor, its class, its ``Props`` or its method in the place of a call of it.

    Raises:
        TypeError: It is one; the text names the cure.
    """
    inner = _inner(function)
    if isinstance(inner, ResidentRef):
        cls = inner._actor.cls
        raise TypeError(f"{inner!r} cannot be called: name its method, {_cure(cls, 'ref')}")
    if isinstance(inner, Props):
        cls = inner._factory if isinstance(inner._factory, type) else None
        raise TypeError(f"{inner!r} only describes an actor: start it on a device, {_cure(cls)}")
    if isinstance(inner, type) and issubclass(inner, ResidentActor):
        raise TypeError(f"{inner.__qualname__} is the class of a resident actor: start it on a device, {_cure(inner)}")
    if isinstance(inner, ResidentActor):
        raise TypeError(
            f"{type(inner).__qualname__} is a resident actor that no device has started: {_cure(type(inner))}"
        )
    owner = _owner(inner)
    if owner is not None:
        cure = _cure(owner, name=inner.__name__)
        raise TypeError(f"{inner.__qualname__} is a method of a resident actor without the actor: {cure}")


def check_function(function: Any, count: int) -> None:
    """Check a function that gets ``count`` arguments with each call, and returns its value.

    Raises:
        TypeError: It cannot be called, is a class or a generator function, or cannot take so many arguments.
    """
    refuse_actors(function)
    if isinstance(function, type):
        raise TypeError(
            f"{function.__qualname__} is a class, and would be made anew with each request: pass a function, or an "
            f"object that can be called, {function.__qualname__}(...)"
        )
    check_fits(function, count)


def check_fits(function: Any, count: int) -> None:
    """As :func:`check_function`, for functions that may be classes.

    Raises:
        TypeError: It cannot be called, is a generator function, or cannot take so many arguments.
    """
    refuse_actors(function)
    if not callable(function):
        raise TypeError(f"{function!r} cannot be called")
    inner: Any = function
    arguments: tuple[Any, ...] = (None,) * count
    keywords: dict[str, Any] = {}
    while isinstance(inner, functools.partial):
        inner, arguments, keywords = inner.func, (*inner.args, *arguments), {**inner.keywords, **keywords}
    owner = getattr(inner, "__self__", None)
    if isinstance(owner, ResidentRef) and inner.__name__ == "call":
        if len(arguments) == count:
            raise TypeError(f"{inner.__qualname__} gets no method: {_cure(owner._actor.cls, 'ref')}")
        found = owner._actor.methods.find(arguments[0])
        if found.yields:
            raise TypeError(f"{found.tag} yields its results, and a model returns them: serve it with add_decoder")
        found.check(arguments[1:], keywords)
        return
    if inspect.isgeneratorfunction(inner) or inspect.isgeneratorfunction(getattr(inner, "__call__", None)):  # noqa: B004 -- looked at, not called
        raise TypeError(f"{_name(inner)} yields its results: return them, in a list for example")
    signature = signature_of(function)
    if signature is None:
        return
    try:
        signature.bind(*(None,) * count)
    except TypeError as e:
        raise TypeError(f"{_name(inner)}{signature} cannot take {count} {_plural(count)}: {e}") from None


def _inner(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _owner(function: Any) -> type[ResidentActor] | None:
    """The resident actor's class that a plain function is a method of."""
    found: Any = inspect.getmodule(function) if inspect.isfunction(function) else None
    for part in getattr(function, "__qualname__", "").split(".")[:-1]:
        found = getattr(found, part, None)
    is_method = isinstance(found, type) and issubclass(found, ResidentActor)
    static = is_method and isinstance(inspect.getattr_static(found, function.__name__, None), staticmethod)
    return found if is_method and not static else None


def _cure(cls: type[Any] | None, ref: str | None = None, name: str = "method") -> str:
    """The code to write instead."""
    label = "Model" if cls is None else cls.__qualname__
    started = "" if ref is not None else f"ref = device.actor_of(cb.Props({label}, ...)), "
    return f"{started}and pass functools.partial(ref.call, {label}.{name})"


def _plural(count: int) -> str:
    return "argument" if count == 1 else "arguments"


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__
