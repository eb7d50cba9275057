"""Four devices without a GPU."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

import callboard as cb

DEVICES = 4


@pytest.fixture
async def devices(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[cb.Device]]:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", str(DEVICES))
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(cb.device(f"cpu:{index}")) for index in range(DEVICES)]
