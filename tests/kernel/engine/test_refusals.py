"""What callboard's own engine refuses by name: results that are too large, loops without end, graphs without order."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import graph, model, node

import callboard as cb
from callboard.kernel.engine.inputs.refused import InputRefused
from callboard.kernel.engine.mapped import control
from callboard.kernel.engine.mapped.tools import ResultTooLarge
from callboard.kernel.engine.onnxfile import OnnxError

BIG = 10**9
Arrays = dict[str, Any]


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


async def computed(nodes: list[bytes], given: Arrays, weights: Arrays | None = None, dtype: str = "f32") -> Any:
    """The output y of nodes, by callboard's engine; extents of the inputs are open."""
    kinds = {"f": "f", "i": "i", "u": "u"}
    ports: Any = {
        name: (f"{kinds[array.dtype.kind]}{8 * array.itemsize}", [f"{name}{at}" for at in range(array.ndim)])
        for name, array in given.items()
    }
    data = model(nodes, ports, {"y": (dtype, None)}, weights)
    async with cb.device("cpu") as dev:
        plan = await dev.engine.build(data, engine="callboard")
        return await dev.engine.context(plan)(given).get()


X = np.ones((1, 1, 4, 8), "f4")
"""An input that lies on the device."""
LARGE: dict[str, tuple[bytes, Arrays]] = {
    "scales": (node("Resize", ["x", "", "s"], ["y"]), {"x": X, "s": floats(1, 1, BIG, BIG)}),
    "one scale": (node("Resize", ["x", "", "s"], ["y"]), {"x": X, "s": floats(1, 1, 5e7, 1)}),
    "infinite scale": (node("Resize", ["x", "", "s"], ["y"]), {"x": X, "s": floats(1, 1, math.inf, 1)}),
    "sizes": (node("Resize", ["x", "", "", "s"], ["y"], mode="linear"), {"x": X, "s": ints(1, 1, BIG, 8)}),
    "no rest": (node("Resize", ["x", "", "", "s"], ["y"]), {"x": X, "s": ints(1, 1, BIG, 0)}),
    "weights": (node("Resize", ["x", "", "s"], ["y"], mode="linear", antialias=1), {"x": X, "s": floats(1, 1, 1, 5e7)}),
    "Upsample": (node("Upsample", ["x", "s"], ["y"]), {"x": X, "s": floats(1, 1, BIG, 1)}),
    "Expand": (node("Expand", ["x", "s"], ["y"]), {"x": X, "s": ints(1 << 20, 1 << 20, 1, 1)}),
    "Expand on the host": (node("Expand", ["x", "s"], ["y"]), {"x": floats(1), "s": ints(1 << 62, 1 << 62)}),
    "Tile": (node("Tile", ["x", "s"], ["y"]), {"x": X, "s": ints(BIG, 1, 1, 1)}),
    "Pad": (node("Pad", ["x", "s"], ["y"]), {"x": X, "s": ints(0, 0, 0, 0, BIG, 0, 0, 0)}),
    "edge": (node("Pad", ["x", "s"], ["y"], mode="edge"), {"x": X, "s": ints(0, 0, 0, 0, 0, 0, 0, BIG)}),
    "less Pad": (node("Pad", ["x", "s"], ["y"]), {"x": X, "s": ints(0, 0, 0, 0, BIG, 0, 0, -8)}),
    "CenterCropPad": (node("CenterCropPad", ["x", "s"], ["y"]), {"x": X, "s": ints(1, 1, BIG, 8)}),
    "Concat": (node("Concat", ["x"] * 40000, ["y"], axis=0), {"x": np.ones((64, 1 << 10), "f4")}),
    "Range": (node("Range", ["a", "x", "b"], ["y"]), {"a": ints(0)[0], "x": ints(1 << 62)[0], "b": ints(1)[0]}),
    "OneHot": (node("OneHot", ["x", "s", "v"], ["y"]), {"x": ints(1, 2), "s": ints(BIG), "v": floats(0, 1)}),
    "ConstantOfShape": (node("ConstantOfShape", ["x"], ["y"]), {"x": ints(1 << 20, 1 << 20)}),
    "window": (node("HannWindow", ["x"], ["y"]), {"x": ints(1 << 40)[0]}),
    "DFT": (node("DFT", ["x", "s"], ["y"], axis=1), {"x": np.ones((2, 9, 1), "f4"), "s": ints(1 << 40)[0]}),
    "Col2Im": (
        node("Col2Im", ["x", "s", "b"], ["y"]),
        {"x": np.ones((1, 4, 4), "f4"), "s": ints(BIG, BIG), "b": ints(2, 2)},
    ),
    "pads": (node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], pads=[BIG, BIG, BIG, BIG]), {"x": X}),
    "strides": (node("ConvTranspose", ["x", "x"], ["y"], strides=[BIG, BIG]), {"x": X}),
    "Add": (node("Add", ["x", "s"], ["y"]), {"x": np.ones((1 << 16, 1), "f4"), "s": np.ones((1, 1 << 16), "f4")}),
    "SwiGLU": (node("SwiGLU", ["x", "s"], ["y"]), {"x": np.ones((1 << 16, 1), "f4"), "s": np.ones((1, 1 << 16), "f4")}),
    "MatMul": (node("MatMul", ["x", "s"], ["y"]), {"x": np.ones((1 << 16, 1), "f4"), "s": np.ones((1, 1 << 16), "f4")}),
    "Einsum": (node("Einsum", ["x", "x"], ["y"], equation="i,j->ij"), {"x": np.ones(1 << 16, "f4")}),
    "Gather": (node("Gather", ["x", "s"], ["y"]), {"x": np.ones((1, 1 << 16), "f4"), "s": np.zeros(1 << 16, "i8")}),
}  # fmt: skip


@pytest.mark.parametrize("kind", LARGE)
async def test_a_result_that_is_too_large_is_refused_before_it_is_made(kind: str) -> None:
    one, given = LARGE[kind]
    error = InputRefused if kind == "infinite scale" else ResultTooLarge
    dtype = "i64" if kind == "Range" else "f32"
    with pytest.raises(error, match=r"node 0 .*(is too large: at most|infinity)"):
        await computed([one], given, dtype=dtype)


async def test_a_result_of_as_many_elements_as_a_source_is_never_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for most in ("LARGEST_HERE", "LARGEST_THERE"):
        monkeypatch.setattr(f"callboard.kernel.engine.mapped.tools.{most}", 1)
    y = await computed(
        [node("Tile", ["x", "ones"], ["a"]), node("Add", ["a", "two"], ["y"])],
        {"x": X},
        {"ones": ints(1, 1, 1, 1), "two": np.float32(2)},
    )
    np.testing.assert_array_equal(y, X + 2)


async def test_a_result_that_grows_in_a_loop_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.kernel.engine.mapped.tools.LARGEST_THERE", 1 << 10)
    twice = [node("Neg", ["now"], ["less"]), node("Concat", ["now", "less"], ["next"], axis=0)]
    with pytest.raises(ResultTooLarge, match=r"node 0 Loop: node 2 Concat: the shape .* is too large: at most 1024 "):
        await computed([endless(twice)], {"x": X})


@pytest.mark.parametrize(
    "one, given, match",
    [
        (node("Reshape", ["x", "s"], ["y"]), {"x": X, "s": ints(-1, -1)}, r"the shape is \[-1, -1\]"),
        (node("Reshape", ["x", "s"], ["y"]), {"x": X, "s": ints(-2, -16)}, r"the shape is \[-2, -16\]"),
        (node("Reshape", ["x", "s"], ["y"]), {"x": floats(1), "s": ints(1, 0)}, "a 0 keeps an extent"),
        (node("TopK", ["x", "s"], ["y", "i"]), {"x": X, "s": ints(9)}, "k is 9, and axis -1 has the extent 8"),
        (node("TopK", ["x", "s"], ["y", "i"]), {"x": X, "s": ints(-1)}, "k is -1"),
        (node("Tile", ["x", "s"], ["y"]), {"x": X, "s": ints(1, 1, -1, 1)}, r"repeats is \[1, 1, -1, 1\]"),
        (node("OneHot", ["x", "s", "v"], ["y"]), {"x": ints(1), "s": ints(-3), "v": floats(0, 1)}, "negative extent"),
        (node("Range", ["x", "s", "v"], ["y"]), dict.fromkeys("xsv", np.float32(0)), "in steps of 0.0"),
        (node("Resize", ["x", "", "", "s"], ["y"]), {"x": X[:0], "s": ints(1, 1, 4, 8)}, "division by zero"),
        (node("HannWindow", ["x"], ["y"], periodic=0), {"x": ints(1)[0]}, "a window of 1 elements"),
    ],
)
async def test_numbers_that_mean_no_shape_are_refused(one: bytes, given: Arrays, match: str) -> None:
    with pytest.raises(InputRefused, match=f"node 0 .*{match}"):
        await computed([one], given)


def endless(inner: list[bytes] | None = None) -> bytes:
    """A Loop without a count, whose condition stays true."""
    turn = [node("Identity", ["go"], ["on"]), *(inner or [node("Identity", ["now"], ["next"])])]
    ports: Any = {"turn": ("i64", []), "go": ("bool", []), "now": ("f32", None)}
    return node("Loop", ["", "", "x"], ["y"], body=graph(turn, ports, {"on": ("bool", []), "next": ("f32", None)}))


async def test_a_loop_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MOST_TURNS", 20)
    with pytest.raises(InputRefused, match="model: node 0 Loop: a Loop of more than 20 turns"):
        await computed([endless()], {"x": floats(1)})


async def test_loops_in_loops_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MOST_TURNS_OF_ALL", 30)
    inner = graph(
        [node("Identity", ["g"], ["h"]), node("Identity", ["a"], ["b"])],
        {"i": ("i64", []), "g": ("bool", []), "a": ("f32", None)},
        {"h": ("bool", []), "b": ("f32", None)},
    )
    outer = endless([node("Loop", ["ten", "", "now"], ["next"], body=inner)])
    with pytest.raises(InputRefused, match="loops in loops of more than 30 turns"):
        await computed([outer], {"x": floats(1)}, {"ten": ints(10)[0]})


async def test_a_loop_ends_by_its_condition() -> None:
    turn = [node("Less", ["turn", "last"], ["on"]), node("Add", ["now", "now"], ["next"])]
    ports: Any = {"turn": ("i64", []), "go": ("bool", []), "now": ("f32", None)}
    body = graph(turn, ports, {"on": ("bool", []), "next": ("f32", None)}, {"last": ints(4)[0]})
    y = await computed([node("Loop", ["", "", "x"], ["y"], body=body)], {"x": floats(1)})
    assert y.tolist() == [32]


INSIDE = graph([node("Neg", ["nowhere"], ["z"])], {}, {"z": ("f32", None)})
UNORDERED = {
    "a cycle": (
        [node("Add", ["a", "x"], ["y"]), node("Add", ["y", "x"], ["a"])],
        "node 0 Add reads 'a', which node 1 Add makes: there is a cycle",
    ),
    "itself": ([node("Add", ["y", "x"], ["y"])], "node 0 Add reads 'y', which node 0 Add makes"),
    "nowhere": ([node("Neg", ["z"], ["y"])], "node 0 Neg reads 'z', which no input, initializer or node is named"),
    "no output": ([node("Neg", ["x"], ["z"])], "the output 'y' is made by no node"),
    "inside": (
        [node("If", ["x"], ["y"], then_branch=INSIDE, else_branch=INSIDE)],
        "node 0 If: node 0 Neg reads 'nowhere'",
    ),
}


@pytest.mark.parametrize("kind", UNORDERED)
async def test_a_value_that_is_not_there_is_named_when_the_plan_is_built(kind: str) -> None:
    nodes, match = UNORDERED[kind]
    with pytest.raises(OnnxError, match=match):
        await computed(nodes, {"x": floats(1)})


@pytest.mark.parametrize("engine", ["callboard", None])
async def test_a_declared_shape_that_no_array_has_is_refused(engine: str | None) -> None:
    data = model([node("Neg", ["x"], ["y"])], {"x": ("f32", [1 << 62, 1 << 62])}, {"y": ("f32", None)})
    async with cb.device("cpu") as dev:
        with pytest.raises(cb.ShapeError, match=r"input 'x' is declared as f32\[4611686018427387904, .* too large"):
            await dev.engine.build(data, engine=engine)


@pytest.mark.parametrize("shape", [(6,), (2, 3)])
@pytest.mark.parametrize("dtype", ["i4", "i8", "u1"])
async def test_integers_by_0_are_0_without_a_warning(dtype: str, shape: tuple[int, ...]) -> None:
    """Of one axis they stay on the host; of two they are divided on the device."""
    a = np.array([7, -7, 0, 7, -7, 9], "i8").astype(dtype).reshape(shape)
    b = np.array([0, 0, 0, 2, 2, 0], "i8").astype(dtype).reshape(shape)
    name = {"i4": "i32", "i8": "i64", "u1": "u8"}[dtype]
    third = int(a.ravel()[4]) // 2 if dtype == "u1" else -3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quotients = await computed([node("Div", ["a", "b"], ["y"])], {"a": a, "b": b}, dtype=name)
        rests = await computed([node("Mod", ["a", "b"], ["y"])], {"a": a, "b": b}, dtype=name)
    assert quotients.ravel().tolist() == [0, 0, 0, 3, third, 0]
    assert rests.ravel().tolist() == [0, 0, 0, 1, 1, 0]


def drawn(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype("f4")


Q, KV = drawn(2, 4, 3, 8), drawn(2, 2, 5, 8)
MISFITS = {
    "batch of K": (node("Attention", ["x", "k", "v"], ["y"]), {"x": Q, "k": KV[:1], "v": KV}, r"K has the shape \[1, "),
    "batch of V": (node("Attention", ["x", "k", "v"], ["y"]), {"x": Q, "k": KV, "v": KV[:1]}, r"V has the shape \[1, "),
    "rank of K": (node("Attention", ["x", "k", "v"], ["y"]), {"x": Q, "k": KV[None], "v": KV}, "K has"),
    "rank of Q": (node("Attention", ["x", "k", "v"], ["y"]), {"x": Q[None], "k": KV, "v": KV}, "Q has the shape"),
    "heads of V": (node("Attention", ["x", "k", "v"], ["y"]), {"x": Q, "k": KV, "v": KV[:, :1]}, "V has the shape"),
    "heads": (node("Attention", ["x", "k", "v"], ["y"]), {"x": Q[:, :3], "k": KV, "v": KV}, "no divisor"),
    "rank of a mask": (
        node("Attention", ["x", "k", "v", "m"], ["y"]),
        {"x": Q, "k": KV, "v": KV, "m": drawn(1, 2, 4, 3, 5)},
        "attn_mask has the shape",
    ),
    "batch of a mask": (
        node("Attention", ["x", "k", "v", "m"], ["y"]),
        {"x": Q[:1], "k": KV[:1], "v": KV[:1], "m": drawn(2, 1, 3, 5)},
        "attn_mask has the shape",
    ),
    "batch of the past": (
        node("Attention", ["x", "k", "v", "", "p", "r"], ["y", "a", "b"]),
        {"x": Q, "k": KV, "v": KV, "p": KV[:1], "r": KV},
        "past_key has the shape",
    ),
    "half of the past": (
        node("Attention", ["x", "k", "v", "", "p"], ["y", "a", "b"]),
        {"x": Q, "k": KV, "v": KV, "p": KV},
        "past_key and past_value",
    ),
    "rank of A": (node("Gemm", ["x", "b"], ["y"]), {"x": drawn(1, 2, 3), "b": drawn(3, 4)}, "A has the shape"),
    "rank of B": (node("Gemm", ["x", "b"], ["y"]), {"x": drawn(2, 3), "b": drawn(1, 3, 4)}, "B has the shape"),
    "a wide C": (
        node("Gemm", ["x", "b", "c"], ["y"]),
        {"x": drawn(1, 3), "b": drawn(3, 4), "c": drawn(2, 4)},
        r"C has the shape \[2, 4\], which is not broadcast to \[1, 4\]",
    ),
    "directions": (
        node("LSTM", ["x", "w", "r"], ["y"], direction="bidirectional"),
        {"x": drawn(2, 1, 3), "w": drawn(1, 8, 3), "r": drawn(2, 8, 2)},
        "W has the shape",
    ),
    "gates": (node("GRU", ["x", "w", "r"], ["y"]), {"x": drawn(2, 1, 3), "w": drawn(1, 6, 3), "r": drawn(1, 8, 2)}, ""),
    "rank of R": (
        node("RNN", ["x", "w", "r"], ["y"]),
        {"x": drawn(2, 1, 3), "w": drawn(1, 2, 3), "r": drawn(1, 1, 2, 2)},
        "R has the shape",
    ),
    "a bias": (
        node("RNN", ["x", "w", "r", "b"], ["y"]),
        {"x": drawn(2, 1, 3), "w": drawn(1, 2, 3), "r": drawn(1, 2, 2), "b": drawn(1, 5)},
        "B has the shape",
    ),
    "a state": (
        node("RNN", ["x", "w", "r", "", "", "h"], ["y"]),
        {"x": drawn(2, 1, 3), "w": drawn(1, 2, 3), "r": drawn(1, 2, 2), "h": drawn(1, 4, 2)},
        "initial_h has the shape",
    ),
    "batch of GatherND": (
        node("GatherND", ["x", "i"], ["y"], batch_dims=1),
        {"x": drawn(2, 2, 2), "i": np.zeros((1, 2, 1), "i8")},
        "indices has the shape",
    ),
    "tuples of GatherND": (
        node("GatherND", ["x", "i"], ["y"], batch_dims=1),
        {"x": drawn(2, 2), "i": np.zeros((2, 2, 2), "i8")},
        "tuples of 2, for 1 axes",
    ),
    "axes of a sum": (node("ReduceSum", ["x", "a"], ["y"]), {"x": X, "a": ints(99)}, "the axis is 99, of 4 axes"),
    "updates of elements": (
        node("ScatterElements", ["x", "i", "u"], ["y"]),
        {"x": drawn(3, 3), "i": np.zeros((2, 3), "i8"), "u": drawn(1, 3)},
        "updates has the shape",
    ),
    "updates of parts": (
        node("ScatterND", ["x", "i", "u"], ["y"]),
        {"x": drawn(3, 3), "i": np.zeros((2, 1), "i8"), "u": drawn(1, 3)},
        "updates has the shape",
    ),
    "places of a cache": (
        node("TensorScatter", ["x", "u", "i"], ["y"]),
        {"x": drawn(2, 4, 3), "u": drawn(2, 1, 3), "i": ints(1)},
        "write_indices has the shape",
    ),
    "an update of a cache": (
        node("TensorScatter", ["x", "u", "i"], ["y"]),
        {"x": drawn(2, 4, 3), "u": drawn(1, 1, 3), "i": ints(1, 1)},
        "update has the shape",
    ),
    "parts": (node("Split", ["x"], ["y", "z", "u"], num_outputs=3), {"x": drawn(1, 2)}, "not split into 3 parts"),
    "a kernel": (
        node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 3]),
        {"x": X, "w": drawn(1, 1, 2, 2)},
        r"kernel_shape is \[3, 3\]",
    ),
    "scale": (node("LayerNormalization", ["x", "s"], ["y"]), {"x": drawn(2, 3), "s": drawn(2, 3)}, "Scale has"),
    "angles": (
        node("RotaryEmbedding", ["x", "c", "s"], ["y"]),
        {"x": drawn(1, 2, 3, 4), "c": drawn(1, 3, 2), "s": drawn(1, 3, 1)},
        "sin_cache has the shape",
    ),
    "keys of a state": (
        node("LinearAttention", ["x", "k", "v"], ["y"], q_num_heads=1, kv_num_heads=1, update_rule="linear"),
        {"x": drawn(2, 3, 4), "k": drawn(1, 3, 4), "v": drawn(2, 3, 4)},
        "key has the shape",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", MISFITS)
async def test_shapes_that_would_be_broadcast_are_refused(kind: str) -> None:
    one, given, match = MISFITS[kind]
    with pytest.raises(InputRefused, match=f"node 0 .*{match}"):
        await computed([one], given)


async def test_constants_that_explode_are_refused_when_the_plan_is_built() -> None:
    """3,000 constants of 2**20 elements: none is computed that is not kept."""
    count = 3000
    nodes = [node("ConstantOfShape", ["s"], [f"v{at}"]) for at in range(count)]
    nodes += [node("Sum", ["x", *(f"v{at}" for at in range(count))], ["y"])]
    with pytest.raises(
        cb.UnsupportedOp, match=r"node \d+ ConstantOfShape: nodes of constants make \d+ elements in each"
    ):
        await computed(nodes, {"x": floats(1)}, {"s": ints(1 << 20)})


async def test_constants_that_are_much_work_are_left_to_executions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.kernel.engine.mapped.graph.MOST_WORK", 100)
    nodes = [node("Neg", ["w"], ["v0"]), *(node("Neg", [f"v{at}"], [f"v{at + 1}"]) for at in range(9))]
    data = model([*nodes, node("Add", ["x", "v9"], ["y"])], {"x": ("f32", [8])}, {"y": ("f32", None)}, {"w": drawn(8)})
    async with cb.device("cpu") as dev:
        plan = await dev.engine.build(data, engine="callboard")
        assert plan.runner.folded == 6
        y = await dev.engine.context(plan)(x=np.ones(8, "f4")).get()
    np.testing.assert_array_equal(y, drawn(8) + 1)


async def test_a_product_of_small_arrays_is_left_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.kernel.engine.mapped.networks.LARGEST_OPERAND", 100)
    y = await computed(
        [node("Einsum", ["x", "x", "x"], ["y"], equation="i,j,k->")], {"x": ints(*range(20))}, dtype="i64"
    )
    assert y.tolist() == 190**3


@pytest.mark.parametrize("what", ["inputs", "outputs", "nodes"])
async def test_a_file_has_a_limit_of_what_it_names(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.kernel.engine.onnxfile.MOST_PORTS", 5)
    monkeypatch.setattr("callboard.kernel.engine.onnxfile.MOST_NODES", 9)
    count = {"inputs": 1, "outputs": 1, "nodes": 5} | {what: 6}
    inner = graph([node("Neg", ["x0"], ["z"])], {}, {"z": ("f32", None)})
    nodes = [node("Neg", ["x0"], [f"y{at}"]) for at in range(count["outputs"])]
    nodes += [node("If", ["c"], [f"v{at}"], then_branch=inner) for at in range(count["nodes"] - count["outputs"])]
    inputs: Any = {f"x{at}": ("f32", None) for at in range(count["inputs"])} | {"c": ("bool", [])}
    data = model(nodes, inputs, {f"y{at}": ("f32", None) for at in range(count["outputs"])})
    async with cb.device("cpu") as dev:
        with pytest.raises(OnnxError, match=r"has 7 inputs, at most 5|has 6 outputs, at most 5|more than 9 nodes"):
            await dev.engine.build(data, engine="callboard")
