"""A client that others wrote: tritonclient."""

import asyncio
import gzip
import warnings
from collections.abc import Callable
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from serve_lab import X, Y, anyone, small_app

import callboard as cb
from callboard.serve import App, listening

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what gevent uses, when it is imported
    triton = pytest.importorskip("tritonclient.http", reason="scripts/test installs it; it holds ml-dtypes below 0.6")
    gevent = pytest.importorskip("gevent")


async def with_triton(app: App, work: Callable[[Any], Any], **options: Any) -> Any:
    """Run ``work(client)`` on a thread, against the app on a real port."""

    def run(address: str) -> Any:
        client = triton.InferenceServerClient(address, **options)
        try:
            return work(client)
        finally:
            client.close()
            gevent.get_hub().destroy(destroy_loop=True)  # of this thread

    async with listening(app, port=0) as url:
        return await asyncio.to_thread(run, url.removeprefix("http://"))


def given(name: str, array: Any, datatype: str, *, binary: bool = True) -> Any:
    found = triton.InferInput(name, list(array.shape), datatype)
    found.set_data_from_numpy(array, binary_data=binary)
    return found


async def test_a_sequence() -> None:
    def totals(items: list[Any], slots: list[cb.SequenceSlot]) -> list[Any]:
        for item, slot in zip(items, slots, strict=True):
            slot.state = item if slot.start else slot.state + item
        return [slot.state for slot in slots]

    def work(client: Any) -> None:
        assert "sequence_batching" in client.get_model_config("total")
        for name in (7, "seven"):
            for x, total in ((1.0, 1.0), (2.0, 3.0)):
                found = client.infer(
                    "total",
                    [given("x", np.array([x], "f4"), "FP32")],
                    sequence_id=name,
                    sequence_start=x == 1.0,
                    sequence_end=x == 2.0,
                )
                assert found.as_numpy("y") == [total]

    app = App("lab")
    app.add_model("total", cb.SequenceBatchingServer(totals), inputs=X, outputs=Y)
    await with_triton(app, work)


async def test_health_metadata_index_and_statistics() -> None:
    def work(client: Any) -> None:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("sum")
        assert client.is_model_ready("sum", "7")
        assert not client.is_model_ready("none")
        assert not client.is_model_ready("sum", "8")
        assert client.get_server_metadata()["name"] == "lab"
        metadata = client.get_model_metadata("sum", "7")
        assert metadata["versions"] == ["7"]
        assert metadata["inputs"][0] == {"name": "a", "datatype": "INT64", "shape": [2, -1]}
        configured = client.get_model_config("echo")
        assert configured["input"] == [{"name": "x", "data_type": "TYPE_STRING", "dims": [-1]}]
        assert {"name": "sum", "version": "7", "state": "READY", "reason": ""} in client.get_model_repository_index()
        client.infer("double", [given("x", np.ones(3, "f4"), "FP32")])
        with pytest.raises(triton._utils.InferenceServerException, match="neither loaded nor unloaded"):
            client.load_model("double")
        (found,) = client.get_inference_statistics("double")["model_stats"]
        assert found["inference_count"] == found["inference_stats"]["success"]["count"] == 1
        assert {each["name"] for each in client.get_inference_statistics()["model_stats"]} >= {"double", "sum"}

    await with_triton(small_app(), work)


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
async def test_infer_with_json_and_binary_tensors(binary_in: bool, binary_out: bool) -> None:
    a, b = np.arange(6).reshape(2, 3), np.full((2, 3), 10)

    def work(client: Any) -> None:
        inputs = [given("a", a, "INT64", binary=binary_in), given("b", b, "INT64", binary=binary_in)]
        outputs = [triton.InferRequestedOutput(name, binary_data=binary_out) for name in ("text", "total")]
        found = client.infer("sum", inputs, model_version="7", outputs=outputs, request_id="r1")
        assert np.array_equal(found.as_numpy("total"), a + b)
        assert [each.decode() if binary_out else each for each in found.as_numpy("text")] == ["sum", "ümlaut"]
        assert found.get_response()["id"] == "r1"
        assert found.get_response()["model_version"] == "7"
        only = client.infer("sum", inputs, outputs=outputs[:1]).get_response()["outputs"]
        assert [each["name"] for each in only] == ["text"]

    await with_triton(small_app(), work)


@pytest.mark.parametrize(
    "model, array",
    [
        ("FP16", np.array([0.5, -2], np.float16)),
        ("BF16", np.array([0.5, -2], ml_dtypes.bfloat16)),
        ("BOOL", np.array([True, False])),
        ("UINT8", np.arange(5, dtype=np.uint8)),
        ("UINT8", np.empty(0, np.uint8)),
        ("double", np.arange(3, dtype=np.float32)),
        ("echo", np.array([b"", b"\xff\x00", "ü".encode()], object)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_datatypes_and_compression(model: str, array: Any) -> None:
    datatype = {"double": "FP32", "echo": "BYTES"}.get(model, model)
    want = 2 * array if model == "double" else array

    def work(client: Any) -> None:
        for algorithm in (None, "gzip", "deflate"):
            found = client.infer(
                model,
                [given("x", array, datatype)],
                request_compression_algorithm=algorithm,
                response_compression_algorithm=algorithm,
            ).as_numpy("y")
            assert np.array_equal(found.astype(want.dtype), want)

    await with_triton(small_app(), work)


async def test_a_long_response_is_compressed() -> None:
    ones = np.ones(100_000, "f4")

    def work(client: Any) -> None:
        for algorithm in ("gzip", "deflate"):
            found = client.infer("double", [given("x", ones, "FP32")], response_compression_algorithm=algorithm)
            assert np.array_equal(found.as_numpy("y"), 2 * ones)

    await with_triton(small_app(), work)


async def test_errors_come_with_their_reason() -> None:
    cases = [
        ("none", [given("x", np.ones(1, "f4"), "FP32")], "there is no model 'none'", "404"),
        ("double", [given("x", np.ones((1, 1), "f4"), "FP32")], "input 'x' has shape [1, 1], but the model", "400"),
        ("double", [given("x", np.ones(1), "FP64")], "input 'x' is FP64, but the model takes FP32", "400"),
        ("double", [given("y", np.ones(1, "f4"), "FP32")], "the model has no input 'y'; it takes 'x'", "400"),
        ("sum", [given("a", np.ones((2, 1), "i8"), "INT64")], "input 'b' is missing", "400"),
    ]

    def work(client: Any) -> None:
        for model, inputs, says, status in cases:
            with pytest.raises(triton._utils.InferenceServerException) as e:
                client.infer(model, inputs)
            assert e.value.status() == status
            assert says in e.value.message()

    await with_triton(small_app(), work)


async def test_models_are_loaded_and_unloaded() -> None:
    loads = 0

    def load() -> Any:
        nonlocal loads
        loads += 1
        factor = np.float32(loads)
        return lambda x: x * factor

    app = App(model_control=True, rights=anyone)
    app.add_model("m", cb.ModelVersion("1", load), inputs=X, outputs=Y)

    def work(client: Any) -> None:
        def answer() -> list[float]:
            found: list[float] = client.infer("m", [given("x", np.ones(2, "f4"), "FP32")]).as_numpy("y").tolist()
            return found

        assert answer() == [1, 1]
        client.load_model("m")
        assert answer() == [2, 2]
        client.unload_model("m")
        assert not client.is_model_ready("m")
        with pytest.raises(triton._utils.InferenceServerException, match="'m' is unloaded"):
            answer()
        client.load_model("m")
        assert client.is_model_ready("m")
        assert answer() == [3, 3]
        with pytest.raises(triton._utils.InferenceServerException, match="'config' is not supported"):
            client.load_model("m", config="{}")

    await with_triton(app, work)


async def test_tensors_in_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("register", "unregister"):  # which start a process that outlives the test
        monkeypatch.setattr(resource_tracker, name, lambda *_: None)
    shm = pytest.importorskip("tritonclient.utils.shared_memory")
    region = shm.create_shared_memory_region("r", "callboard-clients", 64)
    values = np.arange(4, dtype="f4")

    def work(client: Any) -> None:
        client.register_system_shared_memory("r", "callboard-clients", 64)
        assert [each["name"] for each in client.get_system_shared_memory_status()] == ["r"]
        shm.set_shared_memory_region(region, [values], offset=8)
        item = triton.InferInput("x", [4], "FP32")
        item.set_shared_memory("r", 16, offset=8)
        output = triton.InferRequestedOutput("y")
        output.set_shared_memory("r", 16, offset=32)
        found = client.infer("double", [item], outputs=[output])
        assert found.get_output("y")["parameters"]["shared_memory_region"] == "r"
        assert shm.get_contents_as_numpy(region, np.float32, [4], offset=32).tolist() == [0, 2, 4, 6]
        client.unregister_system_shared_memory("r")
        with pytest.raises(triton._utils.InferenceServerException, match="register it first"):
            client.infer("double", [item])

    try:
        await with_triton(small_app(shared_memory="callboard-"), work)
    finally:
        shm.destroy_shared_memory_region(region)


async def test_trace_settings(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"

    def work(client: Any) -> None:
        assert client.get_trace_settings()["trace_level"] == ["OFF"]
        client.update_trace_settings("double", {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"})
        client.infer("double", [given("x", np.ones(2, "f4"), "FP32")])
        assert client.update_trace_settings("double", {"trace_level": None})["trace_level"] == ["OFF"]

    await with_triton(small_app(trace_file=path), work)
    assert len(path.read_text().splitlines()) == 1


async def test_the_asynchronous_client() -> None:
    import tritonclient.http.aio as triton_aio

    async with listening(small_app(), port=0) as url:
        client = triton_aio.InferenceServerClient(url.removeprefix("http://"))
        try:
            found = await asyncio.gather(
                *(client.infer("double", [given("x", np.full(2, i, "f4"), "FP32")]) for i in range(8))
            )
        finally:
            await client.close()
    assert [each.as_numpy("y").tolist() for each in found] == [[2 * i, 2 * i] for i in range(8)]


async def test_a_body_that_the_client_generated() -> None:
    body, length = triton.InferenceServerClient.generate_request_body([given("x", np.ones(2, "f4"), "FP32")])
    import httpx

    async with listening(small_app(), port=0) as url, httpx.AsyncClient(base_url=url) as http:
        found = await http.post(
            "/v2/models/double/infer",
            content=gzip.compress(body),
            headers={"Inference-Header-Content-Length": str(length), "Content-Encoding": "gzip"},
        )
    length = int(found.headers["inference-header-content-length"])
    result = triton.InferenceServerClient.parse_response_body(found.content, header_length=length)
    assert result.as_numpy("y").tolist() == [2.0, 2.0]
