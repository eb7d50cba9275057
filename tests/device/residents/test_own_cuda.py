"""Resident actors in processes of their own on a GPU: torch works on the device's memory, through CUDA IPC."""

import asyncio
import gc

import ml_dtypes
import numpy as np
import pytest
from tests.device.residents.cuda_lab import Torch
from tests.device.residents.test_cuda import COLD, _driver_has_been_here, gpu, needs

import callboard as cb

__all__ = ["_driver_has_been_here", "gpu"]

pytestmark = [pytest.mark.gpu, pytest.mark.leaves_nothing]

SIZES = (3, 1000, 1 << 16, (1 << 19) - 1, (1 << 19) + 1, 1 << 22)
"""Elements of f32 arrays: far below, about and above the 2 MiB from which the driver cuts small allocations."""


async def test_arrays_are_lent_and_results_are_copies(gpu: cb.Device) -> None:
    needs("torch")
    actor = gpu.actor_of(cb.Props(Torch), own_process=True)
    a = np.random.default_rng(0).random((3, 3), np.float32)
    x = gpu.blas.gemm(gpu.put(a), gpu.put(a))
    y = await actor.with_timeout(COLD).call(Torch.product, x)
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(await y.get(), a @ a @ w, rtol=1e-5)
    z = gpu.blas.gemm(x, y)
    actor.call(Torch.scale, z, 2.0)
    np.testing.assert_allclose(await z.get(), a @ a @ a @ a @ w * 2, rtol=1e-5)
    b = gpu.put(np.arange(24).reshape(4, 6).astype(ml_dtypes.bfloat16))
    assert await actor.call(Torch.kind, b) == "torch.bfloat16"
    np.testing.assert_array_equal(await actor.call(Torch.back, b[1:3, ::2]), np.arange(24).reshape(4, 6)[1:3, ::2])


async def test_blocks_of_every_size_are_opened_where_they_are(gpu: cb.Device) -> None:
    needs("torch")
    actor = gpu.actor_of(cb.Props(Torch), own_process=True)
    arrays = [gpu.put(np.full(n, float(i), np.float32)) for i, n in enumerate(SIZES)]
    for _ in range(2):
        for x in arrays:
            await actor.with_timeout(COLD).call(Torch.slowly, x, 1)
    for i, x in enumerate(arrays):
        np.testing.assert_array_equal(await x.get(), np.full(SIZES[i], i + 2.0))


async def test_work_is_done_before_the_device_goes_on(gpu: cb.Device) -> None:
    needs("torch")
    actor = gpu.actor_of(cb.Props(Torch), own_process=True)
    big = gpu.zeros((1 << 22,))
    actor.with_timeout(COLD).call(Torch.slowly, big, 300)
    gpu.blas.scal(big, alpha=2.0)
    actor.with_timeout(COLD).call(Torch.slowly, big, 300)
    assert await gpu.blas.asum(big) == pytest.approx((300 * 2 + 300) * (1 << 22))


async def test_a_device_assertion_there_restarts_that_actor_only(gpu: cb.Device) -> None:
    needs("torch")
    actor = gpu.actor_of(cb.Props(Torch), name="model", own_process=True)
    x = gpu.put(np.eye(3, dtype=np.float32))
    lent = await actor.with_timeout(COLD).call(Torch.product, x)
    generation = gpu.generation
    with pytest.raises(cb.ContextPoisoned):
        await actor.call(Torch.out_of_range)
    await actor.ready(timeout=COLD)
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    for ref in (lent, await actor.with_timeout(COLD).call(Torch.product, x)):
        np.testing.assert_array_equal(await ref.get(), w)
    assert (gpu.generation, actor.restarts) == (generation, 1)


async def test_memory_of_torch_is_refused_by_name(gpu: cb.Device) -> None:
    needs("torch")
    here, there = gpu.actor_of(cb.Props(Torch)), gpu.actor_of(cb.Props(Torch), own_process=True)
    y = await here.with_timeout(COLD).call(Torch.product, gpu.put(np.eye(3, dtype=np.float32)))
    with pytest.raises(cb.UnsupportedOp, match=r"memory of torch, CuPy.*dev\.copy\(ref\)"):
        await there.with_timeout(COLD).call(Torch.kind, y)
    assert await there.call(Torch.kind, gpu.copy(y)) == "torch.float32"


async def test_lent_memory_is_given_back_to_the_driver(gpu: cb.Device) -> None:
    needs("torch")
    actor = gpu.actor_of(cb.Props(Torch), own_process=True)
    x = gpu.zeros((1 << 26,))
    await actor.with_timeout(COLD).call(Torch.slowly, x, 1)
    await gpu.drain()
    free = (await gpu.stats()).free_bytes
    del x
    gc.collect()
    async with asyncio.timeout(COLD):
        while (await gpu.stats()).free_bytes < free + (1 << 27):
            await gpu.trim()
