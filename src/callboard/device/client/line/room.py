"""``RoomQueue``: callers that wait until more ops can be called."""

import asyncio
from collections.abc import Callable

__all__ = ["RoomQueue"]


class RoomQueue:
    """Waiters, each for a condition, served in order whenever :meth:`poll` is called.

    Attributes:
        waiting: The futures of the waiters, each with the condition that it waits for.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    async def wait(self, fits: Callable[[], bool]) -> None:
        """Wait until ``fits()`` is true, or waiting has become pointless, which it also says."""
        while not fits():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiting.append((fits, future))
            await future

    def poll(self) -> None:
        """There may be more room than before."""
        waiting, self.waiting = self.waiting, []
        for fits, future in waiting:
            if future.done():
                continue
            if fits():
                future.set_result(None)
            else:
                self.waiting.append((fits, future))
