"""ONNX files served by callboard's own engine: plans of ``dev.engine``."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from serve_lab import TIMEOUT, anyone, client_of, tensor

import callboard as cb
from callboard.kernel.engine.onnxfile import field_bytes, info_bytes, tensor_bytes
from callboard.serve import App
from callboard.serve.bundled.appfile import app_of
from callboard.serve.errors import BadAppFile

W = np.random.default_rng(1).standard_normal((4, 3)).astype("f4")


def node(op: str, inputs: list[str], output: str) -> bytes:
    names = b"".join(field_bytes(1, name) for name in inputs)
    return field_bytes(1, names + field_bytes(2, output) + field_bytes(4, op))


def model(*nodes: bytes, w: Any = W, y: tuple[str, Any] = ("f32", ["n", 3])) -> bytes:
    graph = b"".join(nodes) + field_bytes(2, "net") + field_bytes(5, tensor_bytes("w", w))
    graph += field_bytes(11, info_bytes("x", "f32", ["n", 4])) + field_bytes(12, info_bytes("y", *y))
    return field_bytes(1, 9) + field_bytes(7, graph) + field_bytes(8, field_bytes(2, 20))


NET = node("MatMul", ["x", "w"], "m"), node("Relu", ["m"], "y")


def expected(x: Any, w: Any = W) -> Any:
    return np.maximum(x @ w, 0)


def write(file: Path, content: bytes | str) -> None:
    file.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "net.onnx"
    file.write_bytes(model(*NET))
    return file


@asynccontextmanager
async def serving(path: Path, isolation: Any = "thread", **options: Any) -> AsyncIterator[tuple[App, Any, cb.Device]]:
    async with cb.device("cpu", isolation=isolation) as device, asyncio.timeout(TIMEOUT):
        app = App(model_control=True, rights=anyone)
        await app.add_onnx("m", path, device, **{"engine": "callboard", **options})
        async with client_of(app) as http:
            yield app, http, device


async def infer(http: httpx.AsyncClient, x: Any) -> Any:
    given = tensor("x", "FP32", list(x.shape), x.ravel().tolist())
    found = await http.post("/v2/models/m/infer", json={"inputs": [given]})
    assert found.status_code == 200, found.text
    (y,) = found.json()["outputs"]
    return np.array(y["data"], "f4").reshape(y["shape"])


def inputs(count: int) -> list[Any]:
    draw = np.random.default_rng(2)
    return [draw.standard_normal((1 + i % 3, 4)).astype("f4") for i in range(count)]


async def test_requests_of_several_shapes_are_joined(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # no ONNX Runtime
    given = inputs(40)
    async with serving(path, max_batch=16) as (app, http, _):
        described = (await http.get("/v2/models/m")).json()
        found = await asyncio.gather(*(infer(http, x) for x in given))
        stats: Any = app.models["m"].run_stats()
    assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert described["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}]
    for y, x in zip(found, given, strict=True):
        np.testing.assert_allclose(y, expected(x), rtol=1e-5, atol=1e-6)
    assert stats.batches < 40


async def test_a_changed_file_is_loaded(path: Path) -> None:
    (x,) = inputs(1)
    async with serving(path) as (_, http, _):
        before = await infer(http, x)
        write(path, model(*NET, w=2 * W))
        assert (await http.post("/v2/repository/models/m/load")).status_code == 200
        after = await infer(http, x)
        write(path, model(*NET, y=("f32", ["n", "k"])))
        refused = await http.post("/v2/repository/models/m/load")
        still = await infer(http, x)
    np.testing.assert_allclose(before, expected(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(after, expected(x, 2 * W), rtol=1e-5, atol=1e-6)
    assert np.array_equal(still, after)
    assert refused.status_code == 500


async def test_replicas_on_several_devices(path: Path) -> None:
    given = inputs(8)
    async with cb.device("cpu", isolation="thread") as one, cb.device("cpu", isolation="thread") as two:
        app = App(rights=anyone)
        await app.add_onnx("m", path, [one, two], engine="callboard", max_batch=4)
        async with asyncio.timeout(TIMEOUT), client_of(app) as http:
            found = await asyncio.gather(*(infer(http, x) for x in given))
    for y, x in zip(found, given, strict=True):
        np.testing.assert_allclose(y, expected(x), rtol=1e-5, atol=1e-6)


@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only")
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["callboard", "onnxruntime"])
async def test_no_request_fails_when_the_host_is_killed_between_them(path: Path, engine: Any) -> None:
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime", reason="for the extra onnx")
    given = inputs(60)
    async with serving(path, "process", engine=engine, max_batch=8) as (_, http, device):
        await asyncio.gather(*(infer(http, x) for x in given[:12]))  # some shapes are recorded by now
        kills = 0

        async def kill() -> None:
            nonlocal kills
            for _ in range(2):
                generation, pid = device.generation, device.health().host_pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                kills += 1
                await device.watch_generation().changed(generation)

        killer = asyncio.create_task(kill())
        found: list[Any] = []
        while not killer.done() or len(found) < len(given):
            at = len(found) % len(given)
            found += await asyncio.gather(*(infer(http, x) for x in given[at : at + 6]))
        await killer
    assert kills == 2
    for at, y in enumerate(found):
        np.testing.assert_allclose(y, expected(given[at % len(given)]), rtol=1e-5, atol=1e-6)


async def test_files_that_cannot_be_served(path: Path, tmp_path: Path) -> None:
    broken, unknown = tmp_path / "broken.onnx", tmp_path / "unknown.onnx"
    write(broken, b"nothing")
    write(unknown, model(node("NoSuchOp", ["x"], "y")))
    async with cb.device("cpu", isolation="thread") as device:
        app = App()
        for file, error, says in (
            (tmp_path / "none.onnx", OSError, "none.onnx"),
            (broken, ValueError, "broken|model|ONNX"),
            (unknown, cb.UnsupportedOp, "NoSuchOp"),
        ):
            with pytest.raises(error, match=says):
                await app.add_onnx("m", file, device, engine="callboard")
        with pytest.raises(ValueError, match="threads is 2, which is for ONNX Runtime"):
            await app.add_onnx("m", path, device, engine="callboard", threads=2)
        with pytest.raises(ValueError, match="engine"):
            await app.add_onnx("m", path, device, engine="tensorrt")  # type: ignore[arg-type]
        assert app.models == {}


async def test_an_app_file_names_the_engine(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "secret")
    monkeypatch.setenv("CALLBOARD_ISOLATION", "thread")
    (x,) = inputs(1)
    file = path.with_name("app.toml")
    text = 'device = "cpu"\ntoken_env = "SHOP_TOKEN"\n[models.m]\nonnx = "net.onnx"\nengine = "callboard"\n'
    write(file, text)
    async with client_of(app_of(file), headers={"Authorization": "Bearer secret"}) as http:
        np.testing.assert_allclose(await infer(http, x), expected(x), rtol=1e-5, atol=1e-6)
    write(path, model(node("NoSuchOp", ["x"], "y")))
    with pytest.raises(BadAppFile, match=r"models\.m: .*NoSuchOp"):
        async with client_of(app_of(file)):
            raise AssertionError
    write(path, model(*NET))
    write(file, f"{text}budget = 0\n")
    with pytest.raises(BadAppFile, match=r"models\.m: budget is 0"):
        async with client_of(app_of(file)):
            raise AssertionError
    write(file, 'token_env = "SHOP_TOKEN"\n[models.m]\ncall = "app:f"\nbudget = 2\n')
    with pytest.raises(ValueError, match="budget is for onnx only"):
        app_of(file)
    write(file, f"{text}threads = 2\n")
    with pytest.raises(ValueError, match="threads is for ONNX Runtime"):
        app_of(file)


async def test_more_rows_than_a_batch_may_have_are_refused_by_the_name_of_the_setting(path: Path) -> None:
    async with serving(path, max_batch=2) as (_, http, _):
        for rows, status in ((2, 200), (3, 413)):
            x = {"inputs": [tensor("x", "FP32", [rows, 4], [1.0] * 4 * rows)]}
            found = await http.post("/v2/models/m/infer", json=x)
            assert found.status_code == status
    assert found.json()["error"] == (
        "net.onnx: the request has 3 rows, and max_batch is 2: send at most 2 rows in a request, or serve the file "
        "with a larger max_batch"
    )


@pytest.mark.parametrize("name", ["max_batch", "max_queue"])
async def test_numbers_that_do_not_fit_are_refused_before_the_file_is_opened(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1, but is 0"):
        async with serving(tmp_path / "missing.onnx", **{name: 0}):
            pass
