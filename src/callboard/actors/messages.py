"""Messages: types for tell and ask, and typed replies.

A message type declares *the actor class that handles it* and, for a request, *the type of its answer*::

    class Read(Request["Counter", int]): ...  # ask(Read()) is an int, for Counters only


    class Add(Msg["Counter"]):  # tell only
        amount: int


    class Counter(Actor):
        @Read.handles
        def read(self, m: Read) -> int: ...

Messages are :class:`msgspec.Struct`: frozen, keyword-only, ``array_like``. One metaclass sets that, so no class can
forget it. A message that crosses a process boundary also carries an explicit ``tag`` (``tag="blas.gemm"``): class names
recur across libraries.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, dataclass_transform

import msgspec

__all__ = ["Message", "MessageMeta", "Msg", "Request"]

A_contra = TypeVar("A_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")

_construct = msgspec.StructMeta.__call__


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class MessageMeta(msgspec.StructMeta):
    """Makes every message class frozen, keyword-only and ``array_like``."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, *, tag: str | None = None
    ) -> "MessageMeta":
        cls = super().__new__(mcls, name, bases, namespace, frozen=True, kw_only=True, array_like=True, tag=tag)
        if mcls is MessageMeta and cls.__struct_fields__:
            made: Any = cls
            made.__class__ = _ByKeyword  # whose instances have the same layout
        return cls


class _ByKeyword(MessageMeta):
    """Metaclass of messages with fields: a wrong call's error names the fields.

    Ops do not use it: their constructors are on the hot path.
    """

    if not TYPE_CHECKING:  # checkers take the constructor's parameters from the fields

        def __call__(cls, *args, **fields):  # noqa: N805 -- a metaclass
            if args:
                raise TypeError(f"{cls.__qualname__} takes keywords: {', '.join(cls.__struct_fields__)}")
            return _construct(cls, **fields)  # half the cost of super()


# Repeated here, because both checkers read the bases (Struct with other defaults among them) before the metaclass.
@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Message(msgspec.Struct, metaclass=MessageMeta):
    """Base of all messages; derive from :class:`Msg` or :class:`Request`."""

    if TYPE_CHECKING:  # declares the class keywords for type checkers; at run time the metaclass takes them

        def __init_subclass__(cls, *, tag: str | None = None) -> None: ...


class Msg(Message, Generic[A_contra]):
    """A message without a reply, for actors of type ``A``."""

    @classmethod
    def handles(cls, method: Callable[[S, Self], Any]) -> Callable[[S, Self], Any]:
        """Declare ``method`` as the handler of this message class (looked up once per actor class)."""
        method.__callboard_handles__ = cls  # type: ignore[attr-defined]
        return method


class Request(Message, Generic[A_contra, R_co]):
    """A message for actors of type ``A`` that is answered with an ``R``."""

    @classmethod
    def handles(
        cls, method: Callable[[S, Self], R_co | Awaitable[R_co]]
    ) -> Callable[[S, Self], R_co | Awaitable[R_co]]:
        """Declare ``method`` as the handler; it returns the reply, or an awaitable or future of it."""
        method.__callboard_handles__ = cls  # type: ignore[attr-defined]
        return method
