"""Whole models by callboard's own engine on a real GPU: as on a CPU, recorded, and with a host killed midway."""

import asyncio
import os
import signal
from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import encoder, linear, linear_of, model, node

import callboard as cb
from callboard.core.dtype import as_dtype
from callboard.kernel.engine import IBuilderConfig, lower

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

RNG = np.random.default_rng(21)


def encoded(dtype: str, n: int, m: int, padded: bool) -> dict[str, Any]:
    kind = as_dtype(dtype).np
    mask = np.zeros((n, 1, 1, m), kind)
    if padded:
        mask[-1, ..., m // 2 :] = -10000.0
    return {"x": RNG.standard_normal((n, m, 64)).astype(kind), "mask": mask}


async def expected(data: bytes, calls: list[dict[str, Any]]) -> list[Any]:
    async with cb.device("cpu") as cpu:
        context = cpu.engine.context(await cpu.engine.build(data, engine="callboard"))
        return [np.asarray(await context(call).get(), "f8") for call in calls]


@pytest.mark.parametrize("dtype, most", [("f32", 1e-4), ("f16", 2e-2), ("bf16", 1e-1)])
async def test_an_encoder_as_on_a_cpu(dtype: str, most: float) -> None:
    data = encoder(2, dtype, width=64, heads=2)
    calls = [encoded(dtype, n, m, padded) for n, m, padded in ((1, 16, False), (3, 24, True), (2, 17, True))]
    want = await expected(data, calls)
    async with cb.device("cuda") as dev:
        plan = await dev.engine.build(data)
        assert plan.engine == "callboard"
        assert plan.runner.joined == {"attention": 2, "linear": 6, "linear, side by side": 2}
        recorded, by_ops = dev.engine.context(plan, record=dev.record), dev.engine.context(plan)
        for _ in range(3):  # op by op, recorded, replayed
            for call, wanted in zip(calls, want, strict=True):
                for context in (recorded, by_ops):
                    y = np.asarray(await context(call).get(), "f8")
                    np.testing.assert_allclose(y, wanted, atol=most * np.abs(wanted).max())
        assert len(recorded._runner) == 3
        for instance, *_ in recorded._runner._recordings.values():
            ops = [each.op for each in instance.recording.nodes]
            assert ops.count("blas_lt.matmul") == 8
            assert ops.count("attention.forward") == 2


def convolutions() -> bytes:
    """A block of a residual network, with a pool, a product and a softmax."""
    weights: dict[str, Any] = {
        "w1": 0.2 * RNG.standard_normal((8, 3, 3, 3)).astype("f4"),
        "w2": 0.2 * RNG.standard_normal((8, 8, 3, 3)).astype("f4"),
        "b1": RNG.standard_normal(8).astype("f4"),
        "w3": RNG.standard_normal((8, 5)).astype("f4"),
        "b3": RNG.standard_normal(5).astype("f4"),
        "spatial": np.array([2, 3]),
    }
    for at in (1, 2):
        weights |= {f"s{at}": 1 + 0.1 * RNG.standard_normal(8).astype("f4"), f"v{at}": np.full(8, 1.5, "f4")}
        weights |= {f"z{at}": RNG.standard_normal(8).astype("f4"), f"m{at}": RNG.standard_normal(8).astype("f4")}
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c1", "s1", "z1", "m1", "v1"], ["n1"]),
        node("Relu", ["n1"], ["r1"]),
        node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c2", "s2", "z2", "m2", "v2"], ["n2"]),
        node("Add", ["n2", "r1"], ["a"]),
        node("HardSwish", ["a"], ["h"]),
        node("MaxPool", ["h"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("ReduceMean", ["p", "spatial"], ["g"], keepdims=0),
        node("Gemm", ["g", "w3", "b3"], ["e"]),
        node("Softmax", ["e"], ["y"]),
    ]
    return model(nodes, {"x": ("f32", ["n", 3, "h", "w"])}, {"y": ("f32", ["n", 5])}, weights)


async def test_convolutions_as_on_a_cpu() -> None:
    data = convolutions()
    calls = [{"x": RNG.standard_normal((n, 3, h, w)).astype("f4")} for n, h, w in ((1, 8, 8), (4, 16, 12))]
    want = await expected(data, calls)
    async with cb.device("cuda") as dev:
        context = dev.engine.context(await dev.engine.build(data), record=dev.record)
        for _ in range(3):
            for call, wanted in zip(calls, want, strict=True):
                np.testing.assert_allclose(await context(call).get(), wanted, atol=1e-4)
        assert len(context._runner) == 2


async def test_weights_are_replaced_between_calls() -> None:
    async with cb.device("cuda") as dev:
        plan = await dev.engine.build(linear(), refit=True)
        context = dev.engine.context(plan, record=dev.record)
        x = RNG.standard_normal((5, 4)).astype("f4")
        w = RNG.standard_normal((4, 3)).astype("f4")
        for _ in range(3):
            np.testing.assert_allclose(await context(x=x).get(), linear_of(x), rtol=1e-4, atol=1e-5)
        plan.refit({"w": w})
        for _ in range(3):
            np.testing.assert_allclose(await context(x=x).get(), linear_of(x, w), rtol=1e-4, atol=1e-5)


async def test_the_host_is_killed_while_calls_are_open() -> None:
    data = encoder(2, "f16", width=64, heads=2)
    call = encoded("f16", 4, 32, True)
    (want,) = await expected(data, [call])
    async with cb.device("cuda", isolation="process", standby=None) as dev:
        context = dev.engine.context(await dev.engine.build(data), record=dev.record)

        async def checked() -> None:
            np.testing.assert_allclose(np.asarray(await context(call).get(), "f8"), want, atol=2e-2 * want.max())

        for _ in range(3):
            await checked()
        generation = dev.watch_generation().value
        pid = dev.health().host_pid
        assert pid is not None
        open_calls = [context(call) for _ in range(20)]
        os.kill(pid, signal.SIGKILL)
        ended = await asyncio.gather(*(each.get() for each in open_calls), return_exceptions=True)
        assert all(isinstance(each, np.ndarray | cb.AccelError) for each in ended), ended
        await dev.watch_generation().changed(generation)
        for _ in range(3):
            await checked()
        assert len(context._runner) == 1


async def test_lower_precisions_are_near() -> None:
    """TF32 where the plan allows it, and products in halves between casts."""
    data, call = encoder(2, width=64, heads=2), encoded("f32", 3, 24, True)
    (want,) = await expected(data, [call])
    async with cb.device("cuda") as dev:
        rounded = await dev.engine.build(data, precision="tf32")
        lowered = await dev.engine.build((await lower(dev, data, IBuilderConfig("f16"), [call])).data)
        for plan in (rounded, lowered):
            context = dev.engine.context(plan, record=dev.record)
            for _ in range(3):
                y = np.asarray(await context(call).get(), "f8")
                np.testing.assert_allclose(y, want, atol=2e-2 * np.abs(want).max())
