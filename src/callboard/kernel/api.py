"""``Api``: base of the typed methods of ``dev.<library>``."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, overload

from callboard.actors.handles import Handle
from callboard.core.mode import Mode
from callboard.core.op import Op
from callboard.core.ref.suggestions import unknown_name
from callboard.core.ref.tokens import INSTEAD_OF_PICKLING

__all__ = ["Api", "Submit", "as_tuple"]

T = TypeVar("T")


class Submit(Protocol):
    """The device that messages are submitted to.

    The answer comes at once and follows from the class of the message:

    * ``value`` and the returned field was left None: a ``Reply`` of the number;
    * ``returns`` names one field: its ``GpuRef`` (the tuple of them for a ``tuple[InOut, ...]`` field);
    * ``returns`` names several: ``results(*refs)``, a NamedTuple, in the order of ``returns``;
    * ``returns`` names none: ``Reply[None]``.

    Raises:
        ShapeError, DeviceMismatch, GpuRefStale, MailboxFull: At the call; nothing has been sent.
    """

    def __call__(self, op: Op[Any, Any]) -> Any: ...


class Api(Handle, Generic[Mode]):
    """Base of the methods of one library: each makes a message and submits it.

    Refs are ``GpuRef[Mode]`` in the signatures, so that one class serves :mod:`callboard.sync`, too. Subclasses are
    built from a library's messages (:mod:`callboard.kernel.methods`); methods written by hand are in the library's
    ``methods.py``.

    Args:
        submit: Accepts a message and returns its reply.
        put: Copies a host array to the device, for methods that take host arrays.
    """

    instead_of_pickling = INSTEAD_OF_PICKLING

    __slots__ = ("_put", "_submit")

    covers: ClassVar[frozenset[str]] = frozenset()
    """Ops that the methods written by hand submit: no method is built for them."""

    def __init__(self, submit: Submit, put: Callable[[Any], Any]) -> None:
        self._submit = submit
        self._put = put

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            library = type(self).__module__.split(".")[2]
            raise unknown_name(f"dev.{library} has no {name!r}", name, object.__dir__(self), self)


@overload
def as_tuple(name: str, items: None) -> None: ...
@overload
def as_tuple(name: str, items: Iterable[T]) -> tuple[T, ...]: ...
@overload
def as_tuple(name: str, items: Iterable[T] | None) -> tuple[T, ...] | None: ...
def as_tuple(name: str, items: Iterable[T] | None) -> tuple[T, ...] | None:
    """A sequence as messages have it; the message checks its items.

    Raises:
        TypeError: ``items`` is not a sequence; names the parameter.
    """
    if items is None or type(items) is tuple:
        return items
    try:
        return tuple(items)
    except TypeError:
        raise TypeError(f"{name} is {items!r}; pass a sequence, ({items!r},)") from None
