"""The interface of a recorder, which observes every message that an actor handles, and the outcome.

A system without a recorder pays one test per actor, none per message.
"""

import asyncio
import concurrent.futures
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from callboard.actors._runtime.current import CURRENT
from callboard.actors._runtime.envelopes import Ask, message_of
from callboard.actors._runtime.table import COROUTINE
from callboard.actors.errors import MailboxFull
from callboard.actors.mailbox import UserLane

if TYPE_CHECKING:
    from callboard.actors._runtime.cell import Cell
    from callboard.actors.props import Props

__all__ = ["InputKind", "Recorder", "Tap", "TappedLane", "tap_of_actor", "tap_of_caller"]

Handler = Callable[[Any], Any]
InputKind = Literal["tell", "ask", "timer", "watch", "poison", "kill"]
"""The way a message reached its handler."""


class Recorder(Protocol):
    """The callbacks that a system makes for each new actor.

    A recorder with a method ``attach_device(name, backend, uuid)`` is also asked for the
    :class:`log <callboard.device.client.recorded.DeviceLog>` of each device that the system opens.
    """

    def attach(self, path: str, props: "Props[Any]", cell: "Cell", /) -> "Tap | None":
        """The tap of an actor; None: it is not recorded."""
        ...


class Tap(ABC):
    """Counts the inputs of one actor, over its restarts, and reports them and their outputs.

    Args:
        path: The actor's.
        cell: The actor's.

    Attributes:
        count: Inputs so far; the number of the one that is handled.
    """

    def __init__(self, path: str, cell: "Cell") -> None:
        self.path = path
        self.cell = cell
        self.count = 0
        self._origin: tuple[InputKind, int] | None = None

    # -- what a recorder does ------------------------------------------------------------------------------------------

    @abstractmethod
    def received(self, kind: InputKind, message: Any, detail: int) -> None:
        """Input ``count`` is about to be handled; an exception raised here replaces the handler."""

    @abstractmethod
    def replied(self, number: int, value: Any) -> None:
        """The handler of an input returned, or its future completed."""

    @abstractmethod
    def failed(self, number: int, error: BaseException) -> None:
        """It raised."""

    @abstractmethod
    def sent(self, to: str, message: Any) -> None:
        """The handler is about to give another actor a message."""

    @abstractmethod
    def recalled(self, name: str, make: Callable[[], Any], as_type: Any) -> Any:
        """The value of ``make()``; in a replay the one that was recorded."""

    def refused(self, to: str) -> None:
        """The message just sent found a full mailbox."""

    def ended(self) -> None:
        """The actor can take its next message."""

    def lane(self, lane: UserLane) -> UserLane:
        """The mailbox that replaces the actor's own."""
        return TappedLane(lane, self.path)

    # -- called by the runtime -----------------------------------------------------------------------------------------

    def comes_from(self, kind: InputKind, detail: int) -> None:
        """Set the source of the next input, if it was neither told nor asked."""
        self._origin = kind, detail

    def pill(self, kind: InputKind) -> None:
        """An input without a message."""
        self._received(kind, None, 0)
        self.ended()

    def around(self, handler: Handler) -> Handler:
        """The handler, reported."""
        return partial(self._handle, handler)

    def _handle(self, handler: Handler, message: Any) -> Any:
        cell = self.cell
        origin, self._origin = self._origin, None
        kind, detail = origin if origin is not None else ("ask" if type(cell.current) is Ask else "tell", 0)
        number = self._received(kind, message, detail)
        try:
            result = handler(message)
        except BaseException as error:  # of any class: it is passed on
            self.failed(number, error)
            self.ended()
            raise
        result_kind = cell.kinds[type(result)]
        if not result_kind:
            self.replied(number, result)
            self.ended()
            return result
        if result_kind == COROUTINE:
            return self._awaited(number, result)
        done: Any = result if isinstance(result, concurrent.futures.Future) else asyncio.ensure_future(result)
        done.add_done_callback(partial(self._completed, number))
        self.ended()
        return done

    def _received(self, kind: InputKind, message: Any, detail: int) -> int:
        """Report an input; its number. One that is refused is not handled, and its number is the next one's."""
        self.count = number = self.count + 1
        try:
            self.received(kind, message, detail)
        except BaseException:  # of any class: it is passed on
            self.count = number - 1
            raise
        return number

    async def _awaited(self, number: int, result: Coroutine[Any, Any, Any]) -> Any:
        try:
            value = await result
        except BaseException as error:  # likewise
            self.failed(number, error)
            raise
        else:
            self.replied(number, value)
            return value
        finally:
            self.ended()

    def _completed(self, number: int, future: Any) -> None:
        if future.cancelled():
            self.failed(number, asyncio.CancelledError())
        elif (error := future.exception()) is not None:
            self.failed(number, error)
        else:
            self.replied(number, future.result())


def tap_of_actor() -> Tap | None:
    """The tap of the actor that the caller belongs to, also in its background tasks; None elsewhere."""
    sender = CURRENT.get()
    return None if sender is None else sender.tap


def tap_of_caller() -> Tap | None:
    """The tap of the actor in whose handler or hook the caller runs; None elsewhere, its background tasks included."""
    sender = CURRENT.get()
    if sender is None or sender.tap is None:
        return None
    try:
        return sender.tap if asyncio.current_task() is sender.task else None
    except RuntimeError:  # no loop in this thread
        return None


class TappedLane(UserLane):
    """A mailbox that reports each message to the tap of the actor that sends it."""

    __slots__ = ("_inner", "_path")

    def __init__(self, inner: UserLane, path: str) -> None:
        self._inner = inner
        self._path = path
        self.capacity = inner.capacity
        self.items = inner.items
        self.pop = inner.pop
        self.push = self._push

    def _push(self, item: Any) -> None:
        tap = tap_of_caller()
        if tap is not None:
            tap.sent(self._path, message_of(item))
        try:
            self._inner.push(item)
        except MailboxFull:
            if tap is not None:
                tap.refused(self._path)
            raise

    def push_always(self, item: Any) -> None:
        self._inner.push_always(item)

    def push_front(self, items: Iterable[Any]) -> None:
        self._inner.push_front(items)

    def wait_for_room(self, item: Any, admitted: Callable[[bool], object]) -> bool:
        tap = tap_of_caller()
        if tap is not None:
            tap.sent(self._path, message_of(item))
        return self._inner.wait_for_room(item, admitted)

    def give_up(self, admitted: Callable[[bool], object]) -> bool:
        return self._inner.give_up(admitted)

    def close(self) -> None:
        self._inner.close()
