"""Copies between context hosts of GPUs, of one GPU where there is one, and between a GPU and the CPU."""

import asyncio
from contextlib import AsyncExitStack

import numpy as np
import pytest
from tests.multi_device.copies_lab import BOUND, kill, numbers

import callboard as cb
from callboard.backends.cuda.links import device_links
from callboard.core import registry

pytestmark = [pytest.mark.gpu, pytest.mark.leaves_nothing]


def names() -> tuple[str, str]:
    """Of two devices; of one, opened twice in two systems, where there is no second."""
    return "cuda:0", f"cuda:{min(1, len(registry.backend('cuda').devices()) - 1)}"


@pytest.mark.parametrize("isolations", [("process", "process"), ("process", "thread"), ("thread", "process")])
async def test_by_handles(isolations: tuple[str, str]) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(BOUND):
        a, b = [
            await stack.enter_async_context(cb.device(name, isolation=how, standby=None))  # type: ignore[arg-type]
            for name, how in zip(names(), isolations, strict=True)
        ]
        values = np.random.default_rng(7).random((300, 400)).astype("f4")
        x = a.put(values)
        y = a.blas.gemm(x, x, transpose_b=True)
        there = y.to(b)
        z = b.blas.gemm(there, there)
        a.fill(y, 0.0)  # behind the copy
        want = values @ values.T
        np.testing.assert_allclose(await there.get(), want, rtol=1e-4)
        np.testing.assert_allclose(await z.get(), want @ want, rtol=1e-3)
        np.testing.assert_array_equal(await y.get(), np.zeros((300, 300)))
        np.testing.assert_array_equal(await x[10:20].T.to(b).get(), values[10:20].T)
        back = (b.put(values) * 2.0).to(a)  # the other way
        np.testing.assert_array_equal(await a.blas.scal(back, alpha=0.5).get(), values)
        out = b.zeros((300, 500))
        b.put(x, out=out[:, 50:450])
        np.testing.assert_array_equal((await out.get())[:, 50:450], values)
        big = a.put(np.arange(40 << 20, dtype="i4"))
        copies = [big.to(b) for _ in range(3)]
        for copy in copies:
            np.testing.assert_array_equal((await copy.get())[:: 1 << 16], np.arange(0, 40 << 20, 1 << 16))
        if isolations == ("process", "process"):
            assert a._actor.own._borrowers, "by handles"
            del x, y, big, there, z, copies, copy, back
            await a.trim()
            assert (await a.pool_stats()).cached_bytes == 0, "closed by the other process, and given back"


async def test_between_cpu_and_gpu() -> None:
    async with (
        cb.device("cuda:0", standby=None) as a,
        cb.device("cpu", isolation="process") as b,
        cb.device("cpu") as c,
        asyncio.timeout(BOUND),
    ):
        values = np.random.default_rng(7).random(20 << 20).astype("f4")  # several chunks
        x = a.put(values) * 2.0
        for other in (b, c):
            there = x.to(other)
            np.testing.assert_array_equal(await there.get(), values * 2.0)
            np.testing.assert_array_equal(await (there.to(a) * 0.5).get(), values)


async def test_losses() -> None:
    one, other = names()
    async with (
        cb.device(one, standby=None) as a,
        cb.device(other, standby=None) as b,
        asyncio.timeout(2 * BOUND),
    ):
        x = a.put(numbers())
        np.testing.assert_array_equal(await x.to(b).get(), numbers())
        copies = [a.full(1 << 26, float(i)).to(b) for i in range(20)]
        await copies[0]
        errors: list[str] = []
        killed = asyncio.ensure_future(kill(a))
        for i, copy in enumerate(copies):
            try:
                assert (await copy[:: 1 << 20].get() == i).all(), "the bytes of its source, or an error"
            except cb.ContextLost as e:
                errors.append(str(e))
        assert all("copy from cuda:0" in text or "ended while it was copied" in text for text in errors), errors
        await killed
        y = a.put(numbers() + 1)
        there = y.to(b)
        np.testing.assert_array_equal(await there.get(), numbers() + 1)
        assert await b.ready() is b
        assert (await b.stats()).restarts == 0, "the loss of the source is not the target's"
        await kill(b)
        np.testing.assert_array_equal(await y.to(b).get(), numbers() + 1)


async def test_the_topology_of_this_machine() -> None:
    uuids = [info.uuid for info in registry.backend("cuda").devices()]
    links = device_links(uuids)
    assert len(links) == len(uuids) * (len(uuids) - 1) // 2 or any(uuid.startswith("MIG") for uuid in uuids)
    async with cb.device("cuda:0") as gpu, cb.device("cpu") as cpu:
        topology = cb.P2pTopology([gpu, cpu])
        assert len(topology.islands()) == 2
        print(topology.explain(), links)
