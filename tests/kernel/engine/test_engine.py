"""Plans and contexts: both engines, shapes, weights, serialised plans, losses."""

import os
import signal
import struct
from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import B, W, graph, linear, linear_of, model, node

import callboard as cb
from callboard.kernel.engine.onnxfile import OnnxError, model_of
from callboard.kernel.engine.plan import EngineRefused

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
ENGINES = ("onnxruntime", "callboard")
X = np.random.default_rng(1).standard_normal((5, 4)).astype("f4")
LOOP: Any = {"i": ("i64", []), "c": ("bool", []), "n": ("f32", None)}
PROFILE = {"x": ((1, 4), (2, 4), (8, 4))}


@pytest.fixture(params=ENGINES)
def engine(request: Any) -> Any:
    return request.param


@pytest.fixture
async def dev() -> Any:
    async with cb.device("cpu") as device:
        yield device


async def test_a_context_computes_refs_in_program_order(dev: Any, engine: str) -> None:
    plan = await dev.engine.build(linear(), profiles=PROFILE, engine=engine)
    assert plan.engine == engine
    assert engine in plan.explain()
    first, second = dev.engine.context(plan), dev.engine.context(plan)
    x = dev.put(X)
    doubled = dev.elementwise.map("2.0 * x", x=x)
    ys = [first(x=x), second({"x": doubled}), first(x=dev.put(np.vstack([X, X]))[::2])]
    for y, want in zip(ys, (X, 2 * X, np.vstack([X, X])[::2]), strict=True):
        np.testing.assert_allclose(await y.get(), linear_of(want), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "given, words",
    [
        ({"x": np.zeros((9, 4), "f4")}, "input 'x' has the extent 9 on axis 0; the profile allows 1 to 8"),
        ({"x": np.zeros((2, 5), "f4")}, "input 'x' has the extent 5 on axis 1, expected 4"),
        ({"x": np.zeros((2, 4))}, r"input 'x' is f64\[2, 4\], expected x: f32\[n, 4\]"),
        ({"x": np.zeros(4, "f4")}, "with 1 axes"),
        ({"z": np.zeros((2, 4), "f4")}, "there is no input 'z'; the inputs are x"),
        ({}, "input 'x' is missing"),
    ],
)
async def test_inputs_are_checked_before_anything_is_sent(dev: Any, engine: str, given: Any, words: str) -> None:
    plan = await dev.engine.build(linear(), profiles=PROFILE, engine=engine, title="net")
    with pytest.raises(cb.ShapeError, match=f"net: .*{words}|net: {words}"):
        dev.engine.context(plan)(given)


async def test_outputs_that_only_the_engine_knows(dev: Any) -> None:
    """NonZero: as many columns as the input has elements other than 0."""
    data = model([node("NonZero", ["x"], ["y"])], {"x": ("f32", ["n"])}, {"y": ("i64", [1, "found"])})
    plan = await dev.engine.build(data)
    y = dev.engine.context(plan)(x=np.array([0, 3, 0, 4], "f4"))
    assert "i64[1, ?]" in repr(y)
    assert (await y.get()).tolist() == [[1, 3]]
    assert y.shape == (1, 2)
    shaped = [node("Reshape", ["x", "s"], ["z"]), node("NonZero", ["z"], ["y"])]
    data = model(shaped, {"x": ("f32", ["n"]), "s": ("i64", [2])}, {"y": ("i64", [2, "found"])})
    context = dev.engine.context(await dev.engine.build(data))
    assert (await context(x=np.ones(4, "f4"), s=[2, 2]).get()).shape == (2, 4)
    with pytest.raises(cb.ShapeError, match="node Reshape"):
        await context(x=np.ones(4, "f4"), s=[3, 7]).get()


async def test_an_output_without_a_number_of_axes_is_refused(dev: Any) -> None:
    body = graph(
        [node("Identity", ["c"], ["d"]), node("Neg", ["n"], ["m"])], LOOP, {"d": ("bool", []), "m": ("f32", None)}
    )
    nodes = [node("Loop", ["count", "", "x"], ["y"], body=body)]
    data = model(nodes, {"x": ("f32", [3])}, {"y": ("f32", None)}, {"count": np.int64(2)})
    with pytest.raises(cb.ShapeError, match="output 'y' has no declared number of axes, which ONNX Runtime needs"):
        await dev.engine.build(data, engine="onnxruntime")
    y = dev.engine.context(await dev.engine.build(data, engine="callboard"))(x=np.ones(3, "f4"))
    assert (await y.get()).tolist() == [1, 1, 1]


async def test_large_arrays_that_stay_unchanged_are_copied_off_the_thread(
    dev: Any, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callboard.kernel.engine.plan.LARGE", X.nbytes - 1)
    monkeypatch.setattr(dev._port, "holding", None)  # all executions are ops
    plan = await dev.engine.build(linear(), engine=engine)
    original, copied = plan.put, []

    def put(array: Any, **options: Any) -> Any:
        copied.append((array is X, options.get("non_blocking", False)))
        return original(array, **options)

    plan.put = put
    for unchanged in (False, True):
        copied.clear()
        y = await dev.engine.context(plan).run({"x": X}, unchanged=unchanged)
        np.testing.assert_allclose(await y.get(), linear_of(X), rtol=1e-5, atol=1e-6)
        assert (True, unchanged) in copied
    with pytest.raises(cb.ShapeError, match="with 1 axes"):
        await dev.engine.context(plan).run({"x": X[0]}, unchanged=True)


async def test_weights_are_replaced_whole(dev: Any, engine: str) -> None:
    plan = await dev.engine.build(linear(), engine=engine, refit=True)
    context = dev.engine.context(plan)
    before = context(x=X)
    plan.refit({"w": 2 * W, "b": B + 1})
    after = context(x=X)
    np.testing.assert_allclose(await before.get(), linear_of(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(await after.get(), linear_of(X, 2 * W, B + 1), rtol=1e-5, atol=1e-6)
    with pytest.raises(cb.ShapeError, match=r"weight 'w' is float32\[2\], expected float32\[4, 3\]"):
        plan.refit({"b": B, "w": np.zeros(2, "f4")})
    np.testing.assert_array_equal(plan.weights["b"], B + 1)
    loaded = await dev.engine.load(plan.serialize())
    np.testing.assert_array_equal(loaded.weights["w"], 2 * W)
    fixed = await dev.engine.build(linear(), engine=engine)
    with pytest.raises(cb.ShapeError, match="build it with refit=True"):
        fixed.refit({"w": W})


async def test_a_serialised_plan_is_refused_elsewhere(dev: Any, engine: str) -> None:
    plan = await dev.engine.build(linear(), profiles=PROFILE, engine=engine)
    data = plan.serialize()
    loaded = await dev.engine.load(data)
    assert (loaded.engine, loaded.profiles) == (engine, plan.profiles)
    np.testing.assert_allclose(await dev.engine.context(loaded)(x=X).get(), linear_of(X), rtol=1e-5, atol=1e-6)
    plan.version = "0.0.1"
    with pytest.raises(EngineRefused, match=r"for version '0\.0\.1', and this device has"):
        await dev.engine.load(plan.serialize())
    plan.version, plan.device = loaded.version, "cuda H100 driver 580"
    with pytest.raises(EngineRefused, match="for device 'cuda H100 driver 580'"):
        await dev.engine.load(plan.serialize())


def test_damaged_plans_and_models_are_refused() -> None:
    with cb.sync.device("cpu") as dev:
        data = dev.engine.build(linear(), engine="callboard").result().serialize()
        for at in range(0, len(data), 7):
            with pytest.raises(EngineRefused):
                dev.engine.load(data[:at]).result()
            with pytest.raises(EngineRefused):
                dev.engine.load(data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]).result()
        huge = b"CBENGINE" + struct.pack("<II", 1, 1 << 31) + bytes(64)
        with pytest.raises(EngineRefused, match="truncated"):
            dev.engine.load(huge).result()
        with pytest.raises(OnnxError, match="this is no ONNX model"):
            dev.engine.build(b"\xff" * 40).result()


def test_hostile_bytes_end_in_one_error() -> None:
    data, rng = linear(), np.random.default_rng(3)
    refused = 0
    for _ in range(2000):
        changed = bytearray(data[: rng.integers(1, len(data) + 1)])
        for at in rng.integers(0, len(changed), 3):
            changed[at] = rng.integers(256)
        try:
            model_of(bytes(changed))
        except OnnxError:
            refused += 1
    assert refused > 1000


async def test_what_an_engine_lacks_is_named_when_the_plan_is_built(dev: Any) -> None:
    nodes = [
        node("NonMaxSuppression", ["x"], ["a"]),
        node("Softmax", ["a"], ["b"], other=1),
        node("Own", ["b"], ["y"], "my"),
    ]
    data = model(nodes, {"x": ("f32", [2])}, {"y": ("f32", [2])})
    with pytest.raises(
        cb.UnsupportedOp, match=r"lacks NonMaxSuppression; Softmax's attribute other; my\.Own; use engine="
    ):
        await dev.engine.build(data, engine="callboard")
    with pytest.raises(cb.LibraryError, match="ONNX Runtime cannot read model"):
        await dev.engine.build(data, engine="onnxruntime")
    with pytest.raises(cb.BackendUnavailable, match="tensorrt"):
        dev.engine.build(linear(), engine="tensorrt")
    with pytest.raises(cb.ShapeError, match="use one of onnxruntime, callboard, tensorrt"):
        dev.engine.build(linear(), engine="other")
    with pytest.raises(cb.ShapeError, match="axis 0 goes from 3 over 2 to 8"):
        await dev.engine.build(linear(), profiles={"x": ((3, 4), (2, 4), (8, 4))})


async def test_a_plan_is_valid_in_the_next_generation() -> None:
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        contexts = []
        for name in ENGINES:
            plan = await dev.engine.build(linear(), engine=name, refit=name == "callboard")
            contexts.append(dev.engine.context(plan))
        old = dev.put(X)
        await old
        generation = dev.watch_generation().value
        os.kill(dev.health().host_pid, signal.SIGKILL)
        await dev.watch_generation().changed(generation)
        for context in contexts:
            np.testing.assert_allclose(await context(x=X).get(), linear_of(X), rtol=1e-5, atol=1e-6)
            with pytest.raises(cb.GpuRefStale):
                context(x=old)


async def test_results_may_be_written() -> None:
    """They share no memory with inputs, constants, weights or each other."""
    nodes = [node("Identity", ["x"], ["a"]), node("Reshape", ["x", "s"], ["b"]), node("Identity", ["w"], ["c"])]
    nodes += [node("Relu", ["x"], ["d"]), node("Identity", ["d"], ["e"])]
    outs = {"a": ("f32", ["n", 4]), "b": ("f32", None), "c": ("f32", [4, 3])}
    outs |= {name: ("f32", ["n", 4]) for name in "de"}
    data = model(nodes, {"x": ("f32", ["n", 4])}, outs, {"w": W, "s": np.array([-1])})
    async with cb.device("cpu") as dev:
        for refit in (False, True):
            context = dev.engine.context(await dev.engine.build(data, engine="callboard", refit=refit))
            x = dev.put(X[:2])
            for _ in range(2):
                found = context(x=x)
                for at, ref in enumerate(found):
                    dev.put(np.full(ref.shape, at, "f4"), out=ref)
                for at, ref in enumerate(found):
                    np.testing.assert_array_equal(await ref.get(), np.full(ref.shape, at, "f4"))
                np.testing.assert_array_equal(await context(x=x)[2].get(), W)
            np.testing.assert_array_equal(await x.get(), X[:2])


async def test_what_is_shown_of_a_plan_is_short(dev: Any, engine: str) -> None:
    weights = {"w": np.arange(1 << 14, dtype="f4").reshape(128, 128)}
    data = model([node("MatMul", ["x", "w"], ["y"])], {"x": ("f32", [1, 128])}, {"y": ("f32", [1, 128])}, weights)
    plan = await dev.engine.build(data, engine=engine, title="net")
    assert repr(plan).startswith(f"<plan of net by {engine} ")
    assert f"{len(data)} bytes" in repr(plan)
    for shown in (plan, plan.model, dev.engine.context(plan)):
        assert len(repr(shown)) < 200
