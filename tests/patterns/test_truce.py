"""While a request runs alone, what other quarantines of the loop would begin waits, but not without end."""

import asyncio
import contextvars
from typing import Any

import pytest
from batching_lab import outcome, turns

import callboard as cb
from callboard.patterns.quarantine import truce
from callboard.patterns.quarantine.truce import Truce
from callboard.serve.calls import CallServer

BOUND = 20.0


async def test_others_wait_and_work_of_the_task_does_not() -> None:
    began: list[str] = []

    async def call(name: str) -> None:
        began.append(name)

    quarantine = cb.Quarantine("target")
    async with Truce():
        outside = asyncio.create_task(quarantine.run("other", call), context=contextvars.Context())
        await turns()
        assert (began, Truce.others()) == ([], None)
        await quarantine.run("mine", call)
        assert began == ["target"]
    await outside
    assert began == ["target"] * 2
    assert not truce._held


async def test_it_is_bounded_and_nothing_is_left_of_one_that_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hold() -> None:
        async with Truce():
            await asyncio.Event().wait()

    async with asyncio.timeout(BOUND):
        first, second = (asyncio.create_task(hold()) for _ in range(2))
        await turns()
        assert Truce.others() is not None
        second.cancel()  # it waits for the first
        first.cancel()
        await asyncio.wait({first, second})
        assert Truce.others() is None
        assert not truce._held
        monkeypatch.setattr(truce, "LONGEST", 0.01)
        endless = asyncio.create_task(hold())
        await turns()
        await Truce.none()
        assert not endless.done()
        endless.cancel()
        await asyncio.wait({endless})
    assert not truce._held


class Lost:
    """A function whose answers are streams; a negative number loses the context."""

    def __init__(self) -> None:
        self.losses = 0

    async def one(self, number: int) -> Any:
        if number < 0:
            self.losses += 1
            error = cb.ContextPoisoned("lost")
            error.device, error.generation = "gpu", self.losses
            raise error
        return self.parts(number)

    async def batch(self, numbers: list[int]) -> list[Any]:
        return [await self.one(number) for number in numbers]

    async def parts(self, number: int) -> Any:
        for part in range(number):
            yield part


def server_of(kind: str, lost: Lost) -> Any:
    if kind == "batching":
        return cb.DynamicBatchingServer(lost.batch, max_batch=1, max_concurrent_batches=2)
    if kind == "pool":
        return cb.ModelReplicaPool([cb.Replica(lost.one, name="a")], max_ongoing=2, ejection=None)
    if kind == "fair share":
        return cb.FairShareScheduler(lost.one, max_in_flight=2)
    return CallServer(lost.one, concurrency=2)


@pytest.mark.parametrize("kind", ["batching", "pool", "fair share", "calls"])
async def test_a_slow_reader_holds_up_no_suspect(kind: str) -> None:
    lost = Lost()

    def item(number: int) -> Any:
        return (number,) if kind == "calls" else number

    async with asyncio.timeout(BOUND), server_of(kind, lost) as server:
        slow = server.stream(item(9), buffer=1)
        assert await anext(slow) == 0
        await turns()
        assert isinstance(await outcome(server.submit(item(-1))), cb.Quarantined)
        assert lost.losses == 3
        assert [part async for part in slow] == list(range(1, 9))
        assert await server.submit(item(2)) == [0, 1]
