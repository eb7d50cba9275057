"""``Choices``: the texts of one request, which are continued side by side."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from callboard.serve.chains.entering import as_room_comes
from callboard.serve.generation.model import Generation

__all__ = ["Choices"]

AHEAD = 16
"""Pieces that wait for a reader at most."""


class Choices:
    """Texts that are continued; they enter the model's queue as it has room.

    Args:
        generations: One for each text, at least one.
    """

    def __init__(self, generations: Sequence[Generation]) -> None:
        self.generations = generations

    async def whole(self) -> list[str]:
        """All texts. One that fails ends the others."""
        if len(self.generations) == 1:
            return [await self.generations[0].whole()]
        return await as_room_comes(Generation.whole, self.generations)

    async def pieces(self) -> AsyncGenerator[tuple[int, str | None], None]:
        """Pieces of the texts as they come, each with the position of its text; None at the end of one."""
        if len(self.generations) > 1:
            async with aclosing(self._mixed()) as mixed:
                async for each in mixed:
                    yield each
            return
        async with aclosing(self.generations[0].texts()) as texts:
            async for piece in texts:
                yield 0, piece
        yield 0, None

    async def _mixed(self) -> AsyncGenerator[tuple[int, str | None], None]:
        ready: asyncio.Queue[tuple[int, str | None] | None] = asyncio.Queue()
        room = asyncio.Semaphore(AHEAD)

        async def pump(index: int) -> None:
            async with aclosing(self.generations[index].texts()) as texts:
                async for piece in texts:
                    await room.acquire()
                    ready.put_nowait((index, piece))
            await room.acquire()
            ready.put_nowait((index, None))

        work = asyncio.ensure_future(as_room_comes(pump, range(len(self.generations))))
        work.add_done_callback(lambda _: ready.put_nowait(None))
        try:
            while (each := await ready.get()) is not None:
                room.release()
                yield each
            await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
