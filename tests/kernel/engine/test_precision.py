"""Layers of a model in lower precisions: ranges, rewriting, errors, the choice of the fastest."""

from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import model, node

import callboard as cb
from callboard.kernel.engine.onnxfile import model_of
from callboard.kernel.engine.precision import IBuilderConfig, lower
from callboard.kernel.engine.precision.calibrating import Range

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
RNG = np.random.default_rng(7)
BATCHES = [{"x": RNG.standard_normal((4, 3, 8, 8)).astype("f4")} for _ in range(3)]


def network(opset: int = 20) -> bytes:
    """A convolution, a product with a bias, and one whose weight is the value of a constant."""
    rng = np.random.default_rng(7)
    nodes = [
        node("Conv", ["x", "k", "kb"], ["a"], kernel_shape=[3, 3], strides=[2, 2]),
        node("Relu", ["a"], ["b"]),
        node("Flatten", ["b"], ["c"]),
        node("Gemm", ["c", "w", "wb"], ["d"], transB=1),
        node("Tanh", ["d"], ["e"]),
        node("Constant", [], ["u"], value=rng.standard_normal((10, 5)).astype("f4")),
        node("MatMul", ["e", "u"], ["y"]),
    ]
    weights = {
        "k": rng.standard_normal((6, 3, 3, 3)).astype("f4"),
        "kb": rng.standard_normal(6).astype("f4"),
        "w": rng.standard_normal((10, 54)).astype("f4") * np.geomspace(0.01, 1, 10, dtype="f4")[:, None],
        "wb": rng.standard_normal(10).astype("f4"),
    }
    return model(nodes, {"x": ("f32", ["n", 3, 8, 8])}, {"y": ("f32", ["n", 5])}, weights, opset)


@pytest.fixture
async def dev() -> Any:
    async with cb.device("cpu") as device:
        yield device


@pytest.mark.few(10)
@pytest.mark.parametrize("engine", ["onnxruntime", "callboard"])
@pytest.mark.parametrize(
    "precision, calibrator, most",
    [("f16", "minmax", 5e-3), ("int8", "minmax", 0.03), ("int8", "entropy", 0.03), ("int8", "percentile", 0.03)],
)
async def test_outputs_stay_close(dev: Any, engine: str, precision: str, calibrator: str, most: float) -> None:
    config = IBuilderConfig(precision, calibrator, percentile=0.999)
    found = await lower(dev, network(), config, BATCHES, engine=engine)
    assert 0 < found.error < most
    assert [(cost.op, cost.name) for cost in found.layers] == [("Conv", "a"), ("Gemm", "d"), ("MatMul", "y")]
    assert all(0 < cost.error < most for cost in found.layers)
    stored = {array.dtype.name for array in model_of(found.data).graph.initializers.values() if array.ndim > 1}
    assert stored == {"f16": {"float16"}, "int8": {"int8"}}[precision]
    plan = await dev.engine.build(found.data, engine=engine)
    assert (await dev.engine.context(plan)(BATCHES[0]).get()).shape == (4, 5)


async def test_fp8_computes_by_both_engines_alike(dev: Any) -> None:
    errors = []
    for engine in ("onnxruntime", "callboard"):
        found = await lower(dev, network(), IBuilderConfig("fp8"), BATCHES, engine=engine)
        errors.append(found.error)
    assert 0 < errors[0] < 0.2
    assert errors[1] == pytest.approx(errors[0], rel=1e-3)


async def test_layers_can_stay(dev: Any) -> None:
    data = network()
    every = await lower(dev, data, IBuilderConfig("int8"), BATCHES)
    some = await lower(dev, data, IBuilderConfig("int8", keep=("a", "d")), BATCHES)
    assert [cost.name for cost in some.layers] == ["y"]
    assert some.error < every.error
    assert "MatMul y" in some.explain()


async def test_best_is_measured(dev: Any) -> None:
    found = await lower(dev, network(), IBuilderConfig("best", tolerance=1e-9), BATCHES)
    assert (found.precision, found.error) == ("f32", 0.0)
    assert set(found.tried) == {"f32", "f16", "bf16", "int8"}
    assert "error" in found.tried["int8"]
    assert found.tried["bf16"].startswith("refused: ONNX Runtime cannot read model")


async def test_what_cannot_be_lowered_is_refused(dev: Any) -> None:
    with pytest.raises(cb.ShapeError, match="fp8 needs opset 19, and the model has 13"):
        await lower(dev, network(13), IBuilderConfig("fp8"), BATCHES)
    with pytest.raises(cb.ShapeError, match="keep has 'z', which is no layer; layers are a, d, y"):
        await lower(dev, network(), IBuilderConfig(keep=("z",)), BATCHES)
    with pytest.raises(cb.ShapeError, match="there are no batches"):
        await lower(dev, network(), IBuilderConfig(), [])
    plain = model([node("Relu", ["x"], ["y"])], {"x": ("f32", [2])}, {"y": ("f32", [2])})
    with pytest.raises(cb.ShapeError, match="the model has no layers to lower"):
        await lower(dev, plain, IBuilderConfig(), [{"x": np.ones(2, "f4")}])
    with pytest.raises(cb.ShapeError, match="precision is 'int4'; use one of f32, f16"):
        IBuilderConfig("int4")


def test_ranges_leave_what_is_rare_outside() -> None:
    values = np.append(RNG.standard_normal(20_000), [40.0, np.inf, np.nan]).astype("f4")
    one = Range()
    one.add(values)
    low, high = one.limits(IBuilderConfig(calibrator="minmax"))
    assert (low, high) == (float(values[:20_000].min()), 40.0)
    assert one.limits(IBuilderConfig(calibrator="percentile", percentile=0.999))[1] < 5
    assert 2 < one.limits(IBuilderConfig(calibrator="entropy"))[1] < 20
    assert Range().limits(IBuilderConfig()) == (0.0, 0.0)
