"""Waiting for conditions set by other tasks."""

import asyncio
from collections.abc import Callable
from typing import Any

PATIENCE = 30.0


async def until(condition: Callable[[], Any]) -> None:
    """Let other tasks run until something holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
