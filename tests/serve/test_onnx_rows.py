"""ONNX files whose rows depend on each other: each request gets what it gets alone, however many come at once."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serve_lab import TIMEOUT, client_of, tensor

import callboard as cb
from callboard.serve import App
from callboard.serve.bundled import joined as of_joined
from callboard.serve.bundled.joined import Joined
from callboard.serve.http import compression

onnxruntime = pytest.importorskip("onnxruntime", reason="for the extra onnx")

FLOAT, INTEGER = 1, 7


def field(number: int, value: int | bytes | str) -> bytes:
    """A field of a protocol buffer, all of it below 128 bytes."""
    tag = number << 3 | (0 if isinstance(value, int) else 2)
    head = bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])
    if isinstance(value, int):
        return head + bytes([value])
    value = value.encode() if isinstance(value, str) else value
    return (
        head + (bytes([len(value)]) if len(value) < 128 else bytes([len(value) & 127 | 128, len(value) >> 7])) + value
    )


def file_of(operation: str, inputs: str, result: int = FLOAT, dims: tuple[Any, ...] = ("m", "k"), **axis: int) -> bytes:
    """A model of one operation on ``x``, of shape ``[n, 3]``; ``dims`` are declared for its output."""

    def value(name: str, kind: int, extents: tuple[Any, ...]) -> bytes:
        shape = b"".join(field(1, field(2 if isinstance(each, str) else 1, each)) for each in extents)
        return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))

    attributes = b"".join(field(5, field(1, name) + field(3, number) + field(20, 2)) for name, number in axis.items())
    node = b"".join(field(1, each) for each in inputs) + field(2, "y") + field(4, operation) + attributes
    graph = (
        field(1, node) + field(2, "g") + field(11, value("x", FLOAT, ("n", 3))) + field(12, value("y", result, dims))
    )
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))


FILES = {
    "twice": file_of("Concat", "xx", axis=0),
    "softmax over rows": file_of("Softmax", "x", axis=0),
    "maximum of all": file_of("ReduceMax", "x", dims=("m", "k")),
    "maximum of all, no axis": file_of("ReduceMax", "x", dims=(), keepdims=0),
    "number of elements": file_of("Size", "x", INTEGER, ()),
    "transposed": file_of("Transpose", "x"),
    "flat": file_of("Flatten", "x", axis=0),
}


async def asked(http: Any, array: Any) -> Any:
    given = tensor("x", "FP32", list(array.shape), array.ravel().tolist())
    found = await http.post("/v2/models/m/infer", json={"inputs": [given]})
    return found.status_code, [
        np.array(each["data"]).reshape(each["shape"]).tolist() for each in found.json().get("outputs", [])
    ]


@pytest.mark.few(20)
@pytest.mark.parametrize("name", FILES)
async def test_each_request_gets_what_it_gets_alone(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(FILES[name])
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    draw = np.random.default_rng(1)
    async with cb.device("cpu", isolation="thread") as device, asyncio.timeout(TIMEOUT):
        app = App()
        try:
            await app.add_onnx("m", path, device, max_batch=32)
        except ValueError as e:  # refused: the first extent of an output is not dynamic
            assert "must be open for batches" in str(e)  # noqa: PT017 -- files of other names are served
            return
        async with client_of(app) as http:
            for _ in range(4):
                arrays = [draw.normal(size=(1 + n % 2, 3)).astype("f4") for n in range(6)]
                found = await asyncio.gather(*(asked(http, array) for array in arrays))
                for array, (status, outputs) in zip(arrays, found, strict=True):
                    assert status == 200
                    np.testing.assert_allclose(outputs[0], session.run(None, {"x": array})[0], rtol=1e-5)
            stats = app.models["m"].run_stats()
    assert "rows depend on each other" in caplog.text
    assert stats.completed == 24


async def test_rows_that_are_independent_share_batches(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(file_of("Softmax", "x", axis=1))
    async with cb.device("cpu", isolation="thread") as device, asyncio.timeout(TIMEOUT):
        app = App()
        await app.add_onnx("m", path, device, max_batch=32)
        async with client_of(app) as http:
            for n in range(8):
                found = await asyncio.gather(*(asked(http, np.full((1, 3), n + k, "f4")) for k in range(6)))
                assert [status for status, _ in found] == [200] * 6
    assert "depend" not in caplog.text


async def test_a_request_that_the_file_cannot_compute_fails_alone(tmp_path: Path) -> None:
    runs: list[int] = []

    async def run(arrays: list[Any]) -> list[Any]:
        runs.append(len(arrays[0]))
        if (arrays[0] < 0).any():
            raise ValueError("a negative number")
        return [arrays[0] * 2]

    joined = Joined(run, [("x", "FP32", [-1, 3])], [("y", "FP32", [-1, 3])], "m.onnx")
    items = [np.full((1, 3), n, "f4") for n in (1, -1, 2)]
    one, bad, two = await joined(items)
    assert isinstance(bad, ValueError)
    assert isinstance(one, dict)
    assert isinstance(two, dict)
    assert (one["y"][0, 0], two["y"][0, 0]) == (2, 4)
    assert runs == [3, 1, 1, 1]
    assert joined.apart is None


@pytest.mark.parametrize("least", [1, 32, 224])
async def test_a_file_that_computes_no_batch_is_found_when_it_is_loaded(
    least: int, caplog: pytest.LogCaptureFixture
) -> None:
    """One that takes any extent, and ones that take multiples of 32 or 224."""
    runs: list[tuple[int, ...]] = []

    async def run(arrays: list[Any]) -> list[Any]:
        runs.append(arrays[0].shape)
        if arrays[0].shape[1] % least:
            raise ValueError("an extent")
        if len(arrays[0]) > 2:
            raise ValueError("more rows than two")
        return [arrays[0] * 2]

    joined = Joined(run, [("x", "FP32", [-1, -1])], [("y", "FP32", [-1, -1])], "m.onnx")
    await joined.probe()
    assert joined.apart == "a batch fails while each of its requests is computed: more rows than two"
    assert "m.onnx: requests are not joined" in caplog.text
    assert {shape[1] for shape in runs} <= {4, 32, 224}
    runs.clear()
    x = np.ones((1, least), "f4")
    found = await joined([x, x, x])
    assert [each["y"][0, 0] for each in found if isinstance(each, dict)] == [2, 2, 2]
    assert [shape[0] for shape in runs] == [1, 1, 1]


async def test_rows_that_are_mixed_only_where_numbers_are_large() -> None:
    async def run(arrays: list[Any]) -> list[Any]:
        return [arrays[0] * (2 if arrays[0].max() > 20 else 1)]

    joined = Joined(run, [("x", "FP32", [-1, 3])], [("y", "FP32", [-1, 3])], "m.onnx")
    await joined.probe()
    assert joined.apart is not None


async def test_large_requests_are_joined_and_compared_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "LARGE", 1)
    called: dict[str, set[bool]] = {}

    def noted(place: Any, name: str) -> None:
        original = getattr(place, name)

        def call(*args: Any, **options: Any) -> Any:
            called.setdefault(name, set()).add(threading.current_thread() is threading.main_thread())
            return original(*args, **options)

        monkeypatch.setattr(place, name, call)

    for name in ("_differ", "_difference", "_made"):
        noted(of_joined, name)

    async def run(arrays: list[Any]) -> list[Any]:
        return [2 * arrays[0]]

    joined = Joined(run, [("x", "FP32", [-1, 3])], [("y", "FP32", [-1, 3])], "m.onnx")
    await joined.probe()
    found = await joined([np.full((n, 3), n, "f4") for n in (1, 2)])
    assert [each["y"].tolist() for each in found if isinstance(each, dict)] == [[[2] * 3], [[4] * 3] * 2]
    assert joined.apart is None
    assert called == {name: {False} for name in ("_differ", "_difference", "_made")}
