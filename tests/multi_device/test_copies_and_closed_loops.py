"""A copy whose source belongs to another loop, or never answers: the target is not affected and waits for nothing."""

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
from tests.multi_device.copies_lab import BOUND, how, numbers, pair

import callboard as cb

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture(autouse=True)
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")


class Elsewhere:
    """A device on the loop of another thread, which is closed with it."""

    def __init__(self, isolation: str) -> None:
        self.closing = threading.Event()
        self.ready = threading.Event()
        self.isolation = isolation
        self.x: Any = None
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run()), daemon=True)
        self.thread.start()
        assert self.ready.wait(BOUND)

    async def run(self) -> None:
        async with cb.device("cpu:0", standby=None, **how(self.isolation)) as device:
            self.x = await device.put(numbers())
            self.ready.set()
            await asyncio.to_thread(self.closing.wait, BOUND)

    def close(self) -> None:
        self.closing.set()
        self.thread.join(BOUND)
        assert not self.thread.is_alive()


@pytest.mark.parametrize("copies", [1, 5])
@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_the_target_outlives_the_loop_of_the_source(isolation: str, copies: int) -> None:
    source = Elsewhere(isolation)
    async with cb.device("cpu:1", standby=None, **how(isolation)) as b, asyncio.timeout(BOUND):
        np.testing.assert_array_equal(await b.put(source.x).get(), numbers())
        generation = b.generation
        submitted = [b.put(source.x) for _ in range(copies)]
        source.close()  # this loop has no turn meanwhile
        for copy in submitted:
            try:
                np.testing.assert_array_equal(await copy.get(), numbers())
            except cb.DeviceStopped as e:
                assert "cpu:0 was closed" in str(e)  # noqa: PT017 - either may come first
        np.testing.assert_array_equal(await (b.put(numbers()) + 1.0).get(), numbers() + 1)
        port: Any = b._port
        assert not port.sources
        assert b.generation == generation


async def test_a_copy_that_cannot_be_written_is_not_waited_for() -> None:
    async with pair("thread", "thread") as (a, b), asyncio.timeout(BOUND):
        x = await a.put(numbers(3))
        with pytest.raises(cb.ShapeError, match="its elements overlap"):
            b.put(x, out=b.xp.broadcast_to(b.put(numbers(1)), (3,)))
        port: Any = b._port
        np.testing.assert_array_equal(await (b.put(x) * 2).get(), numbers(3) * 2)
        assert not port.sources
