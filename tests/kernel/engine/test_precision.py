"""Layers of a model in lower precisions: ranges, rewriting, errors, the choice of the fastest."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import model, node

import callboard as cb
from callboard.kernel.engine.onnxfile import model_of
from callboard.kernel.engine.precision import IBuilderConfig, lower
from callboard.kernel.engine.precision.calibrating import Range
from callboard.kernel.engine.precision.layers import layers_of
from callboard.kernel.engine.precision.lowering import executing
from callboard.kernel.engine.precision.trials import Trials

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


@pytest.mark.few(12)
@pytest.mark.parametrize("engine", ["onnxruntime", "callboard"])
@pytest.mark.parametrize(
    "precision, calibrator, most",
    [("f16", "minmax", 5e-3), *(("int8", each, 0.03) for each in ("minmax", "mse", "entropy", "percentile"))],
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


@pytest.mark.parametrize("precision, most", [("fp8", 0.1), ("int8", 0.03)])
async def test_a_relu_before_a_layer_is_executed(dev: Any, precision: str, most: float) -> None:
    """ONNX Runtime by itself leaves it out before numbers of fp8, and an error of 0.5 and more comes of that."""
    rng = np.random.default_rng(3)
    nodes = [
        node("Gemm", ["x", "u", "c"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("Gemm", ["b", "v"], ["y"]),
    ]
    weights = {name: rng.standard_normal((16, 16)).astype("f4") for name in "uv"}
    weights["c"] = np.full(16, -4, "f4")  # most sums are below zero
    data = model(nodes, {"x": ("f32", ["n", 16])}, {"y": ("f32", ["n", 16])}, weights)
    batches = [{"x": rng.standard_normal((32, 16)).astype("f4")} for _ in range(2)]
    found = await lower(dev, data, IBuilderConfig(precision), batches, engine="onnxruntime")
    assert 0 < found.error < most


async def test_another_engine_executes_what_onnx_runtime_lacks(dev: Any) -> None:
    """Convolutions and products in bf16."""
    rng = np.random.default_rng(3)
    w = rng.standard_normal((16, 8)).astype("f4")
    data = model([node("Gemm", ["x", "w"], ["y"])], {"x": ("f32", ["n", 16])}, {"y": ("f32", ["n", 8])}, {"w": w})
    product = await lower(dev, data, IBuilderConfig("bf16"), [{"x": rng.standard_normal((4, 16)).astype("f4")}])
    for found in (product, await lower(dev, network(), IBuilderConfig("bf16"), BATCHES)):
        assert 0 < found.error < 0.02
        plan = await dev.engine.build(found.data)
        assert plan.engine == "callboard"
        assert "ONNX Runtime refuses the model" in plan.reason
        with pytest.raises(cb.LibraryError, match='; use engine="callboard", or leave engine out'):
            await dev.engine.build(found.data, engine="onnxruntime")
    unknown = model([node("Strange", ["x"], ["y"])], {"x": ("f32", [2])}, {"y": ("f32", [2])})
    with pytest.raises(cb.LibraryError, match=r"ONNX Runtime cannot read model: .*Strange"):
        await dev.engine.build(unknown)


async def test_the_path_of_a_file_is_taken(dev: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(network())
    for given in (path, str(path), bytearray(network())):
        found = await lower(dev, given, IBuilderConfig("f16"), BATCHES)
        assert 0 < found.error < 5e-3
    with pytest.raises(FileNotFoundError):
        await lower(dev, tmp_path / "none.onnx", IBuilderConfig("f16"), BATCHES)


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
    assert "error" in found.tried["bf16"]  # by callboard's own engine


def outliers() -> tuple[bytes, list[dict[str, Any]]]:
    """A product of an input with one channel of large values, like those of transformers, and one without it."""
    rng = np.random.default_rng(8)
    weights = {"w": rng.standard_normal((16, 32)).astype("f4"), "v": rng.standard_normal((32, 8)).astype("f4")}
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Tanh", ["a"], ["b"]), node("MatMul", ["b", "v"], ["y"])]
    data = model(nodes, {"x": ("f32", ["n", 16])}, {"y": ("f32", ["n", 8])}, weights)
    x = (rng.standard_normal((64, 16)) * 0.1).astype("f4")
    x[:, 3] *= 100
    weights["w"][3] *= 0.01
    return data, [{"x": x}]


@pytest.mark.parametrize("symmetric", [False, True])
async def test_channels_with_large_values_are_evened_out(dev: Any, symmetric: bool) -> None:
    data, batches = outliers()
    errors = []
    for smooth in (0.0, 0.7):
        config = IBuilderConfig("int8", smooth=smooth, symmetric=symmetric)
        errors.append((await lower(dev, data, config, batches, engine="callboard")).layers[0].error)
    assert errors[1] < errors[0] / 4


async def test_layers_that_cost_too_much_stay(dev: Any) -> None:
    data, batches = outliers()
    every = await lower(dev, data, IBuilderConfig("int8", smooth=0.0), batches)
    trials = Trials(
        data,
        IBuilderConfig(smooth=0.0, tolerance=every.error / 4),
        batches,
        executing(dev, None),
        layers_of(model_of(data)),
        model_of(data),
    )
    found = await trials.within("int8")
    assert found.error <= every.error / 4
    assert (found.kept, [cost.name for cost in found.layers]) == (["a"], ["y"])
    assert "kept in f32: a" in found.explain()


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


def test_every_channel_is_counted() -> None:
    """Of 4 rows of 65536 channels, one in four samples would be those of every fourth channel."""
    values = np.zeros((4, 1 << 16), "f4")
    values[:, 1::4] = 3.0
    one = Range()
    one.add(values)
    for calibrator in ("minmax", "mse", "percentile", "entropy"):
        assert one.limits(IBuilderConfig(calibrator=calibrator)) == pytest.approx((0.0, 3.0), abs=1e-3)


@pytest.mark.parametrize("calibrator", ["mse", "percentile", "entropy"])
def test_ranges_do_not_depend_on_the_order_of_batches(calibrator: str) -> None:
    parts = [RNG.standard_normal(5000) * scale for scale in (0.1, 1.0, 7.0)]
    found = []
    for order in (parts, parts[::-1], [np.concatenate(parts)]):
        one = Range()
        for each in order:
            one.add(each)
        found.append(one.limits(IBuilderConfig(calibrator=calibrator, percentile=0.99)))
    np.testing.assert_allclose(found[1], found[0], rtol=0.1)
    np.testing.assert_allclose(found[2], found[1], rtol=1e-6)


def test_percentiles_are_quantiles() -> None:
    values = RNG.standard_normal(100_000)
    one = Range()
    one.add(values)
    found = one.limits(IBuilderConfig(calibrator="percentile", percentile=0.99))
    np.testing.assert_allclose(found, np.quantile(values, [0.005, 0.995]), atol=2e-3)


def test_the_least_square_error() -> None:
    """Rare large values are cut, and not where the errors of those cut are larger than what the others gain."""
    few, many = (np.append(RNG.standard_normal(20_000), np.full(n, 40.0)) for n in (1, 400))
    ends = []
    for values in (few, many):
        one = Range()
        one.add(values)
        ends.append(one.limits(IBuilderConfig(calibrator="mse"))[1])
    assert ends[0] < 39 < ends[1]


def test_ranges_leave_what_is_rare_outside() -> None:
    values = np.append(RNG.standard_normal(20_000), [40.0, np.inf, np.nan]).astype("f4")
    one = Range()
    one.add(values)
    low, high = one.limits(IBuilderConfig(calibrator="minmax"))
    assert (low, high) == (float(values[:20_000].min()), 40.0)
    assert one.limits(IBuilderConfig(calibrator="percentile", percentile=0.999))[1] < 5
    assert 2 < one.limits(IBuilderConfig(calibrator="entropy"))[1] < 20
    assert Range().limits(IBuilderConfig()) == (0.0, 0.0)
