"""ONNX files as models: real ones, which come with ONNX Runtime."""

import asyncio
import os
import shutil
import signal
import sys
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from serve_lab import TIMEOUT, anyone, client_of, tensor

import callboard as cb
from callboard.serve import App
from callboard.serve.bundled.onnx import RunOptions, onnx_version

onnxruntime = pytest.importorskip("onnxruntime", reason="for the extra onnx")
datasets = pytest.importorskip("onnxruntime.datasets")

SIGMOID, IRIS, MUL = (Path(datasets.get_example(f"{name}.onnx")) for name in ("sigmoid", "logreg_iris", "mul_1"))


@asynccontextmanager
async def serving(path: Path, isolation: Any = "thread", **options: Any) -> AsyncIterator[tuple[App, Any, cb.Device]]:
    async with cb.device("cpu", isolation=isolation) as device, asyncio.timeout(TIMEOUT):
        app = App(model_control=True, rights=anyone)
        await app.add_onnx("m", path, device, **options)
        async with client_of(app) as http:
            yield app, http, device


async def infer(http: httpx.AsyncClient, name: str, array: Any) -> Any:
    given = tensor(name, "FP32", list(array.shape), array.ravel().tolist())
    found = await http.post("/v2/models/m/infer", json={"inputs": [given]})
    assert found.status_code == 200, found.text
    return [np.array(each["data"]).reshape(each["shape"]) for each in found.json()["outputs"]]


async def test_a_file_says_what_it_takes() -> None:
    x = np.linspace(-3, 3, 60, dtype="f4").reshape(3, 4, 5)
    async with serving(SIGMOID) as (_, http, _):
        described = (await http.get("/v2/models/m")).json()
        assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [3, 4, 5]}]
        (y,) = await infer(http, "x", x)
        wrong = await http.post("/v2/models/m/infer", json={"inputs": [tensor("x", "FP32", [1], [1.0])]})
    np.testing.assert_allclose(y, 1 / (1 + np.exp(-x)), rtol=1e-5)
    assert wrong.status_code == 400


async def test_outputs_that_are_no_tensors_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    session = onnxruntime.InferenceSession(str(IRIS), providers=["CPUExecutionProvider"])
    flowers = np.array([[5.1, 3.5], [6.3, 2.8], [4.9, 3.0]], "f4")
    async with serving(IRIS) as (_, http, _):
        assert [each["name"] for each in (await http.get("/v2/models/m")).json()["outputs"]] == ["label"]
        (labels,) = await infer(http, "float_input", flowers)
    assert "are left out: probabilities is a sequence" in caplog.text
    assert np.array_equal(labels, session.run(["label"], {"float_input": flowers})[0])


def field(number: int, value: int | bytes | str) -> bytes:
    """A field of a protocol buffer: an integer below 128, bytes or a text below 128 bytes, or a message."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    value = value.encode() if isinstance(value, str) else value
    length = bytes([len(value)]) if len(value) < 128 else bytes([len(value) & 127 | 128, len(value) >> 7])
    return bytes([number << 3 | 2]) + length + value


def onnx_file(operation: str, kind: int, *shape: int | str) -> bytes:
    """A model of one operation on an input ``x``: texts name open extents. 1 is ONNX's float, 8 its string."""
    dims = b"".join(field(1, field(2 if isinstance(dim, str) else 1, dim)) for dim in shape)
    x, y = (field(1, name) + field(2, field(1, field(1, kind) + field(2, dims))) for name in "xy")
    node = field(1, "x") + field(2, "y") + field(4, operation)
    graph = field(1, node) + field(2, "g") + field(11, x) + field(12, y)
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))


async def test_requests_are_joined_along_the_first_axis(tmp_path: Path) -> None:
    path = tmp_path / "sigmoid.onnx"
    path.write_bytes(onnx_file("Sigmoid", 1, "n", "m"))
    given = [np.full((1 + i % 3, 2 + i % 2), i, "f4") for i in range(30)]
    async with serving(path, max_batch=16) as (app, http, _):
        found = await asyncio.gather(*(infer(http, "x", each) for each in given))
        stats: Any = app.models["m"].run_stats()
    for (y,), x in zip(found, given, strict=True):
        np.testing.assert_allclose(y, 1 / (1 + np.exp(-x)), rtol=1e-5)
    assert stats.batches < 30


async def test_a_model_that_is_no_longer_served_leaves_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sigmoid.onnx"
    opened: Any = weakref.WeakSet()
    make = onnxruntime.InferenceSession

    def session(*args: Any, **options: Any) -> Any:
        opened.add(made := make(*args, **options))
        return made

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    async with cb.device("cpu") as device, asyncio.timeout(TIMEOUT):
        for n in range(2):
            path.write_bytes(onnx_file("Sigmoid", 1, "n", n + 1))
            version, file = await onnx_version(device, path, RunOptions(), max_batch=1, max_queue=4)
            assert file.provider == "onnxruntime"
            server = await version.load()
            async with server:
                await server.submit(np.zeros((1, n + 1), "f4"))
            assert version.unload is not None
            assert len(opened) == 1
            await version.unload(server)
            assert not opened


async def test_texts(tmp_path: Path) -> None:
    path = tmp_path / "identity.onnx"
    path.write_bytes(onnx_file("Identity", 8, "n"))
    async with serving(path, max_batch=4) as (_, http, _):
        given = tensor("x", "BYTES", [2], ["naïve", "café"])
        found = (await http.post("/v2/models/m/infer", json={"inputs": [given]})).json()
    assert found["outputs"] == [tensor("y", "BYTES", [2], ["naïve", "café"])]


@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only")
@pytest.mark.slow
async def test_a_changed_file_is_loaded_and_the_host_killed(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    shutil.copy(MUL, path)
    x = np.arange(1, 7, dtype="f4").reshape(3, 2)
    async with serving(path, "process") as (_, http, device):
        name = (await http.get("/v2/models/m")).json()["inputs"][0]["name"]
        (before,) = await infer(http, name, x)
        assert (await http.post("/v2/repository/models/m/load")).status_code == 200
        generation, pid = device.generation, device.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await device.watch_generation().changed(generation)
        (after,) = await infer(http, name, x)
        shutil.copy(SIGMOID, path)  # of another shape
        refused = await http.post("/v2/repository/models/m/load")
        (still,) = await infer(http, name, x)
    assert np.array_equal(before, x * [[1, 2], [3, 4], [5, 6]])
    assert np.array_equal(after, before)
    assert np.array_equal(still, before)
    assert refused.status_code == 500
    assert "load" in refused.json()["error"]


async def test_files_that_cannot_be_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"nothing")
    async with cb.device("cpu") as device:
        app = App()
        for path, error, says in (
            (broken, ValueError, "broken.onnx: this is no ONNX model"),
            (tmp_path / "none.onnx", OSError, "none"),
        ):
            with pytest.raises(error, match=says):
                await app.add_onnx("m", path, device)
        with pytest.raises(ValueError, match="first extent of each tensor must be open"):
            await app.add_onnx("m", SIGMOID, device, max_batch=8)
        assert app.models == {}
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        texts = tmp_path / "texts.onnx"
        texts.write_bytes(onnx_file("Identity", 8, "n"))
        with pytest.raises(cb.BackendUnavailable, match=r"pip install 'callboard\[onnx\]'"):
            await app.add_onnx("m", texts, device)
        with pytest.raises(ValueError, match="x has texts, which only ONNX Runtime takes"):
            await app.add_onnx("m", texts, device, engine="callboard")
