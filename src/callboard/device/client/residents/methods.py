"""Resolution of a call to a method of a resident actor, and the check of its arguments."""

import contextlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from callboard.device.client.residents.calls import Arguments, read_only
from callboard.device.protocol.residents.actor import ResidentActor
from callboard.events.concerns import TRACE
from callboard.events.ring import EVENTS

__all__ = ["Method", "Methods"]

CURE = "pass one of its class, as in call(Embedder.embed, ...)"

MAX_KNOWN = 1024

WITHOUT_INSTANCE = {
    staticmethod: "a static method, which has no use for the actor",
    classmethod: "a class method, which knows no instance",
}


class Method:
    """A method that can be called.

    Args:
        actor: Name of the actor.
        name: Name of the method.
        given: The method as the caller passed it.
        function: The attribute of that name on the actor's class; if only the host has the class, the method as the
            caller passed it.

    Attributes:
        tag: ``"actor.method"``, for errors.
        yields: True if it is known to be a generator.
        awaits: True if it is known to be a coroutine function.
        signature: Signature of the method, ``self`` included; None if Python cannot determine it (some compiled
            methods).
        positional: Names of the parameters that take positional arguments, without ``self``.
        frozen: Names of the parameters whose device arrays are only read.
    """

    def __init__(self, actor: str, name: str, given: Any, function: Callable[..., Any]) -> None:
        self.tag = f"{actor}.{name}"
        self.name = name
        self.given = given
        self.yields = inspect.isgeneratorfunction(given) or inspect.isasyncgenfunction(given)
        self.awaits = inspect.iscoroutinefunction(given)
        self.signature = signature_of(function)
        self.positional = _positional(self.signature)
        self._counts = _counts(self.signature)
        self.frozen = read_only.__wrapped__(function)  # not its cache, for which some callables have no hash
        self._none: Arguments | None = None

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        """The arguments of a call, checked.

        Raises:
            TypeError, ValueError: See :meth:`check` and :class:`Arguments`.
        """
        if args or kwargs:
            self.check(args, kwargs)
            return Arguments(self.tag, self.name, args, kwargs, self.positional, self.frozen)
        traced = EVENTS.ring is not None and TRACE.get() is not None  # its body is that of one request
        if self._none is not None and not traced:
            return self._none
        self.check((), {})
        made = Arguments(self.tag, self.name, (), {}, (), frozenset())
        if not traced:
            self._none = made
        return made

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Check that the arguments fit the signature.

        Raises:
            TypeError: They do not: one too many, one too few, an unknown name. It shows the signature.
        """
        if self.signature is None or (len(args) in self._counts and not kwargs):
            return
        try:
            self.signature.bind(None, *args, **kwargs)
        except TypeError as e:
            raise TypeError(f"{self.tag}{self.signature}: {e}") from None


class Methods:
    """The methods of one actor that have been called.

    Args:
        actor: The actor's name, for errors.
        owner: The actor's class; None if a function creates the actor, in which case only the host has the class.
    """

    def __init__(self, actor: str, owner: type[Any] | None) -> None:
        self._actor = actor
        self._owner = owner
        self._known: dict[int, Method] = {}  # by id of the passed object, which may not be hashable

    def find(self, method: Any) -> Method:
        """The method that a call means by ``method``: the one of that name in the actor's class.

        Raises:
            TypeError: It is not a method of the actor, or it is a static or class method.
        """
        found = self._known.get(id(method))
        if found is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            found = _method_of(self._actor, self._owner, method)
            self._known[id(method)] = found  # which keeps it: no other object gets that id
        return found


def _method_of(actor: str, owner: type[Any] | None, method: Any) -> Method:
    name = getattr(method, "__name__", None)
    if not callable(method) or isinstance(method, type) or not isinstance(name, str) or name == "<lambda>":
        raise TypeError(f"{actor}: {method!r} is not a method; {CURE}")
    found = _defined(owner or _named_owner(method), name)
    for kind, what in WITHOUT_INSTANCE.items():
        if isinstance(found, kind):
            raise TypeError(
                f"{actor}.{name} is {what}; call it directly, or write a plain method that calls it: "
                f"def {name}_here(self, ...)"
            )
    if inspect.ismethod(method):
        raise TypeError(f"{actor}: {method!r} is bound to an object; {CURE}")
    if owner is None:
        if not inspect.isfunction(inspect.unwrap(method)):
            raise TypeError(f"{actor}: {method!r} is not a method; {CURE}")
        found = method
    elif not callable(found) or isinstance(found, type):
        raise TypeError(f"{actor}: {owner.__qualname__} has no method {name}{_hint(method)}")
    return Method(actor, name, method, found)


def _defined(owner: type[Any] | None, name: str) -> Any:
    return None if owner is None else inspect.getattr_static(owner, name, None)


def _named_owner(method: Any) -> type[Any] | None:
    """Return the resident actor's class that the method's qualified name refers to; None if it cannot be found."""
    found: Any = sys.modules.get(getattr(method, "__module__", None) or "")
    for part in getattr(method, "__qualname__", "").split(".")[:-1]:
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, ResidentActor) else None


def _hint(method: Any) -> str:
    """A hint why a method that the class appears to have may be missing there."""
    if "<locals>" in getattr(method, "__qualname__", ""):
        return "; if a decorator made it, use functools.wraps there, which keeps the method's name"
    return ""


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The parameters that a call must fit.

    A decorator's wrapper that takes ``*args, **kwargs`` has those of the function that it wraps (``functools.wraps``);
    one that names its parameters has its own.
    """
    while True:
        wrapped = getattr(function, "__wrapped__", None)
        signature: inspect.Signature | None = None
        with contextlib.suppress(TypeError, ValueError):  # compiled, as the wrapper of functools.cache is
            signature = inspect.signature(function, follow_wrapped=False)
        if wrapped is None or (signature is not None and not _takes_all(signature)):
            return signature
        function = wrapped


def _positional(signature: inspect.Signature | None) -> Sequence[str]:
    if signature is None:
        return ()
    kinds = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    return [p.name for p in signature.parameters.values() if p.kind in kinds][1:]


def _counts(signature: inspect.Signature | None) -> range:
    """Positional argument counts that are valid without further checks."""
    parameters = [] if signature is None else list(signature.parameters.values())[1:]
    if any(p.kind is p.VAR_POSITIONAL or (p.kind is p.KEYWORD_ONLY and p.default is p.empty) for p in parameters):
        return range(0)
    taken = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return range(sum(p.default is p.empty for p in taken), len(taken) + 1)


def _takes_all(signature: inspect.Signature) -> bool:
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    return {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds
