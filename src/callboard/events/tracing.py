"""Which request causes what: W3C trace contexts, which flow with the work in :data:`TRACE <.concerns.TRACE>`.

A context is the text of a ``traceparent``; :data:`OUT` stands for a request that was not sampled and came with none.
They flow while there is a ring, and new spans begin while there is a :class:`Sampler`.
"""

import math
import random
import sys
from collections.abc import Sequence
from os import urandom
from typing import Final, Protocol

from callboard.events.concerns import REQUEST_ID, TRACE
from callboard.events.ring import EVENTS, now

__all__ = ["NOBODY", "OUT", "Cause", "Sampler", "caused_by", "is_sampled", "traceparent"]

OUT: Final = ""
"""The context of a request that is not sampled: servers that it calls do not decide again."""

Cause = tuple[str | None, tuple[str, ...]]
"""The context of what is done for some requests, and those of the requests that are sampled."""

NOBODY: Final[Cause] = None, ()

_NOT: Final = frozenset("02468ace")
"""Last digits of the flags of a context that is not sampled."""


def is_sampled(context: str | None) -> bool:
    """True if a span is recorded for what has this context."""
    return bool(context) and context[-1] not in _NOT  # type: ignore[index]


def traceparent() -> str | None:
    """The W3C ``traceparent`` to pass on, as a header, with what the running code asks of other programs.

    It names the request that the code answers; in a function that computes a batch, the batch. It is known in handlers
    of HTTP requests, functions of servers, handlers of actors, and methods of resident actors.

    Returns:
        None if there is no such request, it is not sampled, or telemetry is off.
    """
    return TRACE.get() or None


class Traced(Protocol):
    """A request.

    Attributes:
        trace: Its context.
        request_id: Id of the HTTP request that it belongs to.
    """

    trace: str | None
    request_id: str | None


class Sampler:
    """Decides which requests get a span, when they arrive.

    Args:
        rate: Share of the requests without a ``traceparent`` that are sampled.
        most: Most spans a second.

    Attributes:
        skipped: Number of requests that would have been sampled beyond ``most``.
    """

    __slots__ = ("_in_second", "_left_out", "_most", "_random", "_rate", "_second", "skipped")

    def __init__(self, rate: float, most: int) -> None:
        self._rate = rate
        self._most = most
        self._random = random.Random()  # a program's own seed must not choose the samples, nor they its numbers
        self._left_out = self._draw()  # requests before the next one that is sampled
        self._second = self._in_second = 0
        self.skipped = 0

    def begin(self, parent: str | None) -> str:
        """The context of a new request.

        Args:
            parent: The context that it came with; its flag decides.
        """
        if parent is None:
            if self._left_out:
                self._left_out -= 1
                return OUT
            self._left_out = self._draw()
            if not self._room():
                return OUT
            ids = urandom(24).hex()
            return f"00-{ids[:32]}-{ids[32:]}-01"
        if not parent or parent[-1] in _NOT:
            return parent
        return _below(parent) if self._room() else f"{parent[:53]}00"

    def _draw(self) -> int:
        """How many requests are left out before one is sampled, if each is with the same probability: geometric."""
        if not 1e-9 < self._rate < 1:
            return 0 if self._rate >= 1 else sys.maxsize
        return int(math.log1p(-self._random.random()) / math.log1p(-self._rate))

    def _room(self) -> bool:
        second = now() // 1_000_000_000
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        if self._in_second <= self._most:
            return True
        self.skipped += 1
        return False


def _below(parent: str) -> str:
    return f"00-{parent[3:36]}{urandom(8).hex()}-01"


def caused_by(entries: "Sequence[Traced]") -> Cause:
    """From now on, what the running task does is caused by these requests, of which there are some.

    It has their id, if they have the same, and while telemetry is on, their context.

    Returns:
        Their common context: of several that are sampled a new one, below the first. And those that are sampled.
    """
    first = entries[0].request_id
    if first is not None and any(each.request_id != first for each in entries):
        first = None
    if REQUEST_ID.get() is not first:
        REQUEST_ID.set(first)
    if EVENTS.ring is None:
        return NOBODY
    context = entries[0].trace
    for each in entries:
        if each.trace:
            break
    else:  # nearly all
        if TRACE.get() is not context:
            TRACE.set(context)
        return NOBODY
    known = [each.trace for each in entries if each.trace is not None]
    sampled = [each for each in known if each and each[-1] not in _NOT]
    if len(sampled) > 1 and EVENTS.sampler is not None:
        context = _below(sampled[0])
    else:
        context = sampled[0] if sampled else known[0]
    TRACE.set(context)
    return context, tuple(sampled)
