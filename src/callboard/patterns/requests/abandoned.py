"""``Run``: one run of a user's function for requests, whose callers may all leave before it ends."""

import asyncio
import time
import weakref
from typing import Any

from callboard.device.client.residents.reply import CallReply
from callboard.patterns.requests.entries import Entry, State

__all__ = ["DOUBT", "DOUBT_AFTER", "Run"]

DOUBT, DOUBT_AFTER = 4.0, 10.0
"""A run may not return if it has taken this many times as long as any before, and this many seconds, and one of its
requests has left."""


class Run:
    """Cancels the calls of resident actors that a function has made, when all requests that need its result have ended.

    A call that runs continues, and its answer, or the loss of its context, still ends it.

    Args:
        entries: The requests.

    Attributes:
        entries: As given.
        began: When it began, in monotonic seconds.
    """

    __slots__ = ("_abandoned", "_doubt", "_replies", "began", "entries")

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.began = time.monotonic()
        self._replies: list[weakref.ref[CallReply[Any]]] = []
        self._abandoned = False
        self._doubt: asyncio.TimerHandle | None = None

    def add(self, reply: CallReply[Any]) -> None:
        """The function has called an actor."""
        if self._abandoned:
            reply.cancel()
            return
        if len(self._replies) > 64:
            self._replies = [each for each in self._replies if (kept := each()) is not None and not kept.done()]
        self._replies.append(weakref.ref(reply))

    def left(self, longest: float) -> None:
        """One of its requests has ended before it.

        Args:
            longest: Seconds of the longest run before; 0: there was none.
        """
        if all(each.state is State.ENDED for each in self.entries):
            self._abandon()
        elif self._doubt is None and longest:
            later = self.began + max(DOUBT_AFTER, DOUBT * longest) - time.monotonic()
            self._doubt = asyncio.get_running_loop().call_later(max(0.0, later), self._cancel)

    def _abandon(self) -> None:
        self._abandoned = True
        self._cancel()

    def _cancel(self) -> None:
        """Cancel the calls so far; later ones run, as long as a request waits for the result."""
        for each in self._replies:
            reply = each()
            if reply is not None:
                reply.cancel()

    def end(self) -> float:
        """It has ended; returns its seconds."""
        if self._doubt is not None:
            self._doubt.cancel()
        return time.monotonic() - self.began
