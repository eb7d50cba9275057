"""Resident actors on a GPU: torch's and CuPy's arrays in and out, streams in order, what their failures mean."""

import asyncio
import contextlib
import gc
import importlib.util
import os
from collections.abc import AsyncIterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.device.residents.cuda_lab import Cupy, Torch

import callboard as cb

pytestmark = [pytest.mark.gpu, pytest.mark.leaves_nothing]

COLD = 60.0
"""Seconds that importing torch in a host may take."""


def needs(package: str) -> None:
    """Skip where the package is missing; it is imported in hosts only."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


@pytest.fixture(scope="module", autouse=True)
def _driver_has_been_here() -> None:
    """The driver and torch open descriptors when they are first used in a process, and keep them."""

    async def use() -> None:
        async with cb.device("cuda", isolation="thread") as device:
            if importlib.util.find_spec("torch") is not None:
                await device.actor_of(cb.Props(Torch)).call(Torch.streams)

    with contextlib.suppress(cb.BackendUnavailable):
        asyncio.run(use())


@pytest.fixture(params=["process", "thread"])
async def gpu(request: pytest.FixtureRequest) -> AsyncIterator[cb.Device]:
    try:
        async with cb.device("cuda", isolation=request.param, standby=None) as device:
            yield device
    except cb.BackendUnavailable as e:
        if os.environ.get("CALLBOARD_REQUIRE") == "cuda":
            pytest.fail(f"CALLBOARD_REQUIRE=cuda, and it cannot be used: {e}")
        pytest.skip(f"CUDA cannot be used: {e}")


async def test_tensors_arrive_as_numpy_arrays(gpu: cb.Device) -> None:
    needs("torch")
    actor = gpu.actor_of(cb.Props(Torch))
    await actor.with_timeout(COLD).call(Torch.streams)
    for n in (0, 2, 10_000, 1 << 20) * 2:
        for kind, dtype in (("float32", np.float32), ("bfloat16", ml_dtypes.bfloat16), ("int64", np.int64)):
            got = await actor.call(Torch.hosted, n, kind)
            np.testing.assert_array_equal(got, np.arange(n, dtype=np.float32).astype(dtype), strict=True)
        got = await actor.call(Torch.hosted, n, "turned")
        np.testing.assert_array_equal(got, np.arange(n).reshape(-1, 2).T, strict=True)


async def test_overlapping_tensors_are_one_buffer(gpu: cb.Device) -> None:
    needs("torch")
    actor = gpu.actor_of(cb.Props(Torch))
    low, high = await actor.with_timeout(COLD).call(Torch.parts)
    again = await actor.call(Torch.again)
    assert low.allocation.id == high.allocation.id == again.allocation.id
    for n in range(1, 51):
        gpu.fill(low, float(n))
        gpu.fill(high, float(-n))
        np.testing.assert_array_equal(await gpu.copy(again).get(), [n] * 2 + [-n] * 6)
    lent = await gpu.actor_of(cb.Props(Cupy)).with_timeout(COLD).call(Cupy.lend, 9) if _has("cupy") else [low, high]
    assert lent[0].allocation.id == lent[1].allocation.id


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


async def test_torch_is_in_order_with_the_ops(gpu: cb.Device) -> None:
    needs("torch")
    actor = gpu.actor_of(cb.Props(Torch))
    ours, at_setup, now = await actor.with_timeout(COLD).call(Torch.streams)
    assert ours == at_setup == now != 0
    a = np.random.default_rng(0).random((3, 3), np.float32)
    x = gpu.blas.gemm(gpu.put(a), gpu.put(a))
    y = await actor.call(Torch.product, x)
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(await y.get(), a @ a @ w, rtol=1e-5)
    z = gpu.blas.gemm(x, y)
    np.testing.assert_allclose(await z.get(), a @ a @ a @ a @ w, rtol=1e-5)
    big = gpu.zeros((1 << 22,))
    actor.call(Torch.slowly, big, 300)  # 300 kernels, in flight when the next op is enqueued
    gpu.blas.scal(big, alpha=2.0)
    actor.call(Torch.slowly, big, 300)
    total = gpu.blas.asum(big)
    assert await total == pytest.approx((300 * 2 + 300) * (1 << 22))
    actor.call(Torch.scale, x, 2.0)
    np.testing.assert_allclose(await x.get(), a @ a * 2, rtol=1e-5)


async def test_low_precision_and_views_arrive(gpu: cb.Device) -> None:
    needs("torch")
    actor = gpu.actor_of(cb.Props(Torch))
    a = np.arange(24).reshape(4, 6)
    b = gpu.put(a.astype(ml_dtypes.bfloat16))
    assert await actor.with_timeout(COLD).call(Torch.kind, b) == "torch.bfloat16"
    np.testing.assert_array_equal(await actor.call(Torch.back, b[1:3, ::2]), a[1:3, ::2])
    c = gpu.put(a.astype(ml_dtypes.float8_e4m3fn))
    assert await actor.call(Torch.kind, c) == "torch.float8_e4m3fn"


async def test_memory_of_torch_lives_as_long_as_its_ref(gpu: cb.Device) -> None:
    needs("torch")
    actor = gpu.actor_of(cb.Props(Torch))
    x = gpu.put(np.eye(3, dtype=np.float32))
    refs = [await actor.with_timeout(COLD).call(Torch.product, x) for _ in range(50)]
    for ref in refs:
        np.testing.assert_array_equal(await ref.get(), np.arange(12).reshape(3, 4))
    del refs, ref
    gc.collect()
    await gpu.drain()
    async with asyncio.timeout(COLD):
        while (await gpu.stats()).buffers != 1:
            pass


async def test_out_of_memory_of_torch_is_an_answer(gpu: cb.Device) -> None:
    needs("torch")
    actor = gpu.actor_of(cb.Props(Torch))
    with pytest.raises(cb.OutOfMemory, match="CUDA out of memory"):
        await actor.with_timeout(COLD).call(Torch.too_much)
    assert await actor.call(Torch.streams)
    assert actor.restarts == 0
    with pytest.raises(TypeError, match=r"result: torch.Tensor cannot travel; .*ctx.ref"):
        await actor.call(Torch.forget)


async def test_cupy_is_in_order_with_the_ops(gpu: cb.Device) -> None:
    needs("cupy")
    actor = gpu.actor_of(cb.Props(Cupy))
    ours, current = await actor.with_timeout(COLD).call(Cupy.streams)
    assert ours == current
    x = gpu.full((1000,), 2.0, "f64")
    assert await actor.call(Cupy.total, x[::2]) == 2000.0
    whole, part = await actor.call(Cupy.lend, 7)
    np.testing.assert_array_equal(await whole.get(), np.arange(7.0))
    np.testing.assert_array_equal(await part.get(), [6, 4, 2, 0])
    await gpu.fill(whole, 1.0)  # two adopted arrays that overlap have no order of their own
    np.testing.assert_array_equal(await part.get(), np.ones(4))


async def test_a_device_assertion_replaces_the_context_and_the_actor_comes_back() -> None:
    needs("torch")
    try:
        async with cb.device("cuda", isolation="process", standby="warm") as gpu:
            actor = gpu.actor_of(cb.Props(Torch), name="model")
            x = gpu.put(np.eye(3, dtype=np.float32))
            first: Any = await actor.with_timeout(COLD).call(Torch.product, x)
            since = gpu.watch_generation().value
            with pytest.raises(cb.ContextPoisoned) as caught:
                await actor.call(Torch.out_of_range)
            assert "found when resident actor model raised:" in "\n".join(caught.value.__notes__)
            async with asyncio.timeout(COLD):
                await gpu.watch_generation().changed(since)
            with pytest.raises(cb.GpuRefStale):
                await first.get()
            again = await actor.with_timeout(COLD).call(Torch.product, gpu.put(np.eye(3, dtype=np.float32)))
            np.testing.assert_array_equal(await again.get(), np.arange(12).reshape(3, 4))
            assert (await gpu.stats()).restarts == 1
    except cb.BackendUnavailable as e:
        if os.environ.get("CALLBOARD_REQUIRE") == "cuda":
            pytest.fail(f"CALLBOARD_REQUIRE=cuda, and it cannot be used: {e}")
        pytest.skip(f"CUDA cannot be used: {e}")
