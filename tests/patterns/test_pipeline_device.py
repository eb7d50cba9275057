"""Pipelines on devices: the three stages of a device, a chain of refs, and a context that is lost under them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.testing.faults import Faults

LIMIT = 30.0
WEIGHTS = np.random.default_rng(1).standard_normal((32, 32)).astype("f4")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
async def gpu(request: pytest.FixtureRequest) -> AsyncIterator[cb.Device]:
    async with cb.device(request.param, isolation="process") as device:
        yield device


def items(count: int) -> list[Any]:
    return list(np.random.default_rng(2).standard_normal((count, 32, 32)).astype("f4"))


async def test_copies_and_computing(gpu: cb.Device) -> None:
    weights = gpu.put(WEIGHTS)
    pipeline = cb.PipelineExecutor[Any].on(gpu, lambda x: gpu.blas.gemm(gpu.blas.gemm(x, weights), weights))
    given = items(40)
    found = await pipeline.collect(given)
    np.testing.assert_allclose(np.stack(found), np.stack(given) @ WEIGHTS @ WEIGHTS, rtol=1e-3, atol=1e-3)
    assert (pipeline.stage_count, pipeline.stats.completed) == (3, 40)


@pytest.mark.slow
async def test_page_locked_arrays_are_used_again_and_again(gpu: cb.Device) -> None:
    """Each buffer is written by a copy to the host and read by one to the device in turn, nothing awaited between."""
    weights = gpu.put(WEIGHTS)
    host = gpu.host_empty((32, 32))
    host[:] = WEIGHTS
    for _ in range(50):
        last = gpu.blas.gemm(gpu.put(host), weights, alpha=0.1).get(out=host)
    await last
    expected = WEIGHTS.astype("f8") @ np.linalg.matrix_power(0.1 * WEIGHTS.astype("f8"), 50)
    np.testing.assert_allclose(host, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


async def test_a_ref_at_the_end_is_waited_for(gpu: cb.Device) -> None:
    async with contextlib.aclosing(cb.PipelineExecutor[cb.GpuRef](gpu.put).run(items(3))) as results:
        assert [ref.shape async for ref in results] == [(32, 32)] * 3


async def test_an_op_that_fails_is_the_error_of_its_item(gpu: cb.Device) -> None:
    given = [*items(2), np.ones((3, 3), "f4"), *items(1)]
    weights = gpu.put(WEIGHTS)
    pipeline = cb.PipelineExecutor[Any].on(gpu, lambda x: gpu.blas.gemm(x, weights), on_error="item")
    found = await pipeline.collect(given)
    assert [isinstance(each, cb.ItemError) for each in found] == [False, False, True, False]
    assert (found[2].stage, type(found[2].error)) == ("compute", cb.ShapeError)


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.few(1)
async def test_a_lost_context(fault: Faults, attempts: int) -> None:
    """Items in flight fail typed or run again; those that had not entered run in the next context."""
    async with fault("host_killed", at=9) as gpu:
        weights = gpu.per_generation(lambda device: device.put(WEIGHTS))

        async def compute(x: Any) -> Any:
            return gpu.blas.gemm(gpu.put(x), await weights()).get()

        async def whole(x: Any) -> Any:
            return await (await compute(x))

        pipeline = cb.PipelineExecutor[Any](whole, in_flight=3, attempts=attempts, on_error="item")
        given = items(20)
        async with asyncio.timeout(LIMIT):
            found = await pipeline.collect(given)
        lost = [each for each in found if isinstance(each, cb.ItemError)]
        assert len(found) == 20
        assert all(isinstance(each.error, cb.ContextLost) for each in lost)
        assert (0 if attempts == 2 else 1) <= len(lost) <= (0 if attempts == 2 else 3)
        assert pipeline.stats.retried == (0 if attempts == 1 else pipeline.stats.retried)
        assert attempts == 1 or pipeline.stats.retried >= 1
        for item, each in zip(given, found, strict=True):
            if not isinstance(each, cb.ItemError):
                np.testing.assert_allclose(each, item @ WEIGHTS, rtol=1e-4, atol=1e-4)


async def test_stages_on_two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    async with cb.device("cpu:0") as one, cb.device("cpu:1") as two:
        first, second = one.put(WEIGHTS), two.put(WEIGHTS)
        pipeline = cb.PipelineExecutor[Any](
            one.put,
            lambda x: one.blas.gemm(x, first).get(),
            two.put,
            lambda x: two.blas.gemm(x, second).get(),
        )
        given = items(8)
        found = await pipeline.collect(given)
        np.testing.assert_allclose(np.stack(found), np.stack(given) @ WEIGHTS @ WEIGHTS, rtol=1e-3, atol=1e-3)
