"""Props: how to make an actor, so that it can be made again after a failure."""

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

from callboard.actors.mailbox import Mailbox

if TYPE_CHECKING:
    from callboard.actors.loops.dispatcher import Dispatcher

__all__ = ["Props"]

P = ParamSpec("P")
A_co = TypeVar("A_co", covariant=True)


class Props(Generic[A_co]):
    """A recipe: ``factory(*args, **kwargs)`` is called for the first instance and again for each restart.

    Immutable: the ``with_*`` methods return a changed copy.

    Args:
        factory: an actor class, or a function that makes an instance.
        args, kwargs: its arguments; checked by type checkers.

    Raises:
        TypeError: ``factory`` cannot be called: an instance was passed in its place.
    """

    __slots__ = ("_args", "_factory", "_kwargs", "dispatcher", "mailbox", "name")

    def __init__(self, factory: Callable[P, A_co], *args: P.args, **kwargs: P.kwargs) -> None:
        if not callable(factory):
            name = type(factory).__qualname__
            raise TypeError(
                f"Props takes a class or a function that makes an actor, but got an existing {name}: "
                f"pass the class and its arguments, Props({name}, ...)"
            )
        self._factory: Callable[..., A_co] = factory
        self._args: tuple[Any, ...] = args
        self._kwargs: dict[str, Any] = dict(kwargs)
        self.mailbox = Mailbox()
        self.dispatcher: Dispatcher | None = None
        self.name: str | None = None

    @staticmethod
    def checked(props: Any) -> "Props[Any]":
        """``props``, if it is one.

        Raises:
            TypeError: An actor class or instance was passed in its place.
        """
        if isinstance(props, Props):
            return props
        name = getattr(props, "__name__", type(props).__name__)
        raise TypeError(f"{name} is not a Props; pass actor_of(Props({name}, ...)), with the constructor's arguments")

    def with_mailbox(self, mailbox: Mailbox) -> Self:
        """Use this kind of mailbox instead of an unbounded one."""
        changed = copy(self)
        changed.mailbox = mailbox
        return changed

    def with_dispatcher(self, dispatcher: "Dispatcher") -> Self:
        """Run there instead of where the parent runs."""
        changed = copy(self)
        changed.dispatcher = dispatcher
        return changed

    def with_name(self, name: str) -> Self:
        """Use this name unless ``actor_of`` is given another."""
        changed = copy(self)
        changed.name = name
        return changed

    def make(self) -> A_co:
        """Call the factory."""
        return self._factory(*self._args, **self._kwargs)

    @property
    def label(self) -> str:
        """The factory's name, for automatic actor names."""
        return getattr(self._factory, "__name__", type(self._factory).__name__)

    def __repr__(self) -> str:
        return f"Props({self.label})"
