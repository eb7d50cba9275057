"""``RoomQueue``: who waits until more ops can be called."""

import asyncio
from collections.abc import Callable

__all__ = ["RoomQueue"]


class RoomQueue:
    """Waiters, each for an amount of room, served in order whenever :meth:`look` is called.

    Args:
        fits: Whether ``n`` more ops can be called, or nobody has to wait any more.
    """

    __slots__ = ("_fits", "_waiting")

    def __init__(self, fits: Callable[[int], bool]) -> None:
        self._fits = fits
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def wait(self, n: int) -> None:
        """Wait for room for ``n`` ops."""
        while not self._fits(n):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((n, future))
            await future

    def look(self) -> None:
        """There may be more room than before."""
        waiting, self._waiting = self._waiting, []
        for n, future in waiting:
            if future.done():
                continue
            if self._fits(n):
                future.set_result(None)
            else:
                self._waiting.append((n, future))
