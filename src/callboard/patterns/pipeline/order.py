"""``Turnstile``: items pass in the order of their numbers, whenever they come."""

import asyncio

__all__ = ["Turnstile"]


class Turnstile:
    """Lets item ``n`` enter when all items before it have entered, or have been withdrawn."""

    def __init__(self) -> None:
        self._next = 0
        self._passed: set[int] = set()
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def wait(self, number: int) -> None:
        """Wait for the turn of this item; :meth:`passed` ends it. At once for one that has passed already."""
        if number <= self._next:
            return
        turn = self._waiting.get(number)
        if turn is None:
            turn = self._waiting[number] = asyncio.get_running_loop().create_future()
        await turn

    def passed(self, number: int) -> None:
        """The item is in, or does not come any more; nothing the second time."""
        if number < self._next:
            return
        self._passed.add(number)
        while self._next in self._passed:
            self._passed.remove(self._next)
            self._next += 1
        turn = self._waiting.pop(self._next, None)
        if turn is not None and not turn.done():
            turn.set_result(None)
