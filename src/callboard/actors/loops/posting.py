"""Calls that one thread has the loop of another make."""

import asyncio
from collections.abc import Callable

__all__ = ["post"]


def post(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *args: object) -> bool:
    """Have a loop make a call. Any thread.

    Returns:
        False if the loop is closed, as it may be at any time for other threads: nothing waits there any more.
    """
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
        return False
    return True
