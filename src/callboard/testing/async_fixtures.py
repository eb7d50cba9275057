"""The plugin's async fixtures; registered if pytest-asyncio is installed."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

if TYPE_CHECKING:
    from callboard.device.client.handle import Device

__all__ = ["cpu_device", "device"]

DEVICES = [
    pytest.param(("cpu", "thread"), id="cpu-thread"),
    pytest.param(("cpu", "process"), id="cpu-process"),
    pytest.param(("cuda", "process"), id="cuda-process", marks=pytest.mark.gpu),
    pytest.param(("cuda", "thread"), id="cuda-thread", marks=pytest.mark.gpu),
]


@pytest_asyncio.fixture
async def cpu_device() -> "AsyncIterator[Device]":
    """An opened CPU device, thread isolation."""
    async with _opened("cpu", isolation="thread") as device:
        yield device


@pytest_asyncio.fixture(params=DEVICES)
async def device(request: pytest.FixtureRequest) -> "AsyncIterator[Device]":
    """An opened device of each backend in each isolation, without standby; skipped where it is unavailable."""
    backend, isolation = request.param
    async with _opened(backend, isolation=isolation, standby=None) as device:
        yield device


@asynccontextmanager
async def _opened(backend: str, **options: Any) -> "AsyncIterator[Device]":
    import callboard as cb

    async with cb.System("tests") as system:
        try:
            device = await system.device(backend, **options)
        except cb.BackendUnavailable as e:
            if os.environ.get("CALLBOARD_REQUIRE") == backend:
                pytest.fail(f"CALLBOARD_REQUIRE={backend}, and it cannot be used: {e}")
            pytest.skip(f"{backend} ({options['isolation']}) cannot be used: {e}")
        yield device
