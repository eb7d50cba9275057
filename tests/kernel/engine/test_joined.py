"""Nodes that one op computes: how many ops are left, that results are the same, and where nodes stay apart."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import encoder, model, node

import callboard as cb
from callboard.core.dtype import as_dtype
from callboard.kernel.engine import IBuilderConfig, lower
from callboard.kernel.engine.fusing import attention as fused_attention
from callboard.kernel.engine.inputs.budget import finished
from callboard.kernel.engine.mapped import graph
from callboard.serve.bundled import minilm_ops

RNG = np.random.default_rng(11)
W = RNG.standard_normal((6, 5)).astype("f4")
B = RNG.standard_normal(5).astype("f4")
X = RNG.standard_normal((2, 3, 6)).astype("f4")


@pytest.fixture
async def dev() -> Any:
    async with cb.device("cpu") as device:
        yield device


async def ops_of(dev: Any, data: bytes, call: dict[str, Any]) -> Counter[str]:
    """The ops of an execution."""
    context = dev.engine.context(await dev.engine.build(data, engine="callboard"), record=dev.record)
    for _ in range(2):
        await context(call)
    ((instance, *_),) = context._runner._recordings.values()
    return Counter(each.op for each in instance.recording.nodes)


async def by_nodes(dev: Any, data: bytes, call: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The result node by node."""
    with monkeypatch.context() as patch:
        patch.setattr(graph, "fused", lambda steps, *rest: steps)
        plan = await dev.engine.build(data, engine="callboard")
    assert not plan.runner.joined
    return await dev.engine.context(plan)(call).get()


def encoded(dtype: str, n: int = 2, m: int = 5) -> dict[str, Any]:
    mask = np.zeros((n, 1, 1, m), as_dtype(dtype).np)
    mask[-1, ..., m // 2 :] = -10000.0
    return {"x": RNG.standard_normal((n, m, 32)).astype(mask.dtype), "mask": mask}


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
async def test_a_layer_has_no_more_ops_than_one_written_by_hand(
    dev: Any, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = [await ops_of(dev, encoder(n, dtype), encoded(dtype)) for n in (1, 2)]
    layer = second - first
    assert layer == {
        "blas_lt.matmul": 4,
        "attention.forward": 1,
        "dnn.layer_norm": 2,
        "elementwise.map": 1,
    }
    assert layer.total() <= await by_hand(dev, dtype, monkeypatch)


async def by_hand(dev: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The ops of a layer of MiniLM as the demo has it."""
    width, kind = minilm_ops.WIDTH, as_dtype(dtype).np
    names = [f"{part}.{name}" for part in ("attention.self", "attention.output") for name in ("query", "key", "value")]
    shapes = dict.fromkeys((*names[:3], "attention.output.dense"), (width, width))
    shapes |= {"intermediate.dense": (4 * width, width), "output.dense": (width, 4 * width)}
    layer = {f"{name}.weight": shape for name, shape in shapes.items()}
    layer |= {f"{name}.bias": shape[:1] for name, shape in shapes.items()}
    layer |= {
        f"{part}.LayerNorm.{what}": (width,) for part in ("attention.output", "output") for what in ("weight", "bias")
    }
    every = {f"encoder.layer.{i}.{name}": shape for i in range(2) for name, shape in layer.items()}
    every |= {f"embeddings.{name}_embeddings.weight": (8, width) for name in ("word", "position", "token_type")}
    every |= {f"embeddings.LayerNorm.{what}": (width,) for what in ("weight", "bias")}
    weights = {name: dev.put(np.zeros(shape, kind)) for name, shape in every.items()}
    text = {name: dev.put(array) for name, array in minilm_ops.padded([[1, 2], [3]]).items()}
    counts = []
    for layers in (1, 2):
        monkeypatch.setattr(minilm_ops, "LAYERS", layers)
        with dev.record() as recording:
            recording.returns(minilm_ops.encoded(dev, weights, text))
        counts.append(len(recording.nodes))
    return counts[1] - counts[0]


@pytest.mark.parametrize("dtype, most", [("f32", 1e-5), ("f16", 1e-2), ("bf16", 1e-1)])
async def test_an_encoder_is_the_same_node_by_node(
    dev: Any, dtype: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, call = encoder(2, dtype), encoded(dtype)
    want = (await by_nodes(dev, data, call, monkeypatch)).astype("f8")
    plan = await dev.engine.build(data, engine="callboard")
    found = (await dev.engine.context(plan)(call).get()).astype("f8")
    np.testing.assert_allclose(found, want, atol=most * np.abs(want).max())
    assert plan.runner.joined == {"attention": 2, "linear": 6, "linear, side by side": 2}
    assert "steps of several nodes: 2 attention, 6 linear, 2 linear, side by side" in plan.explain()


def graph_of(*nodes: tuple[Any, ...], weights: dict[str, Any] | None = None, **inputs: Any) -> bytes:
    """A model of nodes (operator, inputs, output, attributes); its output is the last one's."""
    given = [node(op, names, [out], **(rest[0] if rest else {})) for op, names, out, *rest in nodes]
    ports = {name: ("f32", [f"{name}{at}" for at in range(array.ndim)]) for name, array in inputs.items()}
    return model(given, ports, {nodes[-1][2]: ("f32", None)}, weights)


LINEARS: dict[str, tuple[Any, ...]] = {
    "bias": (("MatMul", ["x", "w"], "m"), ("Add", ["m", "b"], "y")),
    "bias before": (("MatMul", ["x", "w"], "m"), ("Add", ["b", "m"], "y")),
    "residual": (("MatMul", ["x", "w"], "m"), ("Add", ["m", "b"], "a"), ("Add", ["r", "a"], "y")),
    "residual first": (("MatMul", ["x", "w"], "m"), ("Add", ["m", "r"], "a"), ("Add", ["a", "b"], "y")),
    "relu": (("MatMul", ["x", "w"], "m"), ("Add", ["m", "b"], "a"), ("Relu", ["a"], "y")),
    "relu alone": (("MatMul", ["x", "w"], "m"), ("Relu", ["m"], "y")),
    "gelu": (
        ("MatMul", ["x", "w"], "m"), ("Add", ["m", "b"], "a"), ("Add", ["a", "r"], "s"),
        ("Gelu", ["s"], "y", {"approximate": "tanh"}),
    ),
}  # fmt: skip


def linear_of(case: str, x: Any, r: Any) -> Any:
    y = x @ W
    if case != "relu alone":
        y = y + B
    if "residual" in case or case == "gelu":
        y = y + r
    if case == "gelu":
        return 0.5 * y * (1 + np.tanh(0.7978845608028654 * (y + 0.044715 * y**3)))
    return np.maximum(y, 0) if "relu" in case else y


@pytest.mark.parametrize("case", LINEARS)
async def test_sums_and_activations_behind_a_product(dev: Any, case: str) -> None:
    r = RNG.standard_normal((2, 3, 5)).astype("f4")
    given = {"x": X, **({"r": r} if "residual" in case or case == "gelu" else {})}
    data = graph_of(*LINEARS[case], weights={"w": W, "b": B}, **given)
    np.testing.assert_allclose(
        await dev.engine.context(await dev.engine.build(data, engine="callboard"))(given).get(),
        linear_of(case, X, r),
        rtol=1e-5,
        atol=1e-5,
    )
    assert await ops_of(dev, data, given) == {"blas_lt.matmul": 1}


async def test_gemms(dev: Any) -> None:
    data = graph_of(("Gemm", ["x", "w", "b"], "y", {"transB": 1}), weights={"w": W.T.copy(), "b": B}, x=X[0])
    plan = await dev.engine.build(data, engine="callboard")
    np.testing.assert_allclose(await dev.engine.context(plan)(x=X[0]).get(), X[0] @ W + B, rtol=1e-5, atol=1e-5)
    assert await ops_of(dev, data, {"x": X[0]}) == {"blas_lt.matmul": 1}


@pytest.mark.parametrize(
    "b", [np.ones((3, 1), "f4"), np.ones((7, 1, 1, 5), "f4"), np.float32(2)], ids=["column", "wider", "number"]
)
async def test_what_is_no_bias_is_added_apart(dev: Any, b: Any) -> None:
    data = graph_of(("MatMul", ["x", "w"], "m"), ("Add", ["m", "b"], "y"), weights={"w": W, "b": np.asarray(b)}, x=X)
    plan = await dev.engine.build(data, engine="callboard")
    np.testing.assert_allclose(await dev.engine.context(plan)(x=X).get(), X @ W + b, rtol=1e-5, atol=1e-5)
    assert plan.runner.joined == {"linear": 1}


async def test_a_product_that_is_read_twice_stays_apart(dev: Any) -> None:
    nodes = (("MatMul", ["x", "w"], "m"), ("Add", ["m", "b"], "a"), ("Mul", ["a", "m"], "y"))
    data = graph_of(*nodes, weights={"w": W, "b": B}, x=X)
    plan = await dev.engine.build(data, engine="callboard")
    np.testing.assert_allclose(await dev.engine.context(plan)(x=X).get(), (X @ W + B) * (X @ W), rtol=1e-4, atol=1e-4)
    assert not plan.runner.joined


async def test_errors_name_the_node_that_does_not_fit(dev: Any) -> None:
    data = graph_of(*LINEARS["residual"], weights={"w": W, "b": B}, x=X, r=X)
    context = dev.engine.context(await dev.engine.build(data, engine="callboard"))
    with pytest.raises(cb.ShapeError, match=r"node 0 MatMul: .*7"):
        context(x=np.ones((2, 3, 7), "f4"), r=X)
    with pytest.raises(cb.ShapeError, match=r"node 2 Add: .*4.*inputs 'x', 'r'"):
        context(x=X, r=np.ones((2, 3, 4), "f4"))


async def test_weights_that_are_replaced_are_used(dev: Any) -> None:
    data = graph_of(*LINEARS["relu"], weights={"w": W, "b": B}, x=X)
    plan = await dev.engine.build(data, engine="callboard", refit=True)
    context = dev.engine.context(plan)
    for w in (W, 2 * W):
        plan.refit({"w": w})
        np.testing.assert_allclose(await context(x=X).get(), np.maximum(X @ w + B, 0), rtol=1e-5, atol=1e-5)
    assert plan.runner.joined == {"linear": 1}


@pytest.fixture
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention in f32 is one op there, too."""
    monkeypatch.setattr(fused_attention, "ON_A_CPU", ("f16", "bf16", "f32"))


# -- attention ---------------------------------------------------------------------------------------------------------

Q, K, V = (RNG.standard_normal((2, 4, n, 8)).astype("f4") for n in (3, 5, 5))


def attended(q: Any, k: Any, v: Any, scale: float, mask: Any = 0.0) -> Any:
    with np.errstate(invalid="ignore"):
        scores = scale * q @ k.swapaxes(-1, -2) + mask
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        return shares / shares.sum(-1, keepdims=True) @ v


def attention(**settings: Any) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    """Nodes from ``q``, ``k``, ``v`` and ``mask`` to ``y``, and their constants."""
    weights: dict[str, Any] = {"c": np.float32(0.25), "zero": np.float32(0.0), "root": np.float32(0.5)}
    nodes: list[tuple[Any, ...]] = []
    q, k = "q", "kt"
    if settings.get("exported"):  # as torch.onnx.export writes the keys
        weights |= {"flat": np.array([-1, 5, 8]), "whole": np.array([2, 4, 8, 5])}
        nodes += [("Reshape", ["k", "flat"], "k3"), ("Transpose", ["k3"], "k3t", {"perm": [0, 2, 1]})]
        nodes += [("Reshape", ["k3t", "whole"], "kt")]
    else:
        nodes += [("Transpose", ["k"], "kt", {"perm": [0, 1, 3, 2]})]
    if settings.get("roots"):
        nodes += [("Mul", ["q", "root"], "qs"), ("Mul", ["kt", "root"], "ks")]
        q, k = "qs", "ks"
    nodes.append(("MatMul", [q, k], "s"))
    scores = "s"
    if scaled := settings.get("scaled"):
        nodes.append((scaled, ["s", "c"], "d"))
        scores = "d"
    if settings.get("masked"):
        nodes.append(("Add", [scores, "mask"], "h"))
        scores = "h"
    nodes.append(("Softmax", [scores], "p", {"axis": -1}))
    shares = "p"
    if settings.get("guarded"):
        nodes += [("IsNaN", ["p"], "n"), ("Where", ["n", "zero", "p"], "g")]
        shares = "g"
    return [*nodes, ("MatMul", [shares, "v"], "y")], weights


@pytest.mark.usefixtures("on_a_cpu")
@pytest.mark.parametrize(
    "settings, scale",
    [
        ({}, 1.0),
        ({"scaled": "Mul", "masked": True}, 0.25),
        ({"scaled": "Div"}, 4.0),
        ({"roots": True, "masked": True, "exported": True}, 0.25),
        ({"roots": True, "guarded": True, "masked": True}, 0.25),
    ],
    ids=["plain", "scaled and masked", "divided", "exported", "guarded"],
)
async def test_attention_is_one_op(dev: Any, settings: dict[str, Any], scale: float) -> None:
    mask = np.where(RNG.random((2, 1, 3, 5)) < 0.3, np.float32(-1e9), np.float32(0))
    nodes, weights = attention(**settings)
    call = {"q": Q, "k": K, "v": V, **({"mask": mask} if "masked" in settings else {})}
    data = graph_of(*nodes, weights=weights, **call)
    found = await dev.engine.context(await dev.engine.build(data, engine="callboard"))(call).get()
    want = attended(Q, K, V, scale, mask if "masked" in settings else 0.0)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
    assert (await ops_of(dev, data, call))["attention.forward"] == 1


@pytest.mark.usefixtures("on_a_cpu")
@pytest.mark.parametrize("shape", [(5,), (3, 5), (4, 1, 5), (2, 4, 3, 5), (1, 1, 1, 5)])
async def test_masks_of_every_shape(dev: Any, shape: tuple[int, ...]) -> None:
    mask = RNG.standard_normal(shape).astype("f4")
    nodes, weights = attention(masked=True)
    call = {"q": Q, "k": K, "v": V, "mask": mask}
    data = graph_of(*nodes, weights=weights, **call)
    found = await dev.engine.context(await dev.engine.build(data, engine="callboard"))(call).get()
    np.testing.assert_allclose(found, attended(Q, K, V, 1.0, mask), rtol=1e-5, atol=1e-5)
    assert (await ops_of(dev, data, call))["attention.forward"] == 1


@pytest.mark.usefixtures("on_a_cpu")
async def test_attention_for_which_there_is_no_op_is_computed_by_nodes(dev: Any) -> None:
    """A mask that is one number for each query, keys of three axes, and a result that is read twice."""
    mask = RNG.standard_normal((3, 1)).astype("f4")
    nodes, weights = attention(masked=True)
    call = {"q": Q, "k": K, "v": V, "mask": mask}
    data = graph_of(*nodes, weights=weights, **call)
    found = await dev.engine.context(await dev.engine.build(data, engine="callboard"))(call).get()
    np.testing.assert_allclose(found, attended(Q, K, V, 1.0), rtol=1e-4, atol=1e-4)
    assert (await ops_of(dev, data, call))["attention.forward"] == 0
    flat = [("MatMul", ["q", "k"], "s"), ("Softmax", ["s"], "p", {"axis": -1}), ("MatMul", ["p", "v"], "y")]
    call = {"q": Q[0], "k": K[0].swapaxes(1, 2).copy(), "v": V[0]}
    data = graph_of(*flat, **call)
    found = await dev.engine.context(await dev.engine.build(data, engine="callboard"))(call).get()
    np.testing.assert_allclose(found, attended(Q[0], K[0], V[0], 1.0), rtol=1e-4, atol=1e-4)
    nodes, weights = attention()
    data = graph_of(*nodes, ("ReduceSum", ["p"], "z"), weights=weights, q=Q, k=K, v=V)
    plan = await dev.engine.build(data, engine="callboard")
    assert not plan.runner.joined


@pytest.mark.usefixtures("on_a_cpu")
async def test_shares_of_queries_that_see_nothing_are_0_where_the_model_says_so(dev: Any) -> None:
    mask = np.zeros((2, 1, 3, 5), "f4")
    mask[1, :, 2] = -np.inf
    nodes, weights = attention(masked=True, guarded=True)
    call = {"q": Q, "k": K, "v": V, "mask": mask}
    data = graph_of(*nodes, weights=weights, **call)
    found = await dev.engine.context(await dev.engine.build(data, engine="callboard"))(call).get()
    np.testing.assert_allclose(found, np.nan_to_num(attended(Q, K, V, 1.0, mask)), rtol=1e-5, atol=1e-5)


# -- convolutions, TF32 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("biased", [True, False])
async def test_a_normalisation_becomes_a_part_of_the_weights(
    dev: Any, biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {"w": RNG.standard_normal((4, 3, 3, 3)).astype("f4"), "b": RNG.standard_normal(4).astype("f4")}
    weights |= {name: RNG.standard_normal(4).astype("f4") for name in ("s", "z", "m")} | {"v": np.full(4, 2.0, "f4")}
    nodes = (
        ("Conv", ["x", "w", *(["b"] if biased else [])], "c", {"pads": [1, 1, 1, 1]}),
        ("BatchNormalization", ["c", "s", "z", "m", "v"], "n", {"epsilon": 1e-3}),
        ("Relu", ["n"], "y"),
    )
    x = RNG.standard_normal((2, 3, 6, 5)).astype("f4")
    data = graph_of(*nodes, weights=weights, x=x)
    want = await by_nodes(dev, data, {"x": x}, monkeypatch)
    found = await dev.engine.context(await dev.engine.build(data, engine="callboard"))(x=x).get()
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
    assert await ops_of(dev, data, {"x": x}) == {"dnn.conv": 1, "elementwise.map": 1}


async def test_products_and_convolutions_may_round_where_the_plan_says_so(dev: Any) -> None:
    """The setting is in the messages; a CPU has no TF32."""
    weights = {"w": RNG.standard_normal((4, 3, 3)).astype("f4"), "a": RNG.standard_normal((6, 5)).astype("f4"), "b": B}
    nodes = (
        ("Conv", ["x", "w"], "c", {"pads": [1, 1]}),
        ("MatMul", ["c", "a"], "m"),
        ("Add", ["m", "b"], "d"),
        ("Relu", ["m"], "r"),
        ("Add", ["r", "d"], "y"),
    )
    data = graph_of(*nodes, ("MatMul", ["y", "a2"], "z"), weights=weights | {"a2": weights["a"].T.copy()}, x=X)
    sent = []

    def submit(message: Any) -> Any:
        sent.append(getattr(message, "tf32", None))
        return dev.engine._submit(message)

    for precision, count in (("f32", 0), ("tf32", 3)):
        plan = await dev.engine.build(data, engine="callboard", precision=precision)
        sent.clear()
        (found,) = finished(plan.runner.run(submit, plan, [dev.put(X)], plan.resident))
        await found
        assert sent.count(True) == count
        assert (await dev.engine.load(plan.serialize())).precision == precision
    with pytest.raises(cb.ShapeError, match=r"precision is 'f16'; use one of f32, tf32, or lower the model"):
        dev.engine.build(data, precision="f16")


# -- norms -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("square", ["Pow", "Mul"])
@pytest.mark.parametrize("shifted", [True, False])
async def test_a_layer_norm_that_is_written_out_is_one_op(dev: Any, square: str, shifted: bool) -> None:
    weights = {"s": 1 + 0.1 * RNG.standard_normal(6).astype("f4"), "z": RNG.standard_normal(6).astype("f4")}
    weights |= {"axis": np.array([-1]), "two": np.float32(2), "e": np.float32(1e-3)}
    nodes = [
        ("ReduceMean", ["x", "axis"], "m"),
        ("Sub", ["x", "m"], "d"),
        (square, ["d", "two" if square == "Pow" else "d"], "q"),
        ("ReduceMean", ["q", "axis"], "v"),
        ("Add", ["v", "e"], "t"),
        ("Sqrt", ["t"], "r"),
        ("Div", ["d", "r"], "n"),
        ("Mul", ["s", "n"], "w"),
        *([("Add", ["w", "z"], "y")] if shifted else []),
    ]
    data = graph_of(*nodes, weights=weights, x=X)
    plan = await dev.engine.build(data, engine="callboard")
    d = X - X.mean(-1, keepdims=True)
    want = d / np.sqrt((d**2).mean(-1, keepdims=True) + 1e-3) * weights["s"] + (weights["z"] if shifted else 0)
    np.testing.assert_allclose(await dev.engine.context(plan)(x=X).get(), want, rtol=1e-5, atol=1e-5)
    assert await ops_of(dev, data, {"x": X}) == {"dnn.layer_norm": 1}


async def test_means_over_another_axis_are_no_layer_norm(dev: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = {"s": RNG.standard_normal(6).astype("f4"), "axis": np.array([1]), "two": np.float32(2)}
    nodes = [
        ("ReduceMean", ["x", "axis"], "m"), ("Sub", ["x", "m"], "d"), ("Pow", ["d", "two"], "q"),
        ("ReduceMean", ["q", "axis"], "v"), ("Add", ["v", "e"], "t"), ("Sqrt", ["t"], "r"), ("Div", ["d", "r"], "n"),
        ("Mul", ["n", "s"], "y"),
    ]  # fmt: skip
    data = graph_of(*nodes, weights=weights | {"e": np.float32(1e-3)}, x=X)
    plan = await dev.engine.build(data, engine="callboard")
    assert not plan.runner.joined
    want = await by_nodes(dev, data, {"x": X}, monkeypatch)
    np.testing.assert_allclose(await dev.engine.context(plan)(x=X).get(), want, rtol=1e-5, atol=1e-5)


# -- models whose layers are lowered -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("on_a_cpu")
@pytest.mark.parametrize("precision", ["f16", "bf16"])
async def test_casts_around_lowered_layers_are_parts_of_the_products(
    dev: Any, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, call = encoder(2), encoded("f32")
    lowered = await lower(dev, data, IBuilderConfig(precision), [call], engine="callboard")
    want = await by_nodes(dev, lowered.data, call, monkeypatch)
    plan = await dev.engine.build(lowered.data, engine="callboard")
    found = await dev.engine.context(plan)(call).get()
    np.testing.assert_allclose(found, want, atol=2e-2 * np.abs(want).max())
    assert plan.runner.joined == {"attention": 2, "linear": 6, "linear, side by side": 2}
    ops = await ops_of(dev, lowered.data, call)
    assert (ops["blas_lt.matmul"], ops["array.cast"], ops["attention.forward"]) == (8, 8, 2)


async def test_a_cast_that_is_an_output_stays(dev: Any) -> None:
    nodes = [node("Cast", ["x"], ["a"], to=10), node("Cast", ["x"], ["b"], to=10), node("Add", ["a", "b"], ["y"])]
    ports = {"b": ("f16", ["n", 3]), "y": ("f16", ["n", 3])}
    plan = await dev.engine.build(model(nodes, {"x": ("f32", ["n", 3])}, ports), engine="callboard")
    b, y = dev.engine.context(plan)(x=X[0, :, :3])
    np.testing.assert_array_equal(await y.get(), 2 * X[0, :, :3].astype("f2"))
    np.testing.assert_array_equal(await b.get(), X[0, :, :3].astype("f2"))


async def test_attention_in_f32_on_a_cpu_is_computed_by_nodes(dev: Any) -> None:
    nodes, weights = attention(scaled="Mul")
    call = {"q": Q, "k": K, "v": V}
    data = graph_of(*nodes, weights=weights, **call)
    assert (await ops_of(dev, data, call))["attention.forward"] == 0
