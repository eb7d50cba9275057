"""Out of real device memory: typed, raised to the affected op only, in the same generation."""

import asyncio
import gc

import numpy as np
import pytest
from tests.faults.cuda.actors import TorchStriker
from tests.faults.cuda.lab import BOUND, chain, cuda, error_of, is_right, kill, loss, needs

import callboard as cb

pytestmark = [pytest.mark.gpu, pytest.mark.fault, pytest.mark.leaves_nothing, pytest.mark.timeout(300)]

GB = 1 << 30


async def test_more_than_there_is() -> None:
    async with cuda(max_restarts=0) as dev:
        generation = dev.generation
        kept = dev.full((1000,), 2.0)
        size = max(200 * GB, (await dev.stats()).total_bytes + GB)
        for _ in range(3):
            refused = dev.empty((size,), "u8")
            reader = refused[:16].get()
            beside = chain(dev, 5)
            for reply in (refused, reader):
                error = await error_of(reply)
                assert type(error) is cb.OutOfMemory
                assert isinstance(error, MemoryError)
                assert "CUDA_ERROR_OUT_OF_MEMORY" in str(error)
            await is_right(beside, 5)
        np.testing.assert_array_equal(await kept.get(), np.full(1000, 2, np.float32))
        assert (dev.generation, dev.health().restarts) == (generation, 0)
        assert (await dev.stats()).parked == 0


async def test_filled_up_and_let_go_of() -> None:
    """What was freed is given back to the driver when another size needs it."""
    async with cuda(max_restarts=0) as dev:
        generation = dev.generation
        free = (await dev.stats()).free_bytes
        part = free // 6 // 4096 * 4096
        for divisor in (1, 2, 3):  # other sizes each time: nothing in the cache fits
            held: list[cb.GpuRef] = []
            full = False
            while not full:
                ref = dev.full((part // divisor // 4,), float(len(held) + 1))
                try:
                    async with asyncio.timeout(BOUND):
                        held.append(await ref)
                except cb.OutOfMemory:
                    full = True
                del ref
            assert 5 * divisor <= len(held) <= 7 * divisor
            async with asyncio.timeout(BOUND):
                for k, one in enumerate(held):
                    for end in (one[:1000], one[-1000:]):
                        assert (await end.get() == k + 1).all()
            del held, one, end
            gc.collect()
        async with asyncio.timeout(BOUND):
            assert (await dev.full((free // 2,), 1, "u8")[:10].get() == 1).all()
        await is_right(chain(dev, 6), 6)
        assert (dev.generation, dev.health().restarts) == (generation, 0)


async def test_the_limit_of_the_configuration() -> None:
    async with cuda(max_restarts=0, memory_limit=GB) as dev:
        kept = dev.full((GB // 8,), 3.0)  # 512 MiB
        with pytest.raises(cb.OutOfMemory, match=r"memory_limit is 1,073,741,824"):
            async with asyncio.timeout(BOUND):
                await dev.empty((2 * GB,), "u8")
        with pytest.raises(cb.OutOfMemory, match=r"in use"):
            async with asyncio.timeout(BOUND):
                await dev.empty((GB * 3 // 4,), "u8")
        await is_right(chain(dev, 7), 7)
        async with asyncio.timeout(BOUND):
            assert (await kept[-1000:].get() == 3).all()
        assert dev.health().restarts == 0


async def test_out_of_memory_inside_torch() -> None:
    needs("torch")
    async with cuda(max_restarts=0) as dev:
        actor = dev.actor_of(cb.Props(TorchStriker), name="torch")
        patient = actor.with_timeout(BOUND)
        if not await patient.call(TorchStriker.usable):
            pytest.skip("torch is a build without CUDA")
        for number in range(3):
            error = await error_of(patient.call(TorchStriker.too_much))
            assert type(error) is cb.OutOfMemory
            assert await patient.call(TorchStriker.pick, number) == number
            await is_right(chain(dev, number), number)
        assert (dev.health().restarts, actor.restarts) == (0, 0)


@pytest.mark.parametrize("standby", ["hot", "warm"])
async def test_memory_of_a_lost_host_can_be_taken_again(standby: str) -> None:
    """Most of the device's memory, lost with a context: the next one gets it as soon as the old host has ended."""
    async with cuda(standby=standby) as dev:
        await dev.standby_ready()
        size = (await dev.stats()).free_bytes * 7 // 10
        for number in (1, 2):
            held = dev.full((size,), number, "u8")
            async with asyncio.timeout(BOUND):
                assert (await held[-1000:].get() == number).all()
            await loss(dev, lambda: kill(dev))
        await is_right(chain(dev, 8), 8)
