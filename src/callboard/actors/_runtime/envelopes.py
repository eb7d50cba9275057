"""The entries of a user lane besides plain messages: asks, ticks of timers, obituaries and the two pills."""

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.actors.errors import ActorStopped, AskTimeout
from callboard.events.concerns import TRACE

if TYPE_CHECKING:
    from callboard.actors._runtime.cell import Cell
    from callboard.actors.loops.port import Port

__all__ = ["Ask", "Carried", "Kill", "Obituary", "Poison", "Tick", "carried", "message_of"]


class Ask(msgspec.Struct, eq=False):
    """A request with the future of its reply.

    ``future`` is None once it is answered, so that nothing keeps the reply alive.

    ``port`` is the asker's, or None when the future is a :class:`concurrent.futures.Future` of a thread without a loop.
    """

    message: Any
    future: Any
    port: Any  # Port | None: the annotation would have to be importable here
    target: Any  # Cell
    sender: Any  # Cell | None
    timeout: float
    deadline: float = 0.0
    trace: str | None = None  # the asker's trace context

    def is_open(self) -> bool:
        """True if the asker still waits."""
        return self.future is not None and not self.future.done()

    def answer(self, value: Any, here: "Port") -> None:
        """Reply; ``here`` is the port of the calling thread. A late reply becomes a dead letter."""
        future = self.future
        if future is None:
            return
        self.future = None
        if self.port is here:
            if not future.done():
                future.set_result(value)
                return
            self.target.dead(value, "late_reply")
        elif self.port is None:
            _settle(self.target, future, value, None, False)
        else:
            self.port.post(_settle, self.target, future, value, None, False)

    def refuse(self, error: BaseException, *, seen: bool = False) -> None:
        """Reply with an error, from any thread.

        ``seen``: it is logged elsewhere, asyncio need not warn if it is not awaited.
        """
        future = self.future
        if future is None:
            return
        self.future = None
        if self.port is None:
            _settle(self.target, future, None, error, seen)
        else:
            self.port.run(_settle, self.target, future, None, error, seen)

    def expire(self) -> None:
        """Fail with :class:`AskTimeout`; on the asker's thread. The request may still be handled later."""
        by = None if self.sender is None else self.sender.path
        self.future.set_exception(AskTimeout.of(self.target.path, self.timeout, type(self.message).__qualname__, by))


def _settle(target: "Cell", future: Any, value: Any, error: BaseException | None, seen: bool) -> None:
    try:
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
            if seen:
                future.exception()
    except (asyncio.InvalidStateError, concurrent.futures.InvalidStateError):
        if not isinstance(error, ActorStopped):
            target.dead(value if error is None else error, "late_reply")


class Carried(msgspec.Struct, eq=False):
    """A message that was told with a trace context, while telemetry is on."""

    message: Any
    trace: str


def carried(message: Any) -> Any:
    """A message that is told, with the sender's trace context if there is one."""
    trace = TRACE.get()
    return message if trace is None else Carried(message, trace)


class Tick(msgspec.Struct, eq=False):
    """A timer fired. Discarded when the timer was cancelled or started again since."""

    key: Any
    generation: int
    message: Any


class Obituary(msgspec.Struct, eq=False):
    """A watched actor stopped.

    ``message`` is delivered to the watcher; ``confirmed`` is set once its watch was found and removed.
    """

    uid: int
    message: Any
    confirmed: bool = False


class Poison(msgspec.Struct, eq=False):
    """Stop when all that was queued before is handled."""


class Kill(msgspec.Struct, eq=False):
    """Fail with ``ActorKilled``."""


def message_of(item: Any) -> Any:
    """The plain message inside an envelope."""
    return item.message if isinstance(item, Ask | Carried | Tick | Obituary) else item
