"""A call of the embedding function that is under way, and the callers that wait for it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from callboard.agents.cache.keys import Key
from callboard.patterns.batching.results import copies

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
        self._failed = False  # a caller has the error
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
        waiting: asyncio.Future[dict[Key, NDArray[Any]]] = asyncio.get_running_loop().create_future()
        waiting.add_done_callback(self._left)
        self._task.add_done_callback(partial(self._tell, waiting))
        return waiting

    def _tell(
        self, waiting: "asyncio.Future[dict[Key, NDArray[Any]]]", task: "asyncio.Task[dict[Key, NDArray[Any]]]"
    ) -> None:
        """Pass the end of the call on to a caller; an error to each as a copy of its own."""
        error = None if task.cancelled() else task.exception()
        if waiting.done():
            return
        if task.cancelled():
            waiting.cancel()
        elif error is None:
            waiting.set_result(task.result())
        else:
            waiting.set_exception(copies(error, 2)[self._failed] if isinstance(error, Exception) else error)
            self._failed = True

    def _left(self, _: "asyncio.Future[Any]") -> None:
        self._waiters -= 1
        if not self._waiters and not self._task.done():
            self._task.cancel()
            self._ended(self, None)  # at once: a caller that comes now starts another flight
