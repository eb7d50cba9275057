"""Inputs that a model cannot be computed of: refused by input, value and cure, if possible before anything is sent."""

import asyncio
from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import graph, linear, model, node

import callboard as cb
from callboard.core.dtype import as_dtype
from callboard.core.errors import LibraryError, ShapeError
from callboard.kernel.engine.inputs.bounds import bounds_of
from callboard.kernel.engine.inputs.refused import InputRefused, cure, runtime_error
from callboard.kernel.engine.onnxfile import model_of

TABLE = np.arange(12, dtype="f4").reshape(4, 3)


def ints(*values: Any) -> Any:
    return np.array(values, np.int64)


def looked_up(*nodes: bytes, x: Any = ("i64", ["n", "k"]), **weights: Any) -> bytes:
    return model(list(nodes), {"x": x}, {"y": ("f32", None)}, {"t": TABLE, **weights})


BOUNDED = {
    "Gather": (looked_up(node("Gather", ["t", "x"], ["y"])), 4),
    "the other axis": (looked_up(node("Gather", ["t", "x"], ["y"], axis=-1)), 3),
    "GatherElements": (looked_up(node("GatherElements", ["t", "x"], ["y"])), 4),
    "moved": (
        looked_up(
            node("Cast", ["x"], ["a"], to=7),
            node("Flatten", ["a"], ["b"]),
            node("Gather", ["t", "b"], ["y"]),
            x=("i32", ["n", "k"]),
        ),
        4,
    ),
    "the smaller of two": (
        looked_up(
            node("Gather", ["t", "x"], ["a"]),
            node("Gather", ["u", "x"], ["b"]),
            node("Add", ["a", "b"], ["y"]),
            u=TABLE[:2],
        ),
        2,
    ),
}
FREE = {
    "not used": looked_up(node("Gather", ["t", "x"], ["z"]), node("Cast", ["x"], ["y"], to=1)),
    "computed": looked_up(node("Neg", ["x"], ["a"]), node("Gather", ["t", "a"], ["y"])),
    "cast to fewer bits": looked_up(node("Cast", ["x"], ["a"], to=6), node("Gather", ["t", "a"], ["y"])),
    "in a branch": looked_up(
        node(
            "If",
            ["c"],
            ["y"],
            then_branch=graph([node("Gather", ["t", "x"], ["z"])], {}, {"z": ("f32", None)}),
            else_branch=graph([node("Cast", ["x"], ["z"], to=1)], {}, {"z": ("f32", None)}),
        ),
        c=np.array(False),
    ),
}


@pytest.mark.parametrize("kind", BOUNDED)
def test_indices_of_a_table_are_bounded(kind: str) -> None:
    data, extent = BOUNDED[kind]
    bounds = bounds_of(model_of(data).graph)["x"]
    assert (bounds.least, bounds.most) == (-extent, extent - 1)


@pytest.mark.parametrize("kind", FREE)
def test_what_may_not_be_read_is_not_bounded(kind: str) -> None:
    assert bounds_of(model_of(FREE[kind]).graph) == {}


@pytest.mark.parametrize("engine", ["callboard", "onnxruntime"])
async def test_an_index_out_of_range_is_named_before_anything_is_sent(engine: str) -> None:
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime", reason="for the extra onnx")
    async with cb.device("cpu", isolation="thread") as dev:
        context = dev.engine.context(await dev.engine.build(BOUNDED["Gather"][0], engine=engine, title="net"))
        match = r"net: input 'x' holds -5 at \[0, 1\], and 2 of 3 values are outside of -4 to 3: node 0 Gather .*'t'"
        with pytest.raises(InputRefused, match=match):
            context(x=ints([0, -5, 4]))
        assert (await context(x=ints([-4, 3, 0])).get())[0, :, 0].tolist() == [0, 9, 0]
        assert (await context(x=ints([]).reshape(1, 0)).get()).shape == (1, 0, 3)


X = np.ones((2, 4, 3), "f4")
UNFIT = {
    "sequence_lens": (
        node("LSTM", ["x", "w", "r", "", "s"], ["y"], hidden_size=2),
        {"s": np.array([1, 1, 1, 9], "i4")},
        "sequence_lens holds 9, and takes 0 to 2",
    ),
    "too long": (
        node("ReverseSequence", ["x", "s"], ["y"], batch_axis=0, time_axis=1),
        {"s": ints(1, 5)},
        "sequence_lens holds 5, and takes 0 to 4",
    ),
    "negative": (
        node("ReverseSequence", ["x", "s"], ["y"], batch_axis=0, time_axis=1),
        {"s": ints(1, -1)},
        "sequence_lens holds -1",
    ),
    "axis": (node("CumProd", ["x", "s"], ["y"]), {"s": ints(99)[0]}, "the axis is 99, of 3 axes"),
    "reshape": (node("Reshape", ["x", "s"], ["y"]), {"s": ints(5, -1)}, "the shape [2, 4, 3] does not fit [5, -1]"),
    "a place": (
        node("TensorScatter", ["x", "x", "s"], ["y"], axis=1),
        {"s": ints(0, -1)},
        "places are -1 to 3, axis 1 has the extent 4",
    ),
    "axes": (node("Unsqueeze", ["x", "s"], ["y"]), {"s": ints(*range(3, 60))}, "a result has 60 axes, at most 32"),
}


@pytest.mark.parametrize("kind", UNFIT)
async def test_values_without_a_result_name_their_inputs(kind: str) -> None:
    one, more, text = UNFIT[kind]
    given = {"x": X, **more}
    ports: Any = {"x": ("f32", None), "s": ("i32" if more["s"].dtype == np.int32 else "i64", None)}
    weights = {"w": np.ones((1, 8, 3), "f4"), "r": np.ones((1, 8, 2), "f4")}
    data = model([one], ports, {"y": ("f32", None)}, weights if kind == "sequence_lens" else {}, opset=26)
    async with cb.device("cpu", isolation="thread") as dev:
        context = dev.engine.context(await dev.engine.build(data, engine="callboard"))
        with pytest.raises(InputRefused) as caught:
            context(given)
    assert text in str(caught.value)
    assert str(caught.value).endswith(cure(["x", "s"]))


def test_the_words_of_onnx_runtime() -> None:
    said = (
        "Non-zero status code returned while running Reshape node. Name:'r' Status Message: /onnxruntime_src/core/"
        "reshape_helper.h:91 ns::Helper::Helper(const ns::Shape&, ns::Vector&, bool) Input shape:{1,7}\n"
    )
    found = runtime_error(RuntimeError(said), "net", ["x"])
    assert type(found) is ShapeError
    assert str(found) == (
        "net: node Reshape (r): Input shape:{1,7}; pass other values or another shape of the input 'x'"
    )
    for other in ("CUDA failure 700", said.replace("Input", "not implemented: input")):
        assert type(runtime_error(RuntimeError(other), "net", ["x"])) is LibraryError
    many = [f"x{at}" for at in range(9)]
    assert cure(many).endswith("of the inputs 'x0', 'x1', 'x2', 'x3', 'x4', 'x5', …")


async def test_a_loop_without_end_is_refused_before_its_first_turn() -> None:
    turn = [node("Identity", ["go"], ["on"]), node("Identity", ["now"], ["next"])]
    ports: Any = {"turn": ("i64", []), "go": ("bool", []), "now": ("f32", None)}
    body = graph(turn, ports, {"on": ("bool", []), "next": ("f32", None)})
    nodes = [node("Loop", ["m", "", "x"], ["y"], body=body)]
    data = model(nodes, {"m": ("i64", []), "x": ("f32", ["n", 2])}, {"y": ("f32", None)})
    async with cb.device("cpu", isolation="thread") as dev, asyncio.timeout(30):
        context = dev.engine.context(await dev.engine.build(data, engine="callboard"))
        with pytest.raises(InputRefused, match=r"a Loop of more than 65536 turns; .* of the inputs 'm', 'x'"):
            context(m=ints(1 << 40)[0], x=np.ones((1, 2), "f4"))
        assert (await context(m=ints(3)[0], x=np.ones((1, 2), "f4")).get()).tolist() == [[1, 1]]


async def test_large_models_are_read_in_linear_time() -> None:
    """4,000 inputs, and branches inside of each of many nodes; quadratic work would take minutes."""
    count = 4_000
    wide = model(
        [node("Identity", ["x7"], ["y"])], {f"x{at}": ("f32", ["n"]) for at in range(count)}, {"y": ("f32", None)}
    )
    inner = graph([node("Identity", ["x"], ["z"])], {}, {"z": ("f32", None)})
    branches = [node("If", ["c"], [f"y{at}"], then_branch=inner, else_branch=inner) for at in range(2000)]
    deep = model(branches, {"x": ("f32", ["n"])}, {"y1999": ("f32", None)}, {"c": np.array(True)})
    async with cb.device("cpu", isolation="thread") as dev, asyncio.timeout(120):
        for data in (wide, deep):
            await dev.engine.build(data, engine="callboard")


# -- what a call is given ----------------------------------------------------------------------------------------------


def scaled(dtype: str) -> bytes:
    """``y = x * s``."""
    ports = {"x": (dtype, ["n", 2]), "s": (dtype, [])}
    return model([node("Mul", ["x", "s"], ["y"])], ports, {"y": (dtype, ["n", 2])})


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32", "i64"])
async def test_numbers_and_lists_of_python_have_the_dtype_of_the_input(dtype: str) -> None:
    async with cb.device("cpu") as dev:
        context = dev.engine.context(await dev.engine.build(scaled(dtype), engine="callboard"))
        y = await context(x=[[1, 2], [3, 4]], s=2).get()
        assert y.dtype == as_dtype(dtype).np
        np.testing.assert_array_equal(y.astype("f8"), [[2, 4], [6, 8]])


@pytest.mark.parametrize(
    "dtype, given, message",
    [
        ("i32", {"x": [[1.5, 2.0]], "s": 1}, r"input 'x' is f64\[1, 2\].*astype\(\"int32\"\)"),
        ("i32", {"x": [[1 << 40, 2]], "s": 1}, r"input 'x': .*; expected x: i32\[n, 2\]"),
        ("f32", {"x": [[1.0, 2.0], [3.0]], "s": 1}, r"input 'x': .*; expected x: f32\[n, 2\]"),
        ("f32", {"x": np.ones((1, 2)), "s": 1.0}, r"input 'x' is f64\[1, 2\].*astype\(\"float32\"\)"),
        ("f32", {"x": [[1e300, 2.0]], "s": 1.0}, r"input 'x': 1e\+300 is no number of f32"),
        ("f32", {"x": [[(1 << 24) + 1, 2]], "s": 1.0}, r"input 'x': 16777217 is no number of f32"),
        ("f32", {"x": [["a", "b"]], "s": 1.0}, r"input 'x' is an array of <U1, expected x: f32\[n, 2\]"),
    ],
    ids=["fractions", "too large", "ragged", "array", "infinite", "rounded", "words"],
)
async def test_what_would_change_is_refused(dtype: str, given: dict[str, Any], message: str) -> None:
    async with cb.device("cpu") as dev:
        context = dev.engine.context(await dev.engine.build(scaled(dtype), engine="callboard"))
        with pytest.raises(cb.ShapeError, match=message):
            context(given)


async def test_weights_and_lists_of_inputs_are_named() -> None:
    async with cb.device("cpu") as dev:
        context = dev.engine.context(await dev.engine.build(linear(), engine="callboard"))
        x = np.ones((1, 4), "f4")
        with pytest.raises(cb.ShapeError, match=r"'b' is a weight with a value in the model.*refit=True"):
            context(x=x, b=np.ones(3, "f4"))
        with pytest.raises(TypeError, match=r"inputs is list; pass a dict from the names of the inputs \(x\)"):
            context([x])
        with pytest.raises(TypeError, match=r"inputs is ndarray"):
            await context.run(x)


@pytest.mark.parametrize("engine", ["callboard", "onnxruntime"])
async def test_masked_elements_are_refused(engine: str) -> None:
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    async with cb.device("cpu") as dev:
        context = dev.engine.context(await dev.engine.build(linear(), engine=engine, refit=True))
        x = np.ma.MaskedArray(np.ones((2, 4), "f4"), mask=np.eye(2, 4, dtype=bool))
        whole = np.ma.MaskedArray(np.ones((2, 4), "f4"))
        for _ in range(3):
            await context(x=whole)
            for given in (x, [x[0], x[1]]):
                with pytest.raises(TypeError, match=r"model: input 'x': .*masked elements.*: array\.filled\(value\)"):
                    context(x=given)
                with pytest.raises(TypeError, match=r"input 'x': .*masked elements"):
                    await context.run({"x": given})
        b = np.ma.MaskedArray(np.ones(3, "f4"), mask=[0, 1, 0])
        with pytest.raises(TypeError, match=r"weight 'b': .*masked elements"):
            context.plan.refit({"b": b})
