"""``Steps``: the calls of one stream: one that opens the generator, one for each item, one that closes it."""

import contextlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.actors.errors import ActorStopped, ReplyError
from callboard.actors.loops.posting import post
from callboard.core.errors import AccelError, ContextLost, ContextPoisoned, DeviceStopped, MailboxFull
from callboard.core.reply import OpFailure, Reply
from callboard.device.client.line.refusals import marked
from callboard.device.client.residents.calls import Arguments
from callboard.device.client.residents.line import End, accept
from callboard.device.protocol.messages import ActorCall
from callboard.device.protocol.residents.steps import CLOSE, NEXT
from callboard.device.protocol.residents.values import encode

if TYPE_CHECKING:
    from callboard.device.client.line.port import OpPort
    from callboard.device.client.residents.caller import Caller
    from callboard.device.client.residents.methods import Method
    from callboard.device.client.residents.registry import Resident

__all__ = ["PREFETCH", "Steps", "checked_prefetch", "refuse_generator", "refuse_others"]

PREFETCH = 4
"""Items that are requested ahead of the consumer."""

AGAIN = 0.05
"""Seconds after which a stream is closed that could not be closed because the device had no room for the call."""

WITH_THE_ACTOR = (ActorStopped, ContextLost, DeviceStopped)
"""Failures of a call that closes a stream which mean that the generator no longer exists."""


class Steps:
    """Opens a stream, asks for items, and closes it when it is dropped; waits for nothing.

    Args:
        caller: The calls of the device's actors.
        actor: The actor.
        opening: The call that makes the generator.

    Attributes:
        tag: Tag of the calls, for errors.
        opened: The reply of that call.
        asked: Replies of the items that have been requested and not taken, in order.
        over: No more items come.

    Raises:
        TypeError: A device array among the arguments that may be written, or one for an actor in a process of its own.
        Exception: See :meth:`Caller.call`.
    """

    def __init__(self, caller: "Caller", actor: "Resident", opening: Arguments) -> None:
        self.over = True  # nothing to close until it is open
        self.tag = opening.tag
        self._check_refs(caller, opening)
        self._caller = caller
        self._actor = actor
        self._generation = caller.port.generation
        self.asked: deque[Reply[Any]] = deque()
        self.opened: Reply[None] = caller.call(actor, opening, None)
        self._id = self.opened._op
        self._next = Arguments(opening.tag, [NEXT, self._id], (), {}, (), frozenset())
        self._next.given = None
        # Each step uses the arrays, so it is ordered with the ops that write them.
        self._next.refs, self._next.names, self._next.writes = opening.refs, opening.names, opening.writes
        self.over = False

    def _check_refs(self, caller: "Caller", opening: Arguments) -> None:
        if opening.refs and caller.lender is not None:
            raise TypeError(
                f"{opening.tag}: {opening.names[0]} has a GpuRef, which an actor in a process of its own holds only "
                "until the call ends, but a generator continues after it; pass a NumPy array"
            )
        for name, written in zip(opening.names, opening.writes, strict=True):
            if written:
                raise TypeError(
                    f"{opening.tag}: {name} has a GpuRef that the method may write, but some steps of a stream may "
                    "not run; annotate the parameter cb.In if it is only read, or write the array in an ordinary method"
                )

    def ask_first(self, ahead: int) -> None:
        """Request the next awaited item, if that was not done, and others ahead of it.

        Raises:
            MailboxFull: There is no room for a single request; the stream continues.
            ContextPoisoned: The context in which the generator ran was lost; the stream has ended.
            ActorStopped, DeviceStopped: The actor will not run any more; the stream is over.
        """
        try:
            if not self.asked:
                self._ask()
        except MailboxFull:
            raise
        except BaseException:  # Ctrl-C, too
            self.close()
            raise
        self.ask_ahead(ahead)

    def ask_ahead(self, ahead: int) -> None:
        """Request items until ``ahead`` have been requested, as far as there is room: they take no call's place."""
        actor = self._actor
        with contextlib.suppress(AccelError, ActorStopped):  # raised when that item is waited for
            while len(self.asked) < ahead and len(actor.flying) < actor.limit and not self.over:
                self._ask()

    @property
    def one_at_a_time(self) -> bool:
        """True if the actor takes one call at a time: no item can be requested before the stream is open."""
        return self._actor.limit == 1

    def _ask(self) -> None:
        port = self._caller.port
        if port.generation != self._generation and port.stopped is None:
            raise self._lost()
        self.asked.append(self._caller.call(self._actor, self._next, None))

    def take(self, value: Any) -> tuple[Any, ...]:
        """Return the first reply of :attr:`asked`: a tuple of one item, or an empty one at the end.

        Raises:
            ContextPoisoned: The host does not have the stream, because its context is another one.
            ReplyError: The host's answer is malformed.
        """
        self.asked.popleft()
        if value is None:
            raise self._lost()
        if type(value) is not tuple or len(value) > 1:
            raise ReplyError(f"{self.tag}: the host's answer is neither an item nor the end of the stream")
        if not value:
            self.over = True
            self._drop()
            self._let_go()
        return value

    def _let_go(self) -> None:
        """The generator has ended and no longer reads its arrays."""
        self._next.refs, self._next.names, self._next.writes = [], [], []

    def _lost(self) -> ContextPoisoned:
        port = self._caller.port
        error = ContextPoisoned(f"{self.tag}: the context in which the generator ran was lost; open the stream again")
        return marked(error, port.name, self._generation, self.tag)

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self) -> Reply[None] | None:
        """Drop the requested items, and close the generator; None if there is nothing to close.

        Safe in a garbage collection.
        """
        if self.over:
            return None
        self.over = True
        self._drop()
        port, tag, stream, actor = self._caller.port, self.tag, self._id, self._actor
        if port.generation != self._generation or port.stopped is not None or actor.stopped is not None:
            return None
        reply: Reply[None] = Reply(port)
        body = encode([[CLOSE, stream], [], {}], tag)
        refs = self._next.refs
        if any(ref._why_stale() is not None for ref in refs):
            refs = []  # the generator must not use them any more
        places = [n for ref in refs for n in (ref.allocation.id, ref.offset)]
        layouts = [ref.layout.raw for ref in refs]
        writes = [False] * len(refs)
        _post(port, tag, _Closing(reply), lambda call: ActorCall(call, actor.id, body, places, layouts, writes, []))
        self._let_go()
        return reply

    def __del__(self) -> None:
        if not self.over:
            self.close()

    def _drop(self) -> None:
        """These items are not wanted any more: do not make them, and report no failure."""
        asked, self.asked = self.asked, deque()
        flying = self._caller.flying
        unsent = []
        for reply in asked:
            end = flying.get(reply._op)
            if end is not None:
                end.reply = _unwanted
                unsent.append(reply)
            if reply.done():
                reply.exception()  # it has been seen
        if unsent:
            port = self._caller.port
            _soon(port, lambda: [reply.cancel() for reply in unsent])


class _Unwanted:
    """Takes the place of a reply that was dropped."""

    def done(self) -> bool:
        return False

    def _resolve(self, value: Any = None) -> None: ...

    def _reject(self, failure: OpFailure) -> None:
        failure.cause.seen = True


_UNWANTED: Any = _Unwanted()


def _unwanted() -> Any:
    return _UNWANTED


class _Closing(End):
    """The end of a call that closes a stream."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Reply[None]) -> None:
        self._reply = reply

    def _answer(self, value: Any) -> None:
        self._reply._resolve(None)

    def _reject(self, failure: OpFailure) -> None:
        if isinstance(failure.cause.error(failure.op), WITH_THE_ACTOR):
            failure.cause.seen = True
            self._reply._resolve(None)
        else:
            self._reply._reject(failure)


def _post(port: "OpPort", tag: str, end: _Closing, message: Callable[[int], ActorCall]) -> None:
    try:
        accept(port, tag, end, message, later=True)
    except MailboxFull:
        _soon(port, lambda: port.loop.call_later(AGAIN, _post, port, tag, end, message))
    except (DeviceStopped, RuntimeError):  # the device is closed, or its loop
        end._answer(None)


def _soon(port: "OpPort", action: Callable[[], Any]) -> None:
    post(port.loop, action)  # else the device is closed


def checked_prefetch(items: int) -> int:
    """Check the number of items to request ahead.

    Raises:
        ValueError: It is negative.
    """
    if items < 0:
        raise ValueError(f"items must not be negative, but is {items}")
    return items


# -- which methods -----------------------------------------------------------------------------------------------------


def refuse_generator(method: "Method") -> None:
    """Refuse to call a generator.

    Raises:
        TypeError: It is one.
    """
    if method.yields:
        raise TypeError(
            f"{method.tag} yields its results; use `stream` in place of `call`, and take them with a for loop"
        )


def refuse_others(method: "Method") -> None:
    """Refuse a method that is no generator; of functions of an unknown kind the host checks the result.

    Raises:
        TypeError: It is a coroutine function.
    """
    if method.awaits:
        raise TypeError(
            f"{method.tag} is async and returns one result; use `call` in place of `stream`, or yield the items"
        )
