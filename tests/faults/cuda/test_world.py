"""A world of all GPUs that there are: every collective by NCCL, and a context that is poisoned between all-reduces."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import numpy as np
import pytest
from tests.conformance import collective_lab as lab
from tests.faults.cuda.actors import Striker

import callboard as cb
from callboard.core import registry

pytestmark = [pytest.mark.gpu, pytest.mark.fault, pytest.mark.timeout(300)]

BOUND = 120.0


@pytest.fixture
async def devices() -> AsyncIterator[list[cb.Device]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(cb.device(f"cuda:{info.index}", standby="warm"))
            for info in registry.backend("cuda").devices()
        ]


async def test_collectives_of_every_dtype(devices: list[cb.Device]) -> None:
    n = len(devices)
    async with asyncio.timeout(BOUND), cb.world(devices) as world:
        for dtype, op in itertools.product(lab.DTYPE_NAMES, lab.OPS):
            xs = [lab.numbers(dtype, (n * 3, 2), seed=r) for r in range(n)]
            refs = [device.put(x) for device, x in zip(devices, xs, strict=True)]
            want = lab.reduced(op, xs)
            step = lab.Step("all_reduce", op)
            for ref in await world.all_reduce(refs, op):
                lab.close(await ref.get(), want, step, n)
            for r, ref in enumerate(await world.reduce_scatter(refs, op)):
                lab.close(await ref.get(), want[3 * r : 3 * r + 3], step, n)
            await world.all_reduce(refs, op, out=refs)
            lab.close(await refs[-1].get(), want, step, n)
        xs = [np.arange(6.0) + 10 * r for r in range(n)]
        refs = [device.put(x) for device, x in zip(devices, xs, strict=True)]
        np.testing.assert_array_equal(await (await world.gather(refs, root=n - 1)).get(), np.concatenate(xs))
        for ref in await world.all_gather(refs):
            np.testing.assert_array_equal(await ref.get(), np.concatenate(xs))
        for ref in await world.broadcast(refs[-1]):
            np.testing.assert_array_equal(await ref.get(), xs[-1])
        await world.barrier()
        assert world.stats().failed == 0


async def test_a_poisoned_rank_and_the_world_back(
    devices: list[cb.Device], record_property: Callable[[str, object], None]
) -> None:
    n = len(devices)
    async with asyncio.timeout(BOUND), cb.world(devices, timeout=60.0) as world:
        first = world.stats().formed_in
        striker = devices[-1].actor_of(cb.Props(Striker), name="striker")
        await striker.ready()
        await devices[-1].standby_ready()
        refs = [device.full(1 << 20, 1.0) for device in devices]
        await world.all_reduce(refs, out=refs)
        strike = striker.call(Striker.strike, "illegal")
        began = time.perf_counter()

        async def reduce_on() -> None:
            while True:
                await world.all_reduce(refs)

        with pytest.raises(cb.ContextLost) as caught:
            await reduce_on()
        with pytest.raises(cb.ContextPoisoned):
            await strike
        if isinstance(caught.value, cb.WorldLost):
            assert caught.value.rank == n - 1
        await world.ready()
        back = time.perf_counter() - began
        assert (world.formation, world.stats().losses) == (2, 1)
        refs = [device.full(1 << 20, 2.0) for device in devices]
        for ref in await world.all_reduce(refs):
            np.testing.assert_array_equal(await ref.get(), np.full(1 << 20, 2.0 * n))
        record_property("measured", f"nccl, {n} ranks: formed in {first:.2f} s, back after {back:.2f} s")
