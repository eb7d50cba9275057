"""``InOrder``: delivers results in the order of the requests."""

from collections.abc import Callable
from typing import Any

__all__ = ["InOrder"]


class InOrder:
    """Holds the ends of requests back until all requests submitted before have ended.

    Args:
        open_: The requests that have not ended, by number, in the order of submission.
    """

    def __init__(self, open_: dict[int, Any]) -> None:
        self._open = open_
        self._held: dict[int, Callable[[], None]] = {}
        self._releasing = False

    def end(self, number: int, end: Callable[[], None]) -> None:
        """End a request with this call, now or when its turn comes."""
        self._held[number] = end
        self.release()

    def release(self) -> None:
        """End the requests that no earlier one holds back any more."""
        if self._releasing:  # the loop below continues
            return
        self._releasing = True
        try:
            while self._open and (end := self._held.pop(next(iter(self._open)), None)) is not None:
                end()
        finally:
            self._releasing = False

    def forget(self, number: int) -> None:
        """A request has ended otherwise."""
        self._held.pop(number, None)
