"""Resizing, recurrent networks, control flow, quantised values, scatter and losses: both engines agree."""

from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import graph, model, node

import callboard as cb

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
RNG = np.random.default_rng(8)
Case = tuple[bytes, dict[str, Any]]


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("f4")


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def resizes() -> Case:
    """Neighbours, lines and cubics, by sizes and factors, up and down."""
    x = {"x": ("f32", ["n", 2, "h", "w"])}
    nodes = [
        node("Resize", ["x", "", "twice"], ["a"], mode="nearest", coordinate_transformation_mode="asymmetric"),
        node("Resize", ["a", "", "", "sizes"], ["b"], mode="linear"),
        node("Resize", ["b", "", "less"], ["c"], mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1),
        node("Resize", ["c", "", "odd"], ["d"], mode="linear", coordinate_transformation_mode="pytorch_half_pixel"),
        node("Resize", ["d", "", "odd"], ["y"], mode="linear", antialias=1),
    ]
    weights = {
        "twice": np.array([1, 1, 2, 3], "f4"),
        "sizes": ints(3, 2, 9, 7),
        "less": np.array([1, 1, 0.8, 0.6], "f4"),
        "odd": np.array([1, 1, 0.5, 0.75], "f4"),
    }
    return model(nodes, x, {"y": ("f32", None)}, weights), {"x": normal(3, 2, 5, 4)}


def recurrent() -> Case:
    """Each kind of cell, in each direction, with sequences of other lengths."""
    nodes = [
        node("LSTM", ["x", "w1", "r1", "b1", "lengths"], ["a", "ah", "ac"], hidden_size=3, direction="bidirectional"),
        node("GRU", ["x", "w2", "r2", "b2"], ["b", "bh"], hidden_size=3, direction="reverse", linear_before_reset=1),
        node("GRU", ["x", "w2", "r2", "", "", "h"], ["c"], hidden_size=3),
        node("RNN", ["x", "w3", "r3"], ["d"], hidden_size=3, activations=["Relu"]),
    ]
    weights = {
        "w1": normal(2, 12, 4), "r1": normal(2, 12, 3), "b1": normal(2, 24), "lengths": np.array([5, 2], "i4"),
        "w2": normal(1, 9, 4), "r2": normal(1, 9, 3), "b2": normal(1, 18), "h": normal(1, 2, 3),
        "w3": normal(1, 3, 4), "r3": normal(1, 3, 3),
    }  # fmt: skip
    outs: Any = dict.fromkeys(("a", "ah", "ac", "b", "bh", "c", "d"), ("f32", None))
    return model(nodes, {"x": ("f32", [5, 2, 4])}, outs, weights), {"x": normal(5, 2, 4)}


def control() -> Case:
    """A branch that reads values around it, in the body of a loop; a scan that runs backwards."""
    more = graph([node("Add", ["now", "x"], ["m"])], {}, {"m": ("f32", None)})
    less = graph([node("Sub", ["now", "x"], ["l"])], {}, {"l": ("f32", None)})
    body = graph(
        [
            node("Less", ["turn", "two"], ["early"]),
            node("If", ["early"], ["next"], then_branch=more, else_branch=less),
            node("ReduceSum", ["next"], ["row"], keepdims=0),
            node("Identity", ["go"], ["on"]),
        ],
        {"turn": ("i64", []), "go": ("bool", []), "now": ("f32", None)},
        {"on": ("bool", []), "next": ("f32", None), "row": ("f32", None)},
        {"two": np.int64(2)},
    )
    step = graph(
        [node("Add", ["s", "e"], ["t"]), node("Mul", ["t", "e"], ["p"])],
        {"s": ("f32", [3]), "e": ("f32", [3])},
        {"t": ("f32", [3]), "p": ("f32", [3])},
    )
    nodes = [
        node("Loop", ["count", "", "x"], ["last", "rows"], body=body),
        node("ReduceSum", ["last", "axis"], ["start"], keepdims=0),
        node("Scan", ["start", "last"], ["end", "sums"], body=step, num_scan_inputs=1, scan_input_directions=[1]),
    ]
    outs: Any = {"rows": ("f32", [5]), "end": ("f32", [3]), "sums": ("f32", [4, 3])}
    weights = {"count": np.int64(5), "axis": ints(0)}
    return model(nodes, {"x": ("f32", [4, 3])}, outs, weights), {"x": normal(4, 3)}


def quantised() -> Case:
    """To integers and back, for each channel; products of integers."""
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z", "wz"], ["i"]),
        node("Cast", ["i"], ["f"], to=1),
        node("QuantizeLinear", ["f", "fs", "fz"], ["g"], axis=1),
        node("DequantizeLinear", ["g", "fs", "fz"], ["y"], axis=1),
        node("QLinearMatMul", ["q", "s", "z", "w", "ws", "wz", "ys", "yz"], ["u"]),
        node("DequantizeLinear", ["q", "s", "z"], ["v"]),
    ]
    weights = {
        "w": RNG.integers(-100, 100, (6, 3)).astype("i1"), "wz": np.int8(3), "ws": np.float32(0.02),
        "fs": np.array([90.0, 50.0, 70.0], "f4"), "fz": np.array([3, -4, 5], "i1"),
        "ys": np.float32(0.3), "yz": np.uint8(120),
    }  # fmt: skip
    outs = {"i": ("i32", None), "y": ("f32", None), "u": ("u8", None), "v": ("f32", None), "z": ("u8", [])}
    return model(nodes, {"x": ("f32", ["n", 6])}, outs, weights), {"x": normal(4, 6)}


def places() -> Case:
    """Scatter and gather, reversed sequences, cumulative products, bits."""
    nodes = [
        node("ScatterElements", ["x", "i", "u"], ["a"], axis=1),
        node("ScatterND", ["a", "k", "v"], ["b"]),
        node("GatherND", ["b", "k"], ["c"]),
        node("ReverseSequence", ["b", "lengths"], ["d"], batch_axis=0, time_axis=1),
        node("Hardmax", ["d"], ["e"]),
        node("CenterCropPad", ["d", "shape"], ["f"]),
        node("DFT", ["wave", "", "axis"], ["g"], onesided=1),
    ]
    weights = {
        "i": ints(1, 3, 0, 2, 1, 0).reshape(3, 2), "u": normal(3, 2), "k": ints(2, 0).reshape(2, 1),
        "v": normal(2, 4), "lengths": ints(4, 1, 3), "shape": ints(5, 3), "axis": np.int64(1),
        "wave": normal(2, 9, 1),
    }  # fmt: skip
    outs: Any = dict.fromkeys("cdefg", ("f32", None))
    return model(nodes, {"x": ("f32", [3, 4])}, outs, weights), {"x": normal(3, 4)}


def classes() -> Case:
    """Losses with weights and a class that does not count."""
    nodes = [
        node("SoftmaxCrossEntropyLoss", ["x", "t", "w"], ["a", "logs"], reduction="mean", ignore_index=1),
        node("NegativeLogLikelihoodLoss", ["logs", "t"], ["b"], reduction="none"),
        node("NegativeLogLikelihoodLoss", ["logs", "t", "w"], ["c"], reduction="sum"),
    ]
    weights = {"w": np.array([0.5, 2.0, 1.5], "f4"), "t": ints(0, 2, 1, 1, 0, 2, 2, 0).reshape(2, 4)}
    return model(
        nodes, {"x": ("f32", [2, 3, 4])}, {"a": ("f32", []), "b": ("f32", [2, 4]), "c": ("f32", [])}, weights
    ), {"x": normal(2, 3, 4)}


@pytest.mark.few(6)
@pytest.mark.parametrize("network", [resizes, recurrent, control, quantised, places, classes])
async def test_the_engines_agree(network: Any) -> None:
    data, given = network()
    found: dict[str, list[Any]] = {}
    async with cb.device("cpu") as dev:
        for engine in ("onnxruntime", "callboard"):
            outs = dev.engine.context(await dev.engine.build(data, engine=engine))(given)
            found[engine] = []
            for ref in outs if isinstance(outs, tuple) else (outs,):
                await ref
                found[engine].append(await ref.get())
    for ours, theirs in zip(found["callboard"], found["onnxruntime"], strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


async def test_attention_sees_what_its_mask_and_its_lengths_allow() -> None:
    """Against NumPy: a version of ONNX Runtime may lack the operator."""
    q, k, v = normal(2, 4, 3, 8), normal(2, 2, 5, 8), normal(2, 2, 5, 6)
    names = {"q": q, "k": k, "v": v, "n": ints(5, 4)}
    data = model(
        [node("Attention", ["q", "k", "v", "", "", "", "n"], ["y"], is_causal=1)],
        {name: ("i64" if name == "n" else "f32", array.shape) for name, array in names.items()},
        {"y": ("f32", [2, 4, 3, 6])},
        opset=24,
    )
    async with cb.device("cpu") as dev:
        y = await dev.engine.context(await dev.engine.build(data, engine="callboard"))(names).get()
    scores = np.einsum("bhqd,bhkd->bhqk", q, k.repeat(2, axis=1)) / np.sqrt(8)
    place = np.arange(3)[:, None] + (names["n"] - 3).reshape(2, 1, 1, 1)
    scores = np.where(np.arange(5) <= place, scores, -np.inf)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(y, np.einsum("bhqk,bhkd->bhqd", shares, v.repeat(2, axis=1)), rtol=1e-4, atol=1e-5)


async def test_what_older_operators_meant_is_kept() -> None:
    """Softmax of opset 11 takes all axes from its own on; axes of Squeeze and sums are attributes."""
    nodes = [
        node("Softmax", ["x"], ["a"]),
        node("ReduceSum", ["a"], ["b"], axes=[1], keepdims=1),
        node("Squeeze", ["b"], ["y"], axes=[1]),
    ]
    data = model(nodes, {"x": ("f32", [2, 3, 4])}, {"y": ("f32", [2, 4])}, opset=11)
    x = normal(2, 3, 4)
    async with cb.device("cpu") as dev:
        y = await dev.engine.context(await dev.engine.build(data, engine="callboard"))(x=x).get()
        with pytest.raises(cb.UnsupportedOp, match=r"CastLike of opset 11 \(mapped from 15\)"):
            await dev.engine.build(
                model([node("CastLike", ["x", "x"], ["y"])], {"x": ("f32", [2])}, {"y": ("f32", [2])}, opset=11),
                engine="callboard",
            )
    whole = np.exp(x) / np.exp(x).sum(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(y, whole.sum(axis=1), rtol=1e-5)


async def test_a_condition_on_the_device_is_refused_by_name() -> None:
    branch = graph([node("Neg", ["x"], ["b"])], {}, {"b": ("f32", None)})
    nodes = [
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Greater", ["m", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
    ]
    data = model(nodes, {"x": ("f32", ["n", 2])}, {"y": ("f32", None)}, {"zero": np.float32(0)})
    async with cb.device("cpu") as dev:
        context = dev.engine.context(await dev.engine.build(data, engine="callboard"))
        with pytest.raises(cb.UnsupportedOp, match="node 2 If: the condition of an If is computed on the device"):
            context(x=normal(3, 2))


async def test_constants_of_one_execution_are_not_kept() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("ConstantOfShape", ["s"], ["ones"], value=np.ones(1, "f4")),
        node("Add", ["x", "ones"], ["y"]),
    ]
    data = model(nodes, {"x": ("f32", ["n", 2])}, {"y": ("f32", ["n", 2])})
    async with cb.device("cpu") as dev:
        plan = await dev.engine.build(data, engine="callboard")
        context = dev.engine.context(plan)
        for rows in range(1, 9):
            await context(x=normal(rows, 2)).get()
        assert not plan.resident.computed
