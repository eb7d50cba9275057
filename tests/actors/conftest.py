"""Fixtures of the actor tests; ``actor_lab`` beside this file holds the actors they share."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callboard.actors import ActorSystem, ManualClock

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode has no package to import actor_lab from


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def system(clock: ManualClock) -> AsyncIterator[ActorSystem]:
    """A system whose time moves by ``clock.advance`` only."""
    system = ActorSystem("test", clock=clock)
    await system.start()
    yield system
    stopping = asyncio.create_task(system.stop())
    while not stopping.done():
        for _ in range(200):
            await asyncio.sleep(0)
        clock.advance(1.0)  # what a test left hanging is cancelled when its time is over
    await stopping
