"""Calls on the op line: accepted in the one order with the ops, answered by a completion like them."""

import threading
from collections.abc import Callable
from typing import Any, Self

from callboard.actors.loops.posting import post
from callboard.core.reply import OpFailure
from callboard.device.client.line.entries import Entry, origin_of
from callboard.device.client.line.port import OpPort
from callboard.device.protocol.messages import ActorCall

__all__ = ["End", "accept", "on_loop"]


class End:
    """The application side of a call, notified of its completion once.

    It is its own :attr:`Entry.reply <callboard.device.client.line.entries.Entry.reply>`.
    """

    __slots__ = ()

    def __call__(self) -> Self:
        return self

    def _answer(self, value: Any) -> None:
        raise NotImplementedError

    def _reject(self, failure: OpFailure) -> None:
        raise NotImplementedError


def on_loop(port: OpPort, action: Callable[[], None]) -> None:
    """Act on the loop's thread: now if this is it; never if the loop is closed."""
    if threading.get_ident() == port.outbox.thread:
        action()
    else:
        post(port.loop, action)


def accept(
    port: OpPort, tag: str, end: End, message: Callable[[int], ActorCall], *, later: bool = False, further: bool = False
) -> int:
    """Queue a call and return its id.

    Args:
        port: The op line.
        tag: Tag of the call, for errors.
        end: Notified of the completion.
        message: Makes the message, given the id.
        later: Send nothing now, because this may be a garbage collection in the middle of a send.
        further: It belongs to a call that has been given room.

    Raises:
        MailboxFull, DeviceStopped: Raised before anything is queued.
    """
    pending = port.check_room(further)
    call = port.mint()
    port.enter(message(call), Entry(end, tag, *origin_of(2), None), pending, sent=False, now=not later)
    return call
