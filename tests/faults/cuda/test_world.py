"""A world of all GPUs: every collective by NCCL, and ranks that are lost in the middle of all-reduces."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import numpy as np
import pytest
from tests.conformance import collective_lab as lab
from tests.faults.cuda.actors import Striker
from tests.multi_device.world_lab import begin, put, right

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


@pytest.mark.parametrize("kind", lab.KINDS)
async def test_every_collective_of_every_dtype_and_op_in_place_and_not(devices: list[cb.Device], kind: str) -> None:
    n = len(devices)
    if kind == "send" and n == 1:
        pytest.skip("sending needs two GPUs, and this machine has one")
    moved = () if kind in lab.REDUCTIONS else ("bool", "i16", "c64", "f4_e2m1")
    ops = lab.OPS if kind in lab.REDUCTIONS else ("sum",)
    async with asyncio.timeout(BOUND), cb.world(devices) as world:
        for in_place in (False, True) if kind in lab.IN_PLACE else (False,):
            for rows in (1, 3, 5000):
                every = [(dtype, op) for dtype in (*lab.DTYPE_NAMES, *moved) for op in ops]
                begun = [begin(world, kind, dtype, op, in_place, rows) for dtype, op in every]
                for (reply, want), (_, op) in zip(begun, every, strict=True):
                    await right(reply, want, kind, op)
        stats = world.stats()
        assert (stats.failed, stats.in_flight) == (0, 0)
        assert stats.completed == stats.calls > 0


async def test_factors_groups_and_parts_of_a_world(devices: list[cb.Device]) -> None:
    n = len(devices)
    xs = [np.arange(6.0, dtype="f4") + r for r in range(n)]
    async with asyncio.timeout(BOUND), cb.world(devices) as world:
        refs = put(world, xs)
        for factors in ([0.5] * n, [float(r + 1) for r in range(n)]):
            there = [device.put(np.float32(f)) for device, f in zip(devices, factors, strict=True)]
            for op in (cb.PreMulSum(factors), cb.PreMulSum(there)):
                for ref in await world.all_reduce(refs, op):
                    np.testing.assert_allclose(await ref.get(), sum(f * x for f, x in zip(factors, xs, strict=True)))
        if n > 1:
            with world.group() as group:
                right_of = [group.send(x, to=(r + 1) % n) for r, x in enumerate(refs)]
                left_of = [group.send(x, to=(r - 1) % n) for r, x in enumerate(refs)]
                total = group.all_reduce(refs)
            for r in range(n):
                np.testing.assert_array_equal(await (await right_of[r]).get(), xs[r])
                np.testing.assert_array_equal(await (await left_of[r]).get(), xs[r])
            np.testing.assert_allclose(await (await total)[0].get(), sum(xs))
        parts = await world.split([r % 2 for r in range(n)])
        for color, part in parts.items():
            mine = [refs[r] for r in range(n) if r % 2 == color]
            np.testing.assert_allclose(await (await part.all_reduce(mine))[0].get(), sum(xs[color::2]))
            await part.close()


async def test_a_rank_that_is_killed_during_all_reduces(
    devices: list[cb.Device], record_property: Callable[[str, object], None]
) -> None:
    n, victim = len(devices), devices[-1]
    async with asyncio.timeout(BOUND), cb.world(devices, timeout=60.0) as world:
        refs = [device.full(16 << 20, 1.0) for device in devices]
        await world.all_reduce(refs)
        flying = [world.all_reduce(refs) for _ in range(20)]
        pid = victim.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        began = time.perf_counter()
        ended = await asyncio.gather(*flying, return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                assert isinstance(error, cb.WorldLost), repr(error)
                assert error.rank == n - 1
            elif n > 1:  # a single rank loses its results with its context
                np.testing.assert_array_equal((await error[0].get())[:: 1 << 20], np.full(16, float(n)))
        while world.formation == 1:
            await world.ready()
            try:
                await world.barrier()
            except cb.ContextLost:
                continue
        record_property("measured", f"nccl, {n} ranks: back {time.perf_counter() - began:.2f} s after a kill")
        refs[-1] = victim.full(16 << 20, 1.0)  # the other ranks' arrays are theirs still
        for ref in await world.all_reduce(refs):
            np.testing.assert_array_equal((await ref.get())[:: 1 << 20], np.full(16, float(n)))


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
        large = [device.full(64 << 20, 1.0) for device in devices]
        await world.all_reduce(refs, out=refs)
        flying = [world.all_reduce(large, out=large) for _ in range(10)]
        strike = striker.call(Striker.strike, "illegal")  # its stream is not that of the all-reduces, which run now
        began = time.perf_counter()

        async def reduce_on() -> None:
            while True:
                await world.all_reduce(refs)

        with pytest.raises(cb.ContextLost) as caught:
            await reduce_on()
        with pytest.raises(cb.ContextPoisoned):
            await strike
        ended = await asyncio.gather(*flying, return_exceptions=True)
        for error in (caught.value, *ended):
            assert not isinstance(error, BaseException) or isinstance(error, cb.ContextLost), repr(error)
            assert not isinstance(error, cb.WorldLost) or error.rank == n - 1
        await world.ready()
        back = time.perf_counter() - began
        assert (world.formation, world.stats().losses) == (2, 1)
        refs = [device.full(1 << 20, 2.0) for device in devices]
        for ref in await world.all_reduce(refs):
            np.testing.assert_array_equal(await ref.get(), np.full(1 << 20, 2.0 * n))
        record_property("measured", f"nccl, {n} ranks: formed in {first:.2f} s, back after {back:.2f} s")
