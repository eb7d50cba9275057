"""A call of the embedding function that is under way, and the callers that wait for it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from callboard.agents.cache.keys import Key

__all__ = ["Flight"]


class Flight:
    """Computes rows once for all callers that wait. It ends early when all of them have been cancelled.

    Args:
        texts: What is computed, by key.
        compute: Gets the texts by key, returns a row for each.
        ended: Called once, with the flight and its rows by key, or with None if it failed.
    """

    def __init__(
        self,
        texts: dict[Key, str],
        compute: Callable[[dict[Key, str]], Awaitable[Sequence[NDArray[Any]] | NDArray[Any]]],
        ended: "Callable[[Flight, dict[Key, NDArray[Any]] | None], None]",
    ) -> None:
        self.keys = tuple(texts)
        self._waiters = 0
        self._compute, self._ended = compute, ended
        self._task = asyncio.ensure_future(self._run(texts))

    async def _run(self, texts: dict[Key, str]) -> dict[Key, NDArray[Any]]:
        found: dict[Key, NDArray[Any]] | None = None
        try:
            found = rows = dict(zip(self.keys, await self._compute(texts), strict=True))
            return rows
        except asyncio.CancelledError:
            if self._waiters:  # not by them: they must not take it for a cancellation of their own
                raise RuntimeError("embed was cancelled while callers were waiting for its result") from None
            raise
        finally:
            self._ended(self, found)

    def rows(self) -> "asyncio.Future[dict[Key, NDArray[Any]]]":
        """The rows by key, for one more caller: its future may be cancelled."""
        self._waiters += 1
        waiting = asyncio.shield(self._task)
        waiting.add_done_callback(self._left)
        return waiting

    def _left(self, _: "asyncio.Future[Any]") -> None:
        self._waiters -= 1
        if not self._waiters and not self._task.done():
            self._task.cancel()
            self._ended(self, None)  # at once: a caller that comes now starts another flight
