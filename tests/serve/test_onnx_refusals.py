"""ONNX files that are sent what they cannot compute: status 400 with input and value, and no other request fails."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serve_lab import TIMEOUT, client_of, tensor
from tests.kernel.engine.models import graph, model, node

import callboard as cb
from callboard.kernel.engine.mapped import control
from callboard.serve import App, Tensor
from callboard.serve.bundled.onnx import OnnxModel

TABLE = np.arange(12, dtype="f4").reshape(4, 3)
ENGINES = ["callboard", "onnxruntime"]


def ints(*values: Any) -> Any:
    return np.array(values, np.int64)


def file_of(*nodes: bytes, x: Any, y: Any, **weights: Any) -> bytes:
    return model(list(nodes), {"x": x}, {"y": y}, weights)


ROWS = ("i64", ["n", "k"])
CASES: dict[str, tuple[bytes, Any, Any, str]] = {
    "tokens beyond a table": (
        file_of(node("Gather", ["t", "x"], ["y"]), x=ROWS, y=("f32", ["n", "k", 3]), t=TABLE),
        ints([1, 2]),
        ints([1, 9]),
        "input 'x' holds 9 at [0, 1]",
    ),
    "places of tuples": (
        file_of(node("GatherND", ["t", "x"], ["y"]), x=("i64", ["n", 2]), y=("f32", ["n"]), t=TABLE),
        ints([1, 2]),
        ints([1, 9]),
        "9",
    ),
    "a reshape": (
        file_of(node("Reshape", ["x", "s"], ["y"]), x=("f32", ["n", "k"]), y=("f32", ["n", 2, 3]), s=ints(0, 2, 3)),
        np.ones((1, 6), "f4"),
        np.ones((1, 7), "f4"),
        "Reshape",
    ),
    "a product": (
        file_of(node("MatMul", ["x", "t"], ["y"]), x=("f32", ["n", "k"]), y=("f32", ["n", 3]), t=TABLE),
        np.ones((1, 4), "f4"),
        np.ones((1, 7), "f4"),
        "MatMul",
    ),
}


async def asked(http: Any, x: Any) -> tuple[int, str]:
    datatype = "INT64" if x.dtype == np.int64 else "FP32"
    given = tensor("x", datatype, list(x.shape), x.ravel().tolist())
    found = await http.post("/v2/models/m/infer", json={"inputs": [given]})
    return found.status_code, found.text


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", CASES)
async def test_a_request_that_fits_no_node_is_at_fault_alone(kind: str, engine: Any, tmp_path: Path) -> None:
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime", reason="for the extra onnx")
    data, good, bad, says = CASES[kind]
    path = tmp_path / "net.onnx"
    path.write_bytes(data)
    async with cb.device("cpu", isolation="thread") as device, asyncio.timeout(TIMEOUT):
        app = App()
        await app.add_onnx("m", path, device, engine=engine, max_batch=8)
        generation = device.generation
        async with client_of(app) as http:
            for _ in range(2):
                one, wrong, two = await asyncio.gather(*(asked(http, x) for x in (good, bad, good)))
                assert (one[0], wrong[0], two[0]) == (200, 400, 200)
                assert says in wrong[1]
                assert "net.onnx" in wrong[1]
                assert "pass " in wrong[1]
        assert device.generation == generation


@pytest.mark.parametrize("datatype, shape", [("FP64", [1, 2]), ("INT64", [2]), ("INT64", [1, -2])])
async def test_other_dtypes_and_shapes_are_refused(datatype: str, shape: list[int], tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(CASES["tokens beyond a table"][0])
    async with cb.device("cpu", isolation="thread") as device, asyncio.timeout(TIMEOUT):
        app = App()
        await app.add_onnx("m", path, device, engine="callboard")
        async with client_of(app) as http:
            found = await http.post("/v2/models/m/infer", json={"inputs": [tensor("x", datatype, shape, [1, 1])]})
    assert found.status_code == 400
    assert "input 'x' " in found.text


def test_a_session_in_an_actor_says_the_same(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="for the extra onnx")
    path = tmp_path / "net.onnx"
    path.write_bytes(CASES["a product"][0])
    actor = OnnxModel(str(path))
    actor.prepare()

    class Host:
        is_cuda = False

    actor.setup(Host())  # type: ignore[arg-type]
    with pytest.raises(cb.ShapeError, match=r"net\.onnx: node MatMul: .* of the input 'x'"):
        actor.run([np.ones((1, 7), "f4")])


TURN = graph(
    [node("Identity", ["go"], ["on"]), node("Add", ["now", "w"], ["next"])],
    {"turn": ("i64", []), "go": ("bool", []), "now": ("f32", [1, 3])},
    {"on": ("bool", []), "next": ("f32", [1, 3])},
)


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_loop_whose_count_is_too_large_is_ended_alone(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime", reason="for the extra onnx")
    monkeypatch.setattr(control, "MOST_TURNS", 1 << 60)
    path = tmp_path / "net.onnx"
    nodes = [node("Squeeze", ["x"], ["n"]), node("Loop", ["n", "", "w"], ["y"], body=TURN)]
    path.write_bytes(model(nodes, {"x": ("i64", [1])}, {"y": ("f32", [1, 3])}, {"w": TABLE[:1]}))
    async with cb.device("cpu", isolation="thread") as device, asyncio.timeout(TIMEOUT):
        app = App()
        await app.add_onnx("m", path, device, engine=engine, budget=0.3)
        app.add_model("other", lambda x: x, inputs=[Tensor("x", "FP32", [-1])], outputs=[Tensor("y", "FP32", [-1])])
        generation = device.generation
        async with client_of(app) as http:
            endless = asyncio.create_task(asked(http, ints(1 << 50)))
            good = asyncio.create_task(asked(http, ints(2)))
            other = await http.post("/v2/models/other/infer", json={"inputs": [tensor("x", "FP32", [1], [3])]})
            status, text = await endless
            assert (other.status_code, status, (await good)[0]) == (200, 504, 200)
            assert "net.onnx" in text
            assert "budget of 0.3 s" in text
        assert device.generation == generation
