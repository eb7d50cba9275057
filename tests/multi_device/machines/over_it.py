"""Uses of a cluster's devices with any engine: the same checks for child processes and for Ray."""

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import callboard as cb

LOSSES = (cb.ContextLost, cb.GpuRefStale)
BOUND = 60.0


class Counter(cb.ResidentActor):
    """Counts, and says who it is."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.value = 0

    def add(self, by: int) -> tuple[str, int]:
        self.value += by
        return self.key, self.value


class Model(cb.ResidentActor):
    """A model with weights."""

    def predict(self, row: "np.ndarray[Any, Any]") -> float:
        return float(row.sum() * 3)


async def worlds(devices: Sequence[cb.Device], lose: Callable[[], Any] | None = None) -> None:
    """Collectives over nodes; with ``lose``, also after the loss of one of them."""
    async with cb.world(devices, form_timeout=BOUND) as world:
        await _sums(world)
        if lose is None:
            return
        xs = [device.put(np.ones(50_000)) for device in world.devices]
        await lose()
        ends = 0
        async with asyncio.timeout(BOUND):
            while not ends:
                try:
                    await world.all_reduce(xs)
                except (*LOSSES, cb.WorldLost):
                    ends += 1
            await world.ready()
        assert world.stats().formation >= 2
        for _ in range(20):
            try:
                await world.ready()
                await _sums(world)
                return
            except (*LOSSES, cb.WorldLost):  # the device was lost again while it was placed
                continue
        raise AssertionError("the world does not come back")


async def _sums(world: cb.World) -> None:
    for size in (3, 300_000):  # one exchange, and many chunks
        xs = [device.put(np.full(size, rank + 1.0)) for rank, device in enumerate(world.devices)]
        async with asyncio.timeout(BOUND):
            sums = await world.all_reduce(xs)
            for ref in sums:
                np.testing.assert_array_equal(await ref.get(), np.full(size, world.size * (world.size + 1) / 2))
            gathered = await world.gather([x[:2] for x in xs], root=0)
            assert (await gathered.get()).tolist() == [rank + 1.0 for rank in range(world.size) for _ in range(2)]


async def placement(devices: Sequence[cb.Device]) -> None:
    """Work is placed over nodes, and copied between them."""
    async with cb.PlacementActor(devices) as placing:
        chosen = [placing.pick(cb.PlacementHints()).device for _ in range(2 * len(devices))]
        assert {device.uuid for device in chosen} == {device.uuid for device in devices}
        assert len(placing.gang([cb.PlacementHints()] * len(devices))) == len(devices)
    first, second = devices[:2]
    x = np.arange(200_000.0)
    doubled = first.put(x) * 2
    np.testing.assert_array_equal(await (doubled.to(second) + 1).get(), x * 2 + 1)
    assert not cb.P2pTopology(devices).can_access(first, second)


async def replica_pool(devices: Sequence[cb.Device], lose: Callable[[], Any] | None = None) -> None:
    """A pool of models over nodes answers every request, also those of a node that is lost."""
    models = [device.actor_of(cb.Props(Model)) for device in devices]
    calls = [functools.partial(model.call, Model.predict) for model in models]
    async with cb.ModelReplicaPool[Any, float](calls, idempotent=True, attempts=5) as pool:
        asked = [pool.submit(np.full(8, float(n))) for n in range(60)]
        answers = asyncio.gather(*asked)
        if lose is not None:
            await lose()
        async with asyncio.timeout(BOUND):
            assert await answers == [24.0 * n for n in range(60)]
        assert pool.stats().completed == 60


async def entities(devices: Sequence[cb.Device]) -> None:
    """Entities live on nodes, keep their order, and move when a device leaves."""
    async with cb.PlacementShardingAdapter(
        "counters", devices, lambda key: cb.Props(Counter, key), shards=32
    ) as counters:
        async with asyncio.timeout(BOUND):
            for times in range(1, 4):
                answers = await asyncio.gather(*(counters.entity(str(n)).call(Counter.add, 1) for n in range(12)))
                assert answers == [(str(n), times) for n in range(12)]
            assert {counters.entity(str(n)).device for n in range(200)} == {device.uuid for device in devices}
            await counters.remove(devices[0])
            assert {counters.entity(str(n)).device for n in range(200)} == {device.uuid for device in devices[1:]}
            assert (await counters.entity("7").call(Counter.add, 1))[0] == "7"
