"""``Quarantine`` in front of a resident actor whose host is killed by one request."""

import asyncio
import os
import signal
import sys
from collections import Counter
from typing import Any

import pytest

import callboard as cb
from callboard.actors.clock import ManualClock

pytestmark = [
    pytest.mark.fault,
    pytest.mark.leaves_nothing,
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
]
BOUND = 40


class Fragile(cb.ResidentActor):
    """Its host dies of a negative number."""

    def answer(self, number: int) -> int:
        if number < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return number * 2


Guard = cb.Quarantine["cb.ResidentRef[Fragile]"]


async def asked(quarantine: Guard, number: int, runs: Counter[int]) -> int:
    async def call(model: "cb.ResidentRef[Fragile]") -> int:
        runs[number] += 1
        found: int = await model.call(Fragile.answer, number)
        return found

    return await quarantine.run(f"request {number}", call)


@pytest.mark.parametrize("place", ["main", "spare", "own process"])
@pytest.mark.few(1)
async def test_the_request_that_kills_is_found_and_refused(place: str) -> None:
    clock, runs = ManualClock(), Counter[int]()
    settings: Any = {"isolation": "process", "standby": None, "max_restarts": 4 if place == "main" else 3}
    async with cb.System("test") as system, asyncio.timeout(BOUND):
        dev = await system.device("cpu", **settings)
        model = dev.actor_of(cb.Props(Fragile), name="model", own_process=place == "own process")
        spare = None
        if place == "spare":  # the same device, with another host
            spare = dev.actor_of(cb.Props(Fragile), name="spare", own_process=True)
        quarantine = Guard(model, spare=spare, clock=clock)

        numbers = [1, 2, 3, -4, 5, 6, 7]
        tasks = [asyncio.create_task(asked(quarantine, number, runs)) for number in numbers]
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        killer = ends.pop(3)
        assert ends == [2, 4, 6, 10, 12, 14]
        assert isinstance(killer, cb.Quarantined)
        assert killer.key == "request -4"
        assert len(killer.generations) == runs[-4] == 3
        assert max(runs[number] for number in numbers if number > 0) == 2
        assert dev.health().restarts == {"main": 3, "spare": 2, "own process": 0}[place]

        with pytest.raises(cb.Quarantined):
            await asked(quarantine, -4, runs)
        assert await asked(quarantine, 8, runs) == 16
        assert runs[-4] == 3
        assert list(quarantine.stats().held) == ["request -4"]
        assert dev.health().ok

        if place == "main":  # elsewhere the next loss is beyond the budget of three restarts
            clock.advance(600.0)
            with pytest.raises(cb.Quarantined):
                await asked(quarantine, -4, runs)
            assert (runs[-4], dev.health().restarts) == (4, 4)
        stats = quarantine.stats()
        assert (stats.running, stats.waiting, stats.failed) == (0, 0, 0)
        assert stats.submitted == stats.completed + stats.quarantined
