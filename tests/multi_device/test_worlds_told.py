"""Ranks are told of a loss past the thread that serves their host: it may be held by what waits for the lost rank."""

import asyncio

import pytest
from tests.multi_device.world_lab import BOUND

import callboard as cb
from callboard.device.protocol.control import EndWorld
from callboard.kernel.collective import Look, Part, Run, Step

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.timeout(300)]


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_what_waits_in_a_world_ends_without_an_op(isolation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    async with cb.System("told") as system:
        devices = [await system.device(f"cpu:{r}", isolation=isolation) for r in range(2)]
        async with asyncio.timeout(BOUND), cb.world(devices) as world:
            number = world._number
            part = Part(0, 2, (Step("barrier"),))
            alone = devices[0].ask(Run(part=part, world=number, call=1, after=0, outs=()))
            assert await devices[0].ask(Look(world=number)) == "ready"
            host = devices[0]._port.outbox.host
            assert host is not None
            host.end_world(EndWorld(number + 1, 1, "of another world", 1))
            host.end_world(EndWorld(number, 1, "rank 1 is gone", 7))
            with pytest.raises(cb.WorldLost, match=r"rank 1 is gone|rank 1 has left") as lost:
                await alone  # rank 1 may have learnt of it already, and have left
            assert lost.value.rank == 1
            # The other rank learns of it from this one, and the world forms again when its op comes.
            with pytest.raises(cb.WorldLost):
                await world.barrier()
            await world.ready()
            await world.barrier()
            assert world.formation == 2
