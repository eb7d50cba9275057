"""``RoomQueue``: callers that wait until more ops can be called."""

import asyncio
from collections.abc import Callable

__all__ = ["RoomQueue"]


class RoomQueue:
    """Waiters, each for an amount of room, served in order whenever :meth:`poll` is called.

    Args:
        fits: Returns True if ``n`` more ops can be called, or waiting has become pointless.

    Attributes:
        waiting: The futures of the waiters, each with the number of ops that it waits for.
    """

    __slots__ = ("_fits", "waiting")

    def __init__(self, fits: Callable[[int], bool]) -> None:
        self._fits = fits
        self.waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def wait(self, n: int) -> None:
        """Wait for room for ``n`` ops."""
        while not self._fits(n):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiting.append((n, future))
            await future

    def poll(self) -> None:
        """There may be more room than before."""
        waiting, self.waiting = self.waiting, []
        for n, future in waiting:
            if future.done():
                continue
            if self._fits(n):
                future.set_result(None)
            else:
                self.waiting.append((n, future))
