"""The root of the error tree, and the errors of the actor runtime.

Every error of the project derives from :class:`AccelError`, so ``except AccelError`` catches all of them and nothing
else. All of them pickle with their attributes, because they cross process boundaries.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Self

__all__ = [
    "AccelError",
    "ActorInitError",
    "ActorKilled",
    "ActorStopped",
    "AskTimeout",
    "DeathPact",
    "HandlerCancelled",
    "MailboxFull",
    "NameInUse",
    "ReplyError",
    "SelfAsk",
    "ShutdownError",
    "StashError",
    "StashOverflow",
    "UnhandledMessage",
    "WatchConflict",
    "WrongThread",
    "printable",
    "returned",
]


HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by a class statement


def _rebuild(cls: type["AccelError"], args: tuple[Any, ...], state: dict[str, Any]) -> "AccelError":
    """Make an error again without calling ``__init__``: a subclass may have any signature."""
    builtin: Any = cls
    while builtin.__flags__ & HEAP_TYPE:
        builtin = builtin.__base__  # whose memory layout the class has; cls.__new__ may be that of another base
    error: AccelError = builtin.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class AccelError(Exception):
    """Base of every error of this project.

    Attributes:
        device: the device it happened on, or None.
        generation: the generation of that device's context, or None.
        op: the operation that failed, or None.
        retryable: whether the same call may succeed when it is repeated: a property of the class, except that a
            ``MailboxFull`` of what can never fit is not retryable.
    """

    device: Any = None
    generation: int | None = None
    op: str | None = None
    retryable: bool = False

    def __init__(self, *args: object, device: Any = None, generation: int | None = None, op: str | None = None) -> None:
        super().__init__(*args)
        if device is not None:
            self.device = device
        if generation is not None:
            self.generation = generation
        if op is not None:
            self.op = op

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))


class ReplyError(AccelError):
    """A negative reply: raised only at the asker. The actor continues, and its supervisor is not notified."""


class UnhandledMessage(ReplyError):
    """The target has no handler for this class of message."""


class MailboxFull(AccelError):
    """A bounded mailbox had no room. Nothing was queued; repeat later or use ``offer``.

    Attributes:
        more: Waits until there may be room; False if nothing that is under way will make any. None: it is not known.
            To be awaited on the loop of the object that had no room.
    """

    retryable = True
    more: "Callable[[], Coroutine[Any, Any, bool]] | None" = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, {name: value for name, value in vars(self).items() if name != "more"})


class ActorStopped(AccelError):
    """The target is stopped, or stopped before it answered."""


class AskTimeout(AccelError, TimeoutError):
    """No reply came within the timeout.

    Attributes:
        target: path of the actor that was asked.
        timeout: seconds that were waited.
        message_type: name of the request's class.
        sender: path of the asking actor, or None when the asker is not an actor.
    """

    target: str | None = None
    timeout: float | None = None
    message_type: str | None = None
    sender: str | None = None
    retryable = True

    @classmethod
    def of(cls, target: str, timeout: float, message_type: str, sender: str | None) -> Self:
        """Make one with its text."""
        by = f" by {sender}" if sender else ""
        error = cls(f"{target} did not answer {message_type} within {timeout:g} s (asked{by})")
        error.target, error.timeout, error.message_type, error.sender = target, timeout, message_type, sender
        return error


class SelfAsk(AccelError, RuntimeError):
    """An actor asked itself inside its handler, which could only end in the timeout."""


class WrongThread(AccelError, RuntimeError):
    """An actor's own methods were used from another thread or loop."""


class NameInUse(AccelError, ValueError):
    """A living sibling has this name."""


class ActorInitError(AccelError):
    """The constructor, ``pre_start`` or ``post_restart`` failed; ``__cause__`` is the original error."""


class ActorKilled(AccelError):
    """``ref.kill()`` was called."""


class DeathPact(AccelError):
    """A watched actor stopped and this actor does not handle ``Terminated``."""


class HandlerCancelled(AccelError):
    """Something inside a handler was cancelled, though the actor was not stopped."""


class StashError(AccelError, RuntimeError):
    """The current message was stashed or forwarded already, or there is no current message."""


class StashOverflow(StashError):
    """The stash has reached its capacity."""


class WatchConflict(AccelError, ValueError):
    """The actor is already watched with another message; ``unwatch`` it first."""


class ShutdownError(AccelError):
    """A shutdown phase without ``recover`` failed or ran out of time."""


def returned(hook: str, value: object, allowed: str) -> TypeError:
    """The error for a hook that returned ``value``, and must return what is ``allowed``.

    A coroutine is closed, as it is not awaited.
    """
    if isinstance(value, Coroutine):
        value.close()
    return TypeError(f"{hook} returned {value!r:.200}; it must return {allowed}")


def printable(error: BaseException, form: Callable[[object], str] = str) -> str:
    """The text of an exception of a user, whose ``__str__`` and ``__repr__`` may raise; ``form`` is one of these."""
    try:
        return form(error)
    except Exception as e:  # of the user's method
        return f"<{type(error).__name__}, whose text raises {type(e).__name__}>"
