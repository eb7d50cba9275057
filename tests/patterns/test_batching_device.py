"""Batches on a device: a resident actor's method, device ops, and a context that is lost under them."""

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.patterns.batching.server import DynamicBatchingServer
from callboard.testing.faults import Faults

WEIGHTS = np.arange(12.0).reshape(4, 3)
LIMIT = 30.0


class Model(cb.ResidentActor):
    def setup(self, ctx: cb.HostContext) -> None:
        self.calls = 0

    def predict(self, rows: list[Any]) -> np.ndarray:
        if any(np.isnan(row).any() for row in rows):
            raise ValueError("NaN")
        self.calls += 1
        return np.asarray(np.stack(rows) @ WEIGHTS)

    def count(self) -> int:
        return self.calls


@pytest.fixture
async def gpu() -> AsyncIterator[cb.Device]:
    async with cb.device("cpu", isolation="thread") as device:
        yield device


def rows(n: int) -> list[Any]:
    return list(np.random.default_rng(1).standard_normal((n, 4)))


async def test_a_method_of_a_resident_actor(gpu: cb.Device) -> None:
    model = gpu.actor_of(cb.Props(Model), name="model")
    call = functools.partial(model.call, Model.predict)
    async with DynamicBatchingServer(call, max_batch=8, idempotent=True, on_error="bisect") as server:
        items = rows(20)
        found = await asyncio.gather(*(server.submit(item) for item in items))
        assert np.allclose(found, np.stack(items) @ WEIGHTS)
        assert await model.call(Model.count) == server.stats().batches == 3
        items[3] = np.full(4, np.nan)
        found = await asyncio.gather(*(server.submit(item) for item in items[:8]), return_exceptions=True)
        assert [isinstance(each, ValueError) for each in found] == [n == 3 for n in range(8)]


@pytest.mark.parametrize("executor", ["loop", "thread"])
async def test_a_chain_of_device_ops_gives_each_caller_its_row(gpu: cb.Device, executor: Any) -> None:
    weights = gpu.put(WEIGHTS)

    def product(items: list[Any]) -> cb.GpuRef:
        return gpu.blas.gemm(gpu.put(np.stack(items)), weights)

    async with DynamicBatchingServer(product, executor=executor) as server:
        items = rows(5)
        found = await asyncio.gather(*(server.submit(item) for item in items))
        assert all(isinstance(row, cb.GpuRef) and row.shape == (3,) for row in found)
        assert np.allclose([await row.get() for row in found], np.stack(items) @ WEIGHTS)


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.few(1)
async def test_a_lost_context_under_a_batch(fault: Faults, idempotent: bool) -> None:
    async with fault("host_killed", at=4) as gpu:
        weights = gpu.per_generation(lambda device: device.put(WEIGHTS))

        async def product(items: list[Any]) -> np.ndarray:
            return await gpu.blas.gemm(gpu.put(np.stack(items)), await weights()).get()

        async with DynamicBatchingServer(product, max_batch=4, idempotent=idempotent) as server:
            items = rows(8)
            async with asyncio.timeout(LIMIT):
                found = await asyncio.gather(*(server.submit(item) for item in items), return_exceptions=True)
            lost = [isinstance(each, cb.ContextPoisoned) for each in found]
            assert sum(lost) == (0 if idempotent else 4)
            for item, each in zip(items, found, strict=True):
                assert isinstance(each, BaseException) or np.allclose(each, item @ WEIGHTS)
            assert server.stats().repeated == (4 if idempotent else 0)
            assert np.allclose(await server.submit(items[0]), items[0] @ WEIGHTS)
