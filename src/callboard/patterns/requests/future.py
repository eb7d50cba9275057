"""``RequestFuture``: the future of one request."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from callboard.patterns.requests.entries import Entry

__all__ = ["RequestFuture"]

R = TypeVar("R")


class RequestFuture(asyncio.Future[R]):
    """The future of a request: the request leaves its server at once when this is cancelled.

    Attributes:
        entry: Entry of the request.
        left: Called with the entry when this is cancelled.
    """

    __slots__ = ("entry", "left")

    entry: Entry
    left: Callable[[Entry], None]

    def cancel(self, msg: Any = None) -> bool:
        done = super().cancel(msg)
        if done:
            self.left(self.entry)
        return done
