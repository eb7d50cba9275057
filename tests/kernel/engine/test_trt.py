"""TensorRT-RTX's builder, which needs no GPU; what it builds is refused here."""

import sys
from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import RNG, linear, model, node

import callboard as cb
from callboard.kernel.engine import IBuilderConfig, TrtRuntime, lower
from callboard.kernel.engine.plan import EngineRefused, container, header_of

W = RNG.standard_normal((64, 32)).astype("f4")
PROFILE = {"x": ((1, 64), (8, 64), (64, 64))}


def net() -> bytes:
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["y"])]
    return model(nodes, {"x": ("f32", ["n", 64])}, {"y": ("f32", ["n", 32])}, {"w": W})


@pytest.fixture(scope="module")
def runtime() -> TrtRuntime:
    try:
        return TrtRuntime()
    except cb.BackendUnavailable:
        pytest.skip("TensorRT is not installed")


async def test_a_plan_is_built_and_refused_here(runtime: TrtRuntime) -> None:
    steps: list[Any] = []
    built = await runtime.build(
        net(), target="SM89", profiles=PROFILE, progress=lambda *step: steps.append(step), title="net"
    )
    assert built.engine.startswith("TensorRT")
    assert built.ports == ["input  x: FLOAT[-1, 64]", "output y: FLOAT[-1, 32]"]
    assert built.plan
    assert any(phase == "Building engine" and total > 0 for phase, _, total in steps)
    again = await runtime.build(net(), target="SM89", profiles=PROFILE, timing_cache=built.timing_cache, title="net")
    assert again.layers == built.layers
    refusal = await runtime.refusal(built.serialized)
    if refusal is None:
        pytest.skip("this machine executes the plan")
    assert "Cuda" in refusal or "compute capability" in refusal


async def test_a_refused_plan_falls_back_by_name(runtime: TrtRuntime, caplog: Any) -> None:
    built = await runtime.build(net(), target="SM89", profiles=PROFILE, title="net")
    x = np.ones((3, 64), "f4")
    async with cb.device("cpu") as dev:
        with pytest.raises(EngineRefused, match=r"net is a plan of TensorRT.* for SM89, which callboard does not"):
            await dev.engine.load(built.serialized)
        plan = await dev.engine.load(built.serialized, fallback=True)
        y = await dev.engine.context(plan)(x=x).get()
        with pytest.raises(cb.ShapeError, match="the profile allows 1 to 64"):
            dev.engine.context(plan)(x=np.ones((65, 64), "f4"))
    np.testing.assert_allclose(y, np.maximum(x @ W, 0), rtol=1e-5, atol=1e-5)
    assert f"{built.engine} for SM89" in plan.explain()
    assert f"{plan.engine} executes it" in caplog.text


@pytest.mark.parametrize("precision", ["f16", "bf16", "int8"])
async def test_lowered_models_are_built(runtime: TrtRuntime, precision: str) -> None:
    batch = {"x": np.random.default_rng(2).standard_normal((16, 64)).astype("f4")}
    async with cb.device("cpu") as dev:
        lowered = await lower(dev, net(), IBuilderConfig(precision, symmetric=True), [batch], engine="callboard")
    assert lowered.error < 0.02
    built = await runtime.build(lowered.data, target="SM89", profiles=PROFILE)
    assert built.layers > 2


async def test_what_is_refused(runtime: TrtRuntime) -> None:
    with pytest.raises(cb.ShapeError, match=r"input x: f32\[n, 64\] has dynamic extents; TensorRT needs a profile"):
        await runtime.build(net(), target="SM89")
    with pytest.raises(cb.LibraryError, match=r"has no target 'SM10'; it has CURRENT.*SM89"):
        await runtime.build(net(), target="SM10", profiles=PROFILE)
    own = model([node("Own", ["x"], ["y"], "my")], {"x": ("f32", [2])}, {"y": ("f32", [2])})
    with pytest.raises(cb.UnsupportedOp, match=r"TensorRT.* cannot read the model: .*Own"):
        await runtime.build(own, target="SM89")


async def test_damaged_plans(runtime: TrtRuntime) -> None:
    built = await runtime.build(net(), target="SM89", profiles=PROFILE)
    header, data = header_of(built.serialized)
    with pytest.raises(EngineRefused, match="checksum"):
        await runtime.refusal(built.serialized[:-40] + b"0" * 40)
    cut = container({**header, "compiled": header["compiled"] - 100}, data[:-100])
    assert await runtime.refusal(cut) is not None
    other = container({**header, "version": "TensorRT-RTX 0.1"}, data)
    assert f"it is a plan of TensorRT-RTX 0.1, and {built.engine} is installed" == await runtime.refusal(other)
    async with cb.device("cpu") as dev:
        plan = await dev.engine.build(linear(), engine="callboard")
    with pytest.raises(EngineRefused, match="is a plan of callboard, not of TensorRT"):
        await runtime.refusal(plan.serialize())


def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, code: str) -> TrtRuntime:
    """A runtime whose module is a file."""
    (tmp_path / "tensorrt.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", ":".join(each for each in sys.path if each))
    return TrtRuntime("tensorrt", limit_s=60)


async def test_a_process_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    runtime = stand_in(monkeypatch, tmp_path, "import os\nos._exit(7)\n")
    with pytest.raises(cb.LibraryError, match="net: the process of tensorrt ended with 7"):
        await runtime.build(net(), target="SM89", profiles=PROFILE, title="net")


async def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    stand_in(monkeypatch, tmp_path, "import threading\nthreading.Event().wait()\n")
    with pytest.raises(cb.LibraryError, match=r"took more than 0\.2 s"):
        await TrtRuntime("tensorrt", limit_s=0.2).build(net(), target="SM89", profiles=PROFILE)


def test_it_is_named_if_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(cb.BackendUnavailable, match=r"pip install 'callboard\[tensorrt\]'"):
        TrtRuntime()
    with pytest.raises(cb.ShapeError, match="module is 'torch'"):
        TrtRuntime("torch")
