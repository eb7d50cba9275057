"""callboard's own engine against ONNX Runtime, over exported kinds of networks."""

from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import model, node

import callboard as cb
from callboard.kernel.engine.mapped.graph import Mapped
from callboard.kernel.engine.mapped.tools import OPERATORS
from callboard.kernel.engine.onnxfile import model_of

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
RNG = np.random.default_rng(5)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("f4")


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def convolutional() -> tuple[bytes, dict[str, Any]]:
    """A residual block with pooling, as exporters write it."""
    nodes = [
        node("Conv", ["x", "k", "kb"], ["a"], auto_pad="SAME_UPPER", strides=[2, 2], kernel_shape=[3, 3]),
        node("BatchNormalization", ["a", "s", "t", "m", "v"], ["b"], epsilon=1e-3),
        node("LeakyRelu", ["b"], ["c"], alpha=0.1),
        node("MaxPool", ["c"], ["d"], kernel_shape=[3, 3], strides=[2, 2], pads=[0, 1, 1, 1], ceil_mode=1),
        node("Pad", ["d", "pads"], ["e"], mode="reflect"),
        node("AveragePool", ["e"], ["f"], kernel_shape=[2, 2], pads=[0, 0, 1, 0]),
        node("ConvTranspose", ["f", "u"], ["g"], strides=[2, 2], pads=[1, 0, 0, 1]),
        node("GlobalAveragePool", ["g"], ["h"]),
        node("Flatten", ["h"], ["i"]),
        node("Gemm", ["i", "w", "wb"], ["j"], transB=1, alpha=0.5),
        node("Softmax", ["j"], ["y"]),
    ]
    weights = {
        "k": normal(6, 3, 3, 3),
        "kb": normal(6),
        "s": normal(6),
        "t": normal(6),
        "m": normal(6),
        "v": np.abs(normal(6)) + 0.5,
        "pads": ints(0, 0, 1, 1, 0, 0, 1, 0),
        "u": normal(6, 4, 3, 3),
        "w": normal(5, 4),
        "wb": normal(5),
    }
    return model(nodes, {"x": ("f32", ["n", 3, 15, 14])}, {"y": ("f32", ["n", 5])}, weights), {
        "x": normal(2, 3, 15, 14)
    }


def transformer() -> tuple[bytes, dict[str, Any]]:
    """An attention layer whose shapes are computed in the graph."""
    nodes = [
        node("Gather", ["table", "ids"], ["e"]),
        node("LayerNormalization", ["e", "s", "t"], ["l"], axis=-1),
        node("MatMul", ["l", "qkv"], ["p"]),
        node("Shape", ["ids"], ["shape"]),
        node("Gather", ["shape", "one"], ["length"], axis=0),
        node("Concat", ["front", "length", "back"], ["wanted"], axis=0),
        node("Reshape", ["p", "wanted"], ["r"]),
        node("Transpose", ["r"], ["z"], perm=[0, 2, 1, 3]),
        node("Split", ["z"], ["q", "k", "v"], axis=3, num_outputs=3),
        node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "kt"], ["qk"]),
        node("Div", ["qk", "scale"], ["scaled"]),
        node("Range", ["zero", "n", "step"], ["places"]),
        node("Unsqueeze", ["places", "one"], ["column"]),
        node("LessOrEqual", ["places", "column"], ["seen"]),
        node("Where", ["seen", "scaled", "low"], ["masked"]),
        node("Softmax", ["masked"], ["share"], axis=-1),
        node("MatMul", ["share", "v"], ["o"]),
        node("Gelu", ["o"], ["g"], approximate="tanh"),
        node("ReduceMean", ["g", "axes"], ["y"], keepdims=0),
        node("Squeeze", ["length", "first"], ["n"]),
    ]
    nodes.insert(12, nodes.pop())
    weights = {
        "table": normal(11, 8),
        "s": normal(8),
        "t": normal(8),
        "qkv": normal(8, 24),
        "one": ints(1),
        "front": ints(0),
        "back": ints(2, 12),
        "scale": np.float32(2.0),
        "zero": np.int64(0),
        "step": np.int64(1),
        "low": np.float32(-1e9),
        "axes": ints(2, -1),
        "first": ints(0),
    }
    ids = RNG.integers(-11, 11, (3, 6))
    return model(nodes, {"ids": ("i64", ["b", "m"])}, {"y": ("f32", ["b", 2])}, weights), {"ids": ids}


def elements() -> tuple[bytes, dict[str, Any]]:
    """Arithmetic of integers and floats, selections, reductions."""
    nodes = [
        node("Div", ["i", "j"], ["q"]),
        node("Mod", ["i", "j"], ["r"], fmod=1),
        node("Mul", ["q", "j"], ["qj"]),
        node("Add", ["qj", "r"], ["back"]),
        node("Sub", ["back", "i"], ["nothing"]),
        node("Cast", ["q"], ["f"], to=1),
        node("Add", ["f", "x"], ["fx"]),
        node("Clip", ["fx", "low", "high"], ["c"]),
        node("Slice", ["c", "start", "end", "axes", "steps"], ["s"]),
        node("CumSum", ["s", "axis"], ["cs"], exclusive=1, reverse=1),
        node("ReduceLogSumExp", ["cs"], ["lse"], keepdims=0),
        node("ArgMax", ["x"], ["best"], axis=1, select_last_index=1),
        node("OneHot", ["best", "depth", "values"], ["hot"]),
        node("Expand", ["lse", "wide"], ["y"]),
    ]
    weights = {
        "low": np.float32(-2),
        "high": np.float32(3),
        "start": ints(-1),
        "end": ints(-100),
        "axes": ints(1),
        "steps": ints(-2),
        "axis": np.int64(1),
        "depth": np.int64(4),
        "values": np.array([0, 5], "f4"),
        "wide": ints(2, 1),
    }
    inputs = {"i": ("i32", [3, 4]), "j": ("i32", [3, 4]), "x": ("f32", [3, 4])}
    outputs = {"y": ("f32", [2, 1]), "hot": ("f32", [3, 1, 4]), "nothing": ("i32", [3, 4]), "r": ("i32", [3, 4])}
    given = {
        "i": RNG.integers(-20, 20, (3, 4)).astype("i4"),
        "j": np.where(RNG.integers(0, 2, (3, 4)), 3, -7).astype("i4"),
        "x": normal(3, 4),
    }
    return model(nodes, inputs, outputs, weights), given


@pytest.mark.few(3)
@pytest.mark.parametrize("network", [convolutional, transformer, elements])
async def test_the_engines_agree(network: Any) -> None:
    data, given = network()
    found: dict[str, list[Any]] = {}
    async with cb.device("cpu") as dev:
        for engine in ("onnxruntime", "callboard"):
            plan = await dev.engine.build(data, engine=engine)
            outs = dev.engine.context(plan)(given)
            outs = outs if isinstance(outs, tuple) else (outs,)
            found[engine] = [await ref.get() for ref in outs]
    for ours, theirs in zip(found["callboard"], found["onnxruntime"], strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_constants_are_computed_when_the_plan_is_built() -> None:
    nodes = [
        node("Shape", ["w"], ["a"]),
        node("Mul", ["a", "a"], ["b"]),
        node("Slice", ["b", "zero", "one"], ["c"]),
        node("Add", ["x", "c"], ["y"]),
        node("Abs", ["y"], ["unused"]),
    ]
    weights = {"w": normal(3, 2), "zero": ints(0), "one": ints(1)}
    mapped = Mapped(model_of(model(nodes, {"x": ("i64", [2])}, {"y": ("i64", [2])}, weights)), "m", frozenset())
    assert mapped.folded == 3
    assert [step.title for step in mapped._steps] == ["m: node 3 Add"]
    assert {name: value.tolist() for name, value in mapped._constants.items()} == {"c": [9]}


def test_the_table_has_the_operators_of_common_exports() -> None:
    assert len(OPERATORS) >= 100
