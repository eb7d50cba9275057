"""Turns on the op line: accepted in the one order with the ops, answered by a verdict like them."""

import sys
import threading
from collections.abc import Callable

from callboard.core.reply import Failure
from callboard.device.line import port as ops
from callboard.device.line.entries import Entry
from callboard.device.line.port import OpPort, request_key
from callboard.device.protocol import Turn

__all__ = ["End", "accept", "on_loop"]


class End:
    """What becomes of a turn, in the application: told of its verdict once."""

    __slots__ = ()

    def _resolve(self, value: bytes) -> None:
        raise NotImplementedError

    def _reject(self, failure: Failure) -> None:
        raise NotImplementedError


def on_loop(port: OpPort, action: Callable[[], None]) -> None:
    """Act on the loop's thread: now if this is it."""
    if threading.get_ident() == port.outbox.thread:
        action()
    else:
        port.loop.call_soon_threadsafe(action)


def accept(port: OpPort, tag: str, end: End, message: Callable[[int], Turn]) -> int:
    """Queue a turn; gives its id.

    Args:
        port: The op line.
        tag: Of the call, for errors.
        end: Told of the verdict.
        message: Makes the message, given the id.

    Raises:
        MailboxFull, DeviceStopped: Nothing has been queued.
    """
    pending = port.unanswered.entries
    if len(pending) >= port._room or port.stopped is not None:
        raise port._no_room()
    turn = next(ops._ids)
    frame = sys._getframe(1)
    while frame.f_globals["__name__"].startswith(ops.OWN) and frame.f_back is not None:
        frame = frame.f_back
    pending[turn] = Entry(lambda: end, tag, request_key.get(), frame.f_code, frame.f_lasti, None)
    port.outbox.add(message(turn))
    if port.unanswered.entries is not pending:  # lost meanwhile: the loop fails the call, if it has not yet
        port.loop.call_soon_threadsafe(port.unanswered.fail_lost, turn, pending)
    port.outbox.remind()
    return turn
