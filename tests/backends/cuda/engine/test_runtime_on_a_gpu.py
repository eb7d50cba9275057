"""ONNX Runtime on a real GPU: as on a CPU, in order with other libraries, with new weights, and with a killed host."""

import asyncio
import os
import signal
from typing import Any

import numpy as np
import pytest
from tests.backends.cuda.engine.test_engines_on_a_gpu import convolutions, encoded, expected
from tests.faults.cuda.actors import Striker
from tests.kernel.engine.models import W, encoder, linear, linear_of, model, node

import callboard as cb

PROVIDER = "CUDAExecutionProvider"
runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        PROVIDER not in runtime.get_available_providers(), reason="this build of ONNX Runtime has no CUDA provider"
    ),
]

RNG = np.random.default_rng(33)


def on_a_cpu(data: bytes, call: dict[str, Any]) -> list[Any]:
    """What ONNX Runtime's other provider computes."""
    return list(runtime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, call))


async def opened(dev: Any, data: bytes, **options: Any) -> Any:
    plan = await dev.engine.build(data, engine="onnxruntime", **options)
    assert (plan.engine, plan.version) == ("onnxruntime", runtime.__version__)
    return plan


def several() -> bytes:
    """Two outputs, one of them of as many columns as the input has positive elements."""
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("NonZero", ["r"], ["places"]),
        node("ReduceSum", ["r", "axes"], ["sums"], keepdims=0),
    ]
    outputs: Any = {"places": ("i64", [2, "found"]), "sums": ("f32", ["n"])}
    return model(nodes, {"x": ("f32", ["n", "m"])}, outputs, {"axes": np.array([1])})


def shaped() -> bytes:
    """An input of whole numbers that ONNX Runtime reads on the host, and an operator that CUDA's provider lacks."""
    nodes = [node("Reshape", ["x", "to"], ["r"]), node("Det", ["r"], ["y"])]
    return model(nodes, {"x": ("f32", ["n"]), "to": ("i64", [3])}, {"y": ("f32", ["found"])})


MODELS: dict[str, tuple[bytes, list[dict[str, Any]], float]] = {
    "linear": (linear(), [{"x": RNG.standard_normal((n, 4)).astype("f4")} for n in (1, 5, 64)], 1e-5),
    "encoder": (
        encoder(2, width=64, heads=2),
        [encoded("f32", n, m, padded) for n, m, padded in ((1, 16, False), (3, 24, True), (2, 17, True))],
        1e-4,
    ),
    "convolutions": (
        convolutions(),
        [{"x": RNG.standard_normal((n, 3, h, w)).astype("f4")} for n, h, w in ((1, 8, 8), (4, 16, 12))],
        1e-4,
    ),
    "several": (several(), [{"x": RNG.standard_normal((n, 7)).astype("f4")} for n in (1, 3, 40)], 1e-5),
    "shaped": (
        shaped(),
        [{"x": RNG.standard_normal(n * s * s).astype("f4"), "to": np.array([n, s, s])} for n, s in ((1, 3), (5, 2))],
        1e-4,
    ),
}


@pytest.mark.parametrize("name", MODELS)
async def test_as_on_a_cpu(name: str) -> None:
    data, calls, most = MODELS[name]
    wanted = [on_a_cpu(data, call) for call in calls]
    async with cb.device("cuda") as dev:
        plan = await opened(dev, data)
        contexts = [dev.engine.context(plan) for _ in range(2)]
        for _ in range(3):
            for call, want in zip(calls, wanted, strict=True):
                for context in contexts:
                    outs = context(call)
                    for out, each in zip(outs if isinstance(outs, tuple) else (outs,), want, strict=True):
                        await out  # whose extents may be known only now
                        y = await out.get()
                        assert (y.shape, y.dtype) == (each.shape, each.dtype)
                        np.testing.assert_allclose(y, each, atol=most * max(1.0, np.abs(each).max(initial=0)))
        assert plan.waits is (name == "shaped")
        assert ("Det" in plan.explain()) is (name == "shaped")


@pytest.mark.parametrize("dtype, most", [("f16", 2e-2), ("bf16", 1e-1)])
async def test_halves(dtype: str, most: float) -> None:
    data, call = encoder(2, dtype, width=64, heads=2), encoded(dtype, 3, 24, True)
    (want,) = await expected(data, [call])
    async with cb.device("cuda") as dev:
        try:
            context = dev.engine.context(await opened(dev, data))
        except cb.LibraryError as e:
            assert dtype == "bf16"  # for which its provider lacks some operators
            pytest.skip(str(e)[:200])
        for _ in range(3):
            y = np.asarray(await context(call).get(), "f8")
            np.testing.assert_allclose(y, want, atol=most * np.abs(want).max())


async def test_it_is_in_order_with_other_libraries() -> None:
    """What is written just before is read, and what is written just after is not; nobody waits in between."""
    rows = 1 << 20
    async with cb.device("cuda") as dev:
        context = dev.engine.context(await opened(dev, linear()))
        x = dev.zeros((rows, 4))
        await context(x=x).get()
        found = []
        for turn in range(1, 21):
            dev.fill(x, float(turn))
            y = context(x=x)
            dev.fill(x, -1e6)  # the execution has read it
            found.append(dev.xp.max(dev.xp.abs(y - y[0]), axis=0))
            found.append(y[-1])
        for turn in range(1, 21):
            apart, last = [await each.get() for each in found[2 * turn - 2 : 2 * turn]]
            assert not apart.any(), turn
            np.testing.assert_allclose(last, linear_of(np.full((1, 4), turn, "f4"))[0], rtol=1e-4, atol=1e-4)


async def test_inputs_on_the_host_are_in_order_too() -> None:
    data = model(
        [node("Reshape", ["x", "to"], ["y"])], {"x": ("f32", ["n"]), "to": ("i64", [2])}, {"y": ("f32", ["a", "b"])}
    )
    async with cb.device("cuda") as dev:
        context = dev.engine.context(await opened(dev, data))
        x, to, busy = dev.put(np.arange(64, dtype="f4")), dev.put(np.array([1, 64])), dev.zeros(1 << 26)
        for turn in range(6):
            dev.xp.sin(busy)  # so that the device is behind the host
            dev.memcpy(to, dev.put(np.array([2**turn, 64 // 2**turn])))
            y = context(x=x, to=to)
            await y
            assert (await y.get()).shape == (2**turn, 64 // 2**turn)


async def test_weights_are_replaced_between_calls() -> None:
    async with cb.device("cuda") as dev:
        plan = await opened(dev, linear(), refit=True)
        context = dev.engine.context(plan)
        x = RNG.standard_normal((5, 4)).astype("f4")
        w = RNG.standard_normal((4, 3)).astype("f4")
        calls = []
        for turn in range(6):
            plan.refit({"w": w if turn % 2 else W})
            calls.append((context(x=x), w if turn % 2 else W))
        for y, used in calls:
            np.testing.assert_allclose(await y.get(), linear_of(x, used), rtol=1e-4, atol=1e-5)
        loaded = await dev.engine.load(plan.serialize())
        np.testing.assert_allclose(await dev.engine.context(loaded)(x=x).get(), linear_of(x, w), rtol=1e-4, atol=1e-5)
        await dev.engine.release(plan)
        np.testing.assert_allclose(await context(x=x).get(), linear_of(x, w), rtol=1e-4, atol=1e-5)


async def test_inputs_that_no_node_takes_are_refused_and_the_device_goes_on() -> None:
    data = model(
        [node("Reshape", ["x", "to"], ["y"])], {"x": ("f32", [8]), "to": ("i64", [2])}, {"y": ("f32", ["a", "b"])}
    )
    async with cb.device("cuda") as dev:
        context = dev.engine.context(await opened(dev, data))
        x, generation = np.arange(8, dtype="f4"), dev.watch_generation().value
        with pytest.raises(cb.ShapeError, match=r"node Reshape.*pass other values or another shape"):
            await context(x=x, to=np.array([3, 3]))
        y = context(x=x, to=np.array([2, 4]))
        await y
        assert (await y.get()).tolist() == x.reshape(2, 4).tolist()
        assert dev.watch_generation().value == generation


async def test_a_session_is_released_after_a_failure() -> None:
    """The recurrent node before has left host memory to ONNX Runtime, which frees it when the session ends."""
    weights = {
        "w": RNG.standard_normal((1, 32, 4)).astype("f4"),
        "r": RNG.standard_normal((1, 32, 8)).astype("f4"),
    }
    nodes = [
        node("LSTM", ["x", "w", "r"], ["s"], hidden_size=8),
        node("Reshape", ["s", "to"], ["y"]),
    ]
    inputs: Any = {"x": ("f32", ["n", 2, 4]), "to": ("i64", [1])}
    data = model(nodes, inputs, {"y": ("f32", ["m"])}, weights)
    x = RNG.standard_normal((5, 2, 4)).astype("f4")
    async with cb.device("cuda") as dev:
        plan = await opened(dev, data)
        context, generation = dev.engine.context(plan), dev.watch_generation().value
        (want,) = on_a_cpu(data, {"x": x, "to": np.array([80])})
        for _ in range(5):
            with pytest.raises(cb.ShapeError, match="node Reshape"):
                await context(x=x, to=np.array([7]))
            await dev.engine.release(plan)
            y = context(x=x, to=np.array([80]))
            await y
            np.testing.assert_allclose(await y.get(), want, atol=1e-4)
        assert dev.watch_generation().value == generation


async def test_the_host_is_killed_while_calls_are_open() -> None:
    data, call = encoder(2, width=64, heads=2), encoded("f32", 4, 32, True)
    (want,) = on_a_cpu(data, call)
    async with cb.device("cuda", isolation="process", standby=None) as dev:
        context = dev.engine.context(await opened(dev, data))

        async def checked() -> None:
            np.testing.assert_allclose(await context(call).get(), want, atol=1e-4 * np.abs(want).max())

        for _ in range(3):
            await checked()
        generation, pid = dev.watch_generation().value, dev.health().host_pid
        assert pid is not None
        open_calls = [context(call) for _ in range(20)]
        os.kill(pid, signal.SIGKILL)
        ended = await asyncio.gather(*(each.get() for each in open_calls), return_exceptions=True)
        assert all(isinstance(each, np.ndarray | cb.AccelError) for each in ended), ended
        await dev.watch_generation().changed(generation)
        for _ in range(3):
            await checked()


async def test_a_poisoned_context_is_replaced() -> None:
    """Its sessions are left alone; the next host reads the model again."""
    x = RNG.standard_normal((5, 4)).astype("f4")
    async with cb.device("cuda", isolation="process") as dev:
        context = dev.engine.context(await opened(dev, linear()))
        np.testing.assert_allclose(await context(x=x).get(), linear_of(x), rtol=1e-4, atol=1e-5)
        generation = dev.watch_generation().value
        striker = await dev.actor_of(cb.Props(Striker), wait=True)
        with pytest.raises(cb.ContextPoisoned):
            await striker.call(Striker.strike, "illegal")
        await dev.watch_generation().changed(generation)
        np.testing.assert_allclose(await context(x=x).get(), linear_of(x), rtol=1e-4, atol=1e-5)


WORDS = (
    "test_conv_",
    "test_resize_upsample_scales_nearest",
    "test_softmax",
    "test_lstm",
    "test_reduce_sum",
    "test_where",
    "test_nonzero",
)


async def test_a_part_of_the_node_suite() -> None:
    pytest.importorskip("onnx", reason="the node suite is in the package onnx")
    from onnx_nodes.__main__ import cases, outcome

    chosen = [case for case in cases(list(WORDS)) if not case.name.endswith("expanded")][:80]
    assert len(chosen) > 40
    async with cb.device("cuda") as dev:
        found = {case.name: await outcome(dev, case, "onnxruntime") for case in chosen}
    assert {name: why for name, (kind, why) in found.items() if kind == "wrong"} == {}
    assert sum(kind == "passed" for kind, _ in found.values()) >= 0.8 * len(chosen)
