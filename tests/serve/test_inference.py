"""The Open Inference Protocol, request by request."""

import functools
import json
from typing import Any

import numpy as np
import pytest
from serve_lab import client_of, request_of, small_app, tensor

import callboard as cb
from callboard.serve import App, BadRequest, Tensor

INFER = "/v2/models/double/infer"


async def test_a_request_without_a_content_type() -> None:
    async with client_of(small_app()) as http:
        found = await http.post(INFER, content=json.dumps(request_of([1, 2], id="a")))
    assert found.status_code == 200
    assert found.json() == {
        "id": "a",
        "model_name": "double",
        "model_version": "1",
        "outputs": [{"name": "y", "shape": [2], "datatype": "FP32", "data": [2.0, 4.0]}],
    }


@pytest.mark.parametrize(
    "body, says",
    [
        (b"", "the body is not an inference request"),
        (b"\xff", "the body is not an inference request"),
        (b"[" * 100_000, "the body is not an inference request"),
        (b"{}", "missing required field `inputs`"),
        ({"inputs": []}, "input 'x' is missing"),
        ({"inputs": [tensor("x", "FP32", [1], [1])] * 2}, "input 'x' occurs twice"),
        ({"inputs": [tensor("x", "FP32", [-1], [])]}, "has shape [-1]; the extents of a request are at least 0"),
        (request_of([1], parameters={"binary_data_output": 1}), "binary_data_output must be true or false"),
        (request_of([1], parameters={"priority": -1}), "priority must be an integer of at least 0"),
        (request_of([1], parameters={"timeout": "1"}), "timeout must be an integer of at least 0"),
        (request_of([1], outputs=[{"name": "z"}]), "the model has no output 'z'; it has 'y'"),
        (request_of([1], outputs=[{"name": "y"}] * 20_000), "output 'y' is requested twice"),
        ({"inputs": [{**tensor("x", "FP32", [1], [1]), "parameters": {"binary_data_size": 4}}]}, "has both data and"),
    ],
)
async def test_requests_that_are_refused(body: Any, says: str) -> None:
    async with client_of(small_app()) as http:
        found = await http.post(INFER, content=body if isinstance(body, bytes) else json.dumps(body))
    assert found.status_code == 400
    assert says in found.json()["error"]


def binary(size: int) -> bytes:
    return json.dumps(
        {"inputs": [{**tensor("x", "FP32", [1], None), "parameters": {"binary_data_size": size}}]}
    ).encode()


@pytest.mark.parametrize(
    "length, body, says",
    [
        ("-1", b"", "inference-header-content-length is '-1'"),
        ("9999", b"", "inference-header-content-length is '9999'"),
        ("²", b"", "inference-header-content-length"),
        (None, binary(4), "binary_data_size is 4, and 0 bytes are left"),
        (str(len(binary(4))), binary(4) + b"12345", "1 bytes follow the last input"),
        (str(len(binary(3))), binary(3) + b"123", "has 3 bytes, but FP32 of shape [1] has 4"),
    ],
)
async def test_raw_data_that_is_refused(length: str | None, body: bytes, says: str) -> None:
    headers = {} if length is None else {"Inference-Header-Content-Length": length.encode("latin-1")}
    async with client_of(small_app()) as http:
        found = await http.post(INFER, content=body, headers=headers)
    assert found.status_code == 400
    assert says in found.json()["error"]


async def test_each_output_is_as_the_client_asks() -> None:
    a = [[1, 2], [3, 4]]
    body = {
        "inputs": [tensor("a", "INT64", [2, 2], a), tensor("b", "INT64", [2, 2], a)],
        "parameters": {"binary_data_output": True},
        "outputs": [{"name": "text"}, {"name": "total", "parameters": {"binary_data": False}}],
    }
    async with client_of(small_app()) as http:
        found = await http.post("/v2/models/sum/versions/7/infer", json=body)
    length = int(found.headers["inference-header-content-length"])
    head = json.loads(found.content[:length])
    assert found.headers["content-type"] == "application/octet-stream"
    assert head["outputs"] == [
        {"name": "text", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": 18}},
        {"name": "total", "shape": [2, 2], "datatype": "INT64", "data": [2, 4, 6, 8]},
    ]
    assert found.content[length:] == b"\x03\x00\x00\x00sum\x07\x00\x00\x00" + "ümlaut".encode()


@pytest.mark.parametrize(
    "path, status",
    [
        ("/v2/models/none", 404),
        ("/v2/models/sum/versions/8", 404),
        ("/v2/models/letters", 200),
        ("/v2/nothing", 404),
        ("/nothing", 404),
        (INFER, 405),
        ("/v2/health/live", 200),
        ("/v2/health/ready", 200),
        ("/v2/models/sum/versions/7/ready", 200),
    ],
)
async def test_urls(path: str, status: int) -> None:
    app = small_app()
    app.add_embeddings("letters", lambda texts: [[len(text)] for text in texts])
    async with client_of(app) as http:
        found = await http.get(path)
    assert found.status_code == status
    assert ("error" in found.json()) == (status != 200)


class Failing(Exception):
    pass


@pytest.mark.parametrize(
    "error, status, says",
    [
        (Failing("broken"), 500, "the model failed; request "),
        (cb.ContextPoisoned("the context died"), 422, "was in flight at 3 losses"),
        (cb.ShapeError("a is 1 by 2"), 400, "a is 1 by 2"),
        (ValueError("bad"), 500, "the model failed; request "),
        (cb.DeviceStopped("closed"), 503, "a device that the model needs has stopped; request "),
        (cb.MailboxFull("8 calls"), 429, "no room"),
        (cb.Quarantined("it kills its context", "its key"), 422, "model 'double': request 'its key'"),
        (cb.BudgetSpent("net.onnx: longer than 30 s"), 504, "net.onnx: longer than 30 s"),
        (cb.AskTimeout("late"), 504, "the model did not answer in time; request "),
        (SystemExit(3), 500, "the model failed; request "),
    ],
)
async def test_what_a_model_raises_is_told(error: BaseException, status: int, says: str) -> None:
    def model(x: Any) -> Any:
        raise error

    app = App()
    app.add_model("double", model, inputs=[Tensor("x", "FP32", [-1])], outputs=[Tensor("y", "FP32", [-1])])
    async with client_of(app) as http:
        found = await http.post(INFER, json=request_of([1]))
        # A device that has stopped: the process must be started again.
        healthy = 503 if isinstance(error, cb.DeviceStopped) else 200
        for health in ("live", "ready"):
            assert (await http.get(f"/v2/health/{health}")).status_code == healthy
    assert found.status_code == status
    assert says in found.json()["error"]
    assert ("retry-after" in found.headers) == (status == 429)


@pytest.mark.parametrize(
    "outputs, value, says",
    [
        (["y"], np.ones(1), "output 'y' is float64, but declared as FP32"),
        (["y"], {"z": 1}, "gave 'z', but no 'y'"),
        (["y", "z"], np.ones(2, "f4"), "must give a dict, or a tuple of 2: y, z"),
        (["y", "z"], (np.ones(2, "f4"),), "must give a dict, or a tuple of 2: y, z"),
    ],
)
async def test_results_that_cannot_be_sent(
    outputs: list[str], value: Any, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()
    app.add_model(
        "double",
        lambda x: value,
        inputs=[Tensor("x", "FP32", [-1])],
        outputs=[Tensor(n, "FP32", [-1]) for n in outputs],
    )
    async with client_of(app) as http:
        found = await http.post(INFER, json=request_of([1]))
    assert found.status_code == 500
    assert found.json()["error"].startswith("the model returned something else than it declares; request ")
    assert says in caplog.text


async def test_a_model_behind_a_batching_server() -> None:
    def twice(items: list[Any]) -> list[Any]:
        assert all(isinstance(item, np.ndarray) for item in items)
        return [ValueError("negative") if item[0] < 0 else 2 * item for item in items]

    def added(items: list[Any]) -> list[Any]:
        return [{"c": a + b} for a, b in items]

    app = App()
    f32 = [Tensor(name, "FP32", [-1]) for name in "xyabc"]
    app.add_model("double", cb.DynamicBatchingServer(twice, max_batch=4), inputs=f32[:1], outputs=f32[1:2])
    app.add_model("add", cb.DynamicBatchingServer(added), inputs=f32[2:4], outputs=f32[4:])
    async with client_of(app) as http:
        good = await http.post(INFER, json=request_of([3]))
        bad = await http.post(INFER, json=request_of([-3]))
        both = [tensor("a", "FP32", [1], [1]), tensor("b", "FP32", [1], [2])]
        sum_ = await http.post("/v2/models/add/infer", json={"inputs": both})
        stats = (await http.get("/v2/models/double/stats")).json()["model_stats"][0]
    assert good.json()["outputs"][0]["data"] == [6.0]
    assert (bad.status_code, bad.json()["error"].partition("; ")[0]) == (500, "the model failed")
    assert sum_.json()["outputs"][0]["data"] == [3.0]
    assert (stats["inference_count"], stats["execution_count"]) == (1, 2)
    assert stats["inference_stats"]["fail"]["count"] == 1
    assert [each["batch_size"] for each in stats["batch_stats"]] == [1]


@pytest.mark.parametrize("name", ["x", "xx", "xxx", "xxxx", "xxxxx"])
async def test_raw_data_are_not_copied_to_be_aligned(name: str) -> None:
    owners: list[Any] = []
    app = App()
    tensors = [Tensor(name, "FP64", [-1])]
    app.add_model("double", lambda x: owners.append(x.base) or x[::2], inputs=tensors, outputs=tensors)
    parameters = {"binary_data_size": 32}
    head = json.dumps({"inputs": [{**tensor(name, "FP64", [4], None), "parameters": parameters}]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    async with client_of(app) as http:
        found = await http.post(INFER, content=head + np.arange(4.0).tobytes(), headers=headers)
    assert found.json()["outputs"][0]["data"] == [0, 2]
    assert owners[0] is not None  # it is part of the body


class Doubling(cb.ResidentActor):
    def double(self, x: np.ndarray) -> np.ndarray:
        if x[0] < 0:
            raise BadRequest("x must not be negative")
        return 2 * x


async def test_a_method_of_a_resident_actor() -> None:
    async with cb.device("cpu") as gpu:
        actor = gpu.actor_of(cb.Props(Doubling))
        app = App()
        x, y = [Tensor("x", "FP32", [-1])], [Tensor("y", "FP32", [-1])]
        app.add_model("double", functools.partial(actor.call, Doubling.double), inputs=x, outputs=y, device=gpu)
        async with client_of(app) as http:
            good, bad = [await http.post(INFER, json=request_of([value])) for value in (3.0, -3.0)]
    assert good.json()["outputs"][0]["data"] == [6.0]
    assert (bad.status_code, bad.json()["error"]) == (400, "x must not be negative")


async def test_the_index_lists_models_that_are_ready() -> None:
    async with client_of(small_app()) as http:
        everything = (await http.post("/v2/repository/index")).json()
        ready = (await http.post("/v2/repository/index", json={"ready": True})).json()
        wrong = await http.post("/v2/repository/index", json={"ready": 3})
        load = await http.post("/v2/repository/models/sum/load")
    assert everything == ready
    assert {"name": "sum", "version": "7", "state": "READY", "reason": ""} in ready
    assert (wrong.status_code, load.status_code) == (400, 403)


@pytest.mark.parametrize("tenants", [None, {"": 1.0}])
async def test_what_came_over_http_is_not_copied(tenants: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server copies what its caller might write. The arrays of an HTTP request are no caller's."""
    items: list[Any] = []

    def not_called(item: Any) -> Any:
        items.append(item)
        return item

    monkeypatch.setattr("callboard.patterns.contract.atcall.taken", not_called)
    shape = {"inputs": [Tensor("x", "FP32", [-1])], "outputs": [Tensor("y", "FP32", [-1])]}
    app = App("lab")
    app.add_model("calls", lambda x: 2 * x, tenants=tenants, **shape)
    app.add_model("batches", cb.DynamicBatchingServer(lambda xs: [2 * x for x in xs]), tenants=tenants, **shape)
    app.add_model("versions", cb.ModelVersion("1", lambda: lambda x: 2 * x), tenants=tenants, **shape)
    app.add_route("/route", twice, tenants=tenants)
    async with client_of(app) as http:
        for name in ("calls", "batches", "versions"):
            found = await http.post(f"/v2/models/{name}/infer", content=json.dumps(request_of([1, 2])))
            assert found.json()["outputs"][0]["data"] == [2.0, 4.0]
        assert (await http.post("/route", content=b"[1, 2]")).json() == [2, 4]
    assert items == []


def twice(numbers: list[int]) -> list[int]:
    return [2 * number for number in numbers]
