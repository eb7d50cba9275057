"""Limits of the edge and the statuses that tell of them; tokens; compression."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from serve_lab import TIMEOUT, Held, X, Y, client_of, request_of, small_app, until

import callboard as cb
from callboard.actors import ManualClock
from callboard.serve import App, EdgeLimits
from callboard.serve.calls import CallServer

INFER = "/v2/models/double/infer"


def held_app(held: Held, **options: Any) -> App:
    app = App(limits=options.pop("limits", None))
    app.add_model("double", held, inputs=X, outputs=Y, **options)
    return app


# -- bodies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_that_is_too_long(declared: bool) -> None:
    body = json.dumps(request_of([1.0] * 100)).encode()

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 16):
            yield body[at : at + 16]

    for limit, status in ((len(body), 200), (len(body) - 1, 413)):
        async with client_of(small_app(limits=EdgeLimits(max_body=limit))) as http:
            found = await http.post(INFER, content=body if declared else chunks())
        assert found.status_code == status
    assert found.json()["error"] == f"the body is longer than {len(body) - 1} bytes"
    assert found.headers["connection"] == "close"


@pytest.mark.parametrize(
    "encoding, body, status, says",
    [
        ("gzip", gzip.compress(b"0" * 2000, mtime=0), 413, "longer than 1000 bytes after decompression"),
        ("gzip", gzip.compress(b"{}", mtime=0), 400, "missing required field"),
        ("gzip", b"no gzip", 400, "the body is no gzip data"),
        ("gzip", gzip.compress(b"{}", mtime=0)[:-1], 400, "end too early"),
        ("deflate", zlib.compress(b"{}") + b"x", 400, "or something follows them"),
        ("GZIP", gzip.compress(b"[]", mtime=0), 400, "not an inference request"),
        ("br", b"", 415, "Content-Encoding is 'br'; use gzip, deflate or identity"),
    ],
)
async def test_compressed_bodies(encoding: str, body: bytes, status: int, says: str) -> None:
    async with client_of(small_app(limits=EdgeLimits(max_body=1000))) as http:
        found = await http.post(INFER, content=body, headers={"Content-Encoding": encoding})
    assert found.status_code == status
    assert says in found.json()["error"]


@pytest.mark.parametrize(
    "accepted, encoding",
    [
        ("gzip", "gzip"),
        ("br, deflate;q=0.5", "deflate"),
        ("gzip;q=0", None),
        ("gzip; q=0.0, deflate", "deflate"),
        ("", None),
    ],
)
@pytest.mark.parametrize("n", [500, 40_000])
async def test_compressed_responses(accepted: str, encoding: str | None, n: int) -> None:
    async with client_of(small_app(), headers={"Accept-Encoding": accepted}) as http:
        found = await http.post(INFER, json=request_of([1.0] * n))
    assert found.headers.get("content-encoding") == encoding
    assert found.json()["outputs"][0]["data"] == [2.0] * n


async def test_a_body_that_does_not_come() -> None:
    sent: list[dict[str, Any]] = []
    never = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await never.wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    app = small_app(limits=EdgeLimits(body_timeout=0.01))
    scope = {"type": "http", "method": "POST", "path": INFER, "headers": [], "query_string": b""}
    async with app.running(), asyncio.timeout(TIMEOUT):
        await app(scope, receive, send)
    assert sent[0]["status"] == 408
    assert b"did not arrive within 0.01 s" in sent[1]["body"]


# -- queues and deadlines ----------------------------------------------------------------------------------------------


async def test_a_full_queue_says_when_to_come_again() -> None:
    held = Held()
    app = held_app(held, max_queue=1)
    async with client_of(app) as http, asyncio.timeout(TIMEOUT):
        first = asyncio.create_task(http.post(INFER, json=request_of([1])))
        await held.begun.get()
        second = asyncio.create_task(http.post(INFER, json=request_of([1, 2])))
        await until(lambda: app.models["double"].stats().queued == 1)
        refused = await http.post(INFER, json=request_of([1]))
        held.go.set()
        assert [(await each).status_code for each in (first, second)] == [200, 200]
    assert refused.status_code == 429
    assert refused.json()["error"] == "the queue is full: 1 of 1 requests (reject)"
    assert refused.headers["retry-after"] == "1"


@pytest.mark.parametrize("by", ["client", "app"])
async def test_a_request_that_takes_too_long_is_cancelled(by: str) -> None:
    held, clock = Held(), ManualClock()
    app = App(limits=EdgeLimits(request_timeout=10.0 if by == "app" else 1000.0))
    app.add_model("double", CallServer(held, clock=clock), inputs=X, outputs=Y)
    parameters = {"timeout": 10_000_000} if by == "client" else {}
    async with client_of(app) as http, asyncio.timeout(TIMEOUT):
        asking = asyncio.create_task(http.post(INFER, json=request_of([1], parameters=parameters)))
        await held.begun.get()
        clock.advance(10.0)
        assert await held.ended.get() == "cancelled"
        found = await asking
    assert found.status_code == 504
    assert "ran beyond its deadline" in found.json()["error"]


async def test_priorities_decide_the_order() -> None:
    held = Held()
    app = held_app(held)
    async with client_of(app) as http, asyncio.timeout(TIMEOUT):
        waiting = [asyncio.create_task(http.post(INFER, json=request_of([1])))]
        await held.begun.get()
        for n, priority in ((2, 100), (3, 0), (4, 50)):
            waiting.append(
                asyncio.create_task(http.post(INFER, json=request_of([1] * n, parameters={"priority": priority})))
            )
            await until(lambda n=n: app.models["double"].stats().queued == n - 1)
        held.go.set()
        await asyncio.gather(*waiting)
        assert [await held.begun.get() for _ in range(3)] == [3, 4, 2]


async def test_an_item_that_is_too_large() -> None:
    server = cb.DynamicBatchingServer(lambda items: items, cost=len, max_batch_cost=4)
    app = App()
    app.add_model("double", server, inputs=X, outputs=Y)
    async with client_of(app) as http:
        assert (await http.post(INFER, json=request_of([1] * 4))).status_code == 200
        found = await http.post(INFER, json=request_of([1] * 5))
    assert (found.status_code, found.json()["error"]) == (
        413,
        "the item costs 5, and max_batch_cost is 4: split it, or raise max_batch_cost",
    )


@pytest.mark.parametrize("model", [lambda x: x, cb.ModelVersion("1", lambda: len)], ids=["function", "version"])
@pytest.mark.parametrize("name", ["concurrency", "max_queue"])
def test_a_number_of_a_model_that_does_not_fit(model: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be at least 1, but is 0"):
        App().add_model("m", model, inputs=X, outputs=Y, **{name: 0})


# -- readiness ---------------------------------------------------------------------------------------------------------


async def test_requests_before_and_after_the_app_runs() -> None:
    app = small_app()
    async with client_of(app) as http:
        await app.drain()
        assert (await http.get("/v2/health/live")).status_code == 200
        assert (await http.get("/v2/health/ready")).status_code == 503
        for path, body in ((INFER, request_of([1])), ("/v1/embeddings", {"model": "a", "input": "a"})):
            found = await http.post(path, json=body)
            assert (found.status_code, found.headers["retry-after"]) == (503, "1")
            assert "lab is draining" in found.text
        index = (await http.post("/v2/repository/index", json={"ready": True})).json()
        assert index == []
        assert "callboard_ready 0" in (await http.get("/metrics")).text


async def test_readiness_follows_the_device() -> None:
    async with cb.device("cpu") as gpu:
        app = App()
        app.add_model("double", lambda x: gpu.put(x), device=gpu, inputs=X, outputs=Y)
        async with client_of(app) as http:
            ready = await http.get("/v2/health/ready")
            model = await http.post(INFER, json=request_of([3]))
            await gpu.close()
            statuses = [(await http.get(path)).status_code for path in ("/v2/health/ready", "/v2/models/double/ready")]
            refused = await http.post(INFER, json=request_of([3]))
            live = await http.get("/v2/health/live")
    assert (ready.status_code, live.status_code, refused.status_code, statuses) == (200, 503, 503, [503, 503])
    assert model.json()["outputs"][0]["data"] == [3.0]
    assert refused.json()["error"].startswith("the device of model 'double' has stopped")
    assert "retry-after" not in refused.headers


async def test_readiness_waits_for_a_device_that_opens() -> None:
    async with cb.System("opening") as system:
        gpu = await system.device("cpu", isolation="process", standby=None, wait=False)
        app = App()
        app.add_model("double", lambda x: gpu.put(x), device=gpu, inputs=X, outputs=Y)
        async with client_of(app) as http:
            opening = [await http.get(f"/v2/health/{name}") for name in ("live", "ready")]
            waited = await http.post(INFER, json=request_of([3]))
            ready = await http.get("/v2/health/ready")
    assert [each.status_code for each in opening] == [200, 503]
    assert opening[1].json()["error"] == "the device of model 'double' is starting"
    assert (waited.status_code, ready.status_code) == (200, 200)


async def test_a_request_waits_for_its_device_for_a_time_only() -> None:
    async with cb.System("opening") as system:
        gpu = await system.device("cpu", isolation="process", standby=None, wait=False)
        app = App(limits=EdgeLimits(ready_timeout=1e-6))
        app.add_model("double", lambda x: gpu.put(x), device=gpu, inputs=X, outputs=Y)
        async with client_of(app) as http:
            refused = await http.post(INFER, json=request_of([3]))
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert "the device of model 'double' is starting" in refused.json()["error"]


async def test_an_app_is_checked() -> None:
    app = small_app()
    with pytest.raises(ValueError, match="there is a model 'double' already"):
        app.add_model("double", len, inputs=X, outputs=Y)
    with pytest.raises(ValueError, match="parts of URLs"):
        app.add_model("a/b", len, inputs=X, outputs=Y)
    with pytest.raises(ValueError, match="inputs must be tensors of different names"):
        app.add_model("a", max, inputs=X * 2, outputs=Y)
    with pytest.raises(ValueError, match="concurrency must be at least 1"):
        app.add_model("a", len, inputs=X, outputs=Y, concurrency=0)
    with pytest.raises(ValueError, match="max_body must be positive, but is 0"):
        EdgeLimits(max_body=0)
    async with app.running():
        with pytest.raises(RuntimeError, match="models are added before"):
            app.add_model("late", len, inputs=X, outputs=Y)
    with pytest.raises(RuntimeError, match="make another App"):
        async with app.running():
            pass


# -- tokens ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given, status",
    [
        (None, 401),
        ("Bearer wrong", 401),
        ("Basic secret", 401),
        ("Bearer ", 401),
        ("Bearer secret", 200),
        ("bearer secret", 200),
    ],
)
async def test_a_token_is_asked_for(given: str | None, status: int) -> None:
    headers = {} if given is None else {"Authorization": given}
    async with client_of(small_app(token="secret"), headers=headers) as http:
        for path in ("/v2", "/v1/models", "/metrics"):
            found = await http.get(path)
            assert found.status_code == status
            assert ("www-authenticate" in found.headers) == (status == 401)
        assert (await http.get("/v2/health/ready")).status_code == 200


async def test_a_token_is_asked_for_on_a_route_that_is_known() -> None:
    async with client_of(small_app(token="secret")) as http:
        path, right = "/v2/models/double/infer", {"Authorization": "Bearer secret"}
        for headers, status in ((right, 200), (right, 200), ({}, 401), ({"Authorization": "Bearer wrong"}, 401)):
            assert (await http.post(path, json=request_of([1.0, 2.0]), headers=headers)).status_code == status


async def test_a_token_that_is_not_ascii_is_compared_and_cannot_be_asked_for() -> None:
    for token in ("", " ", "geheim-ü", "secret\n", "a\nb"):
        with pytest.raises(ValueError, match="token must be visible ASCII"):
            App(token=token)
    async with client_of(small_app(token="secret")) as http:
        assert (await http.get("/v2", headers={"Authorization": "Bearer ä".encode()})).status_code == 401
