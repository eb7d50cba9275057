"""``as_room_comes``: the items of one request enter a queue as it has room for them."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from callboard.patterns.requests.errors import QueueFull

__all__ = ["as_room_comes"]

R = TypeVar("R")

AT_ONCE = 128
"""Items of a request in the queue at once, so that others find room in it."""


async def as_room_comes(call: Callable[[Any], Awaitable[R]], items: Sequence[Any]) -> list[R]:
    """The results of a call for each item, in order. One that fails cancels the others.

    An item for which the queue is full waits for others of its request; only where none of them is in the queue does
    the request fail.

    Raises:
        QueueFull: The queue is full of the items of other requests.
        Exception: Raised by ``call``.
    """
    found: dict[int, R] = {}
    running: dict[asyncio.Task[R], int] = {}
    waiting = deque(range(len(items)))
    most = AT_ONCE
    try:
        while waiting or running:
            while waiting and len(running) < most:
                number = waiting.popleft()
                running[asyncio.ensure_future(_called(call, items[number]))] = number
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            refused: list[int] = []
            for task in done:
                number = running.pop(task)
                try:
                    found[number] = task.result()
                    most = min(AT_ONCE, most + 1)  # others may have left the queue
                except QueueFull:
                    refused.append(number)
                    if not running and len(refused) == len(done):
                        raise
            if refused:
                waiting.extendleft(sorted(refused, reverse=True))
                most = max(1, len(running))
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return [found[number] for number in range(len(items))]


async def _called(call: Callable[[Any], Awaitable[R]], item: Any) -> R:
    return await call(item)
