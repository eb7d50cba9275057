"""A new version whose setup ends the process of the device, while the active one serves there."""

import asyncio
import functools
import os
import sys
from typing import Any

import pytest

import callboard as cb

pytestmark = [
    pytest.mark.fault,
    pytest.mark.leaves_nothing,
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
]
BOUND = 60.0


class Net(cb.ResidentActor):
    """A model of two versions; the setup of one ends its process."""

    def __init__(self, crashes: bool) -> None:
        self.crashes = crashes

    def setup(self, ctx: cb.HostContext) -> None:
        if self.crashes:
            os._exit(9)

    def double(self, numbers: list[int]) -> list[int]:
        return [2 * number for number in numbers]


def version(name: str, gpu: cb.Device, *, crashes: bool) -> cb.ModelVersion:
    async def load() -> Any:
        actor = gpu.actor_of(cb.Props(Net, crashes), name)
        return cb.DynamicBatchingServer(functools.partial(actor.call, Net.double), name=name)

    return cb.ModelVersion(name, load, warmup=[0])


@pytest.mark.parametrize("standby", [None, "warm"])
async def test_a_version_whose_setup_crashes_fails_its_swap_and_no_request(standby: Any) -> None:
    async with (
        asyncio.timeout(BOUND),
        cb.device("cpu", isolation="process", standby=standby, max_restarts=0) as gpu,
        cb.ModelHotSwapServer[int, int](version("first", gpu, crashes=False)) as server,
    ):
        swap = asyncio.create_task(server.swap(version("second", gpu, crashes=True)))
        answered = 0

        async def client(number: int) -> None:
            nonlocal answered
            while not swap.done():
                assert (await server.submit(number)).response == 2 * number
                answered += 1

        await asyncio.gather(*(client(number) for number in range(3)))
        with pytest.raises(cb.SwapFailed) as caught:
            await swap
        assert caught.value.phase == "load"
        assert isinstance(caught.value.__cause__, cb.ActorStopped)
        assert "3 contexts in a row were lost during its setup" in str(caught.value)
        assert (await server.submit(7)).version == "first"
        assert (gpu.health().state, gpu.health().restarts) == ("ready", 3)
        assert answered
