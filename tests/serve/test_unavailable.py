"""Requests that get 503: each kind says its own reason, and ``Retry-After`` is only where waiting helps."""

import asyncio
from typing import Any

import httpx
import pytest
from serve_lab import TIMEOUT, Held, X, Y, anyone, client_of, request_of

import callboard as cb
from callboard.serve import App, EdgeLimits

INFER = "/v2/models/m/infer"
UNLOAD = "/v2/repository/models/m/unload"


def version(name: str, model: Any) -> cb.ModelVersion:
    return cb.ModelVersion(name, lambda: model)


def app_of(model: Any) -> App:
    app = App("lab", model_control=True, rights=anyone, limits=EdgeLimits(drain_timeout=0.01))
    app.add_model("m", model, inputs=X, outputs=Y)
    return app


async def asked(http: httpx.AsyncClient, path: str = INFER) -> tuple[int, str, bool]:
    """Status, reason, and whether waiting is said to help."""
    found = await http.post(path, json=request_of([1.0]))
    return found.status_code, found.json().get("error", "").partition("; request ")[0], "retry-after" in found.headers


async def test_a_model_that_is_unloaded() -> None:
    held = Held()
    app = app_of(version("1", held))
    async with asyncio.timeout(TIMEOUT), client_of(app) as http:
        asking = asyncio.create_task(asked(http))
        await held.begun.get()
        assert (await http.post(UNLOAD)).status_code == 200
        assert await asking == (503, "model 'm' was unloaded before the request was done", False)
        unloaded = "version '1' of model 'm' is unloaded"
        assert await asked(http) == (503, unloaded, False)
        for path in ("/v2/models/m/ready", "/v2/health/ready"):
            found = await http.get(path)
            assert (found.status_code, found.json()["error"].startswith(unloaded)) == (503, True)
            assert "retry-after" not in found.headers


async def test_a_version_that_is_replaced() -> None:
    held = Held()
    app = app_of(version("1", held))
    async with asyncio.timeout(TIMEOUT), client_of(app) as http:
        asking = asyncio.create_task(asked(http))
        await held.begun.get()
        await app.swap("m", version("2", lambda x: x))
        assert await asking == (503, "version '1' of model 'm' was replaced before the request was done", True)
        assert (await asked(http))[0] == 200
        assert await asked(http, "/v2/models/m/versions/1/infer") == (
            503,
            "version '1' of model 'm' is unloaded",
            False,
        )


async def test_an_app_that_drains() -> None:
    held = Held()
    app = app_of(held)
    async with asyncio.timeout(TIMEOUT), client_of(app) as http:
        asking = asyncio.create_task(asked(http))
        await held.begun.get()
        await app.drain()
        assert await asking == (503, "lab is draining", True)
        assert await asked(http) == (503, "lab is draining", True)


async def test_servers_that_have_stopped() -> None:
    server = cb.DynamicBatchingServer[Any, Any](lambda items: items)
    elsewhere = cb.DynamicBatchingServer[Any, Any](lambda items: items)
    app = app_of(server)
    app.add_model("calls", elsewhere.submit, inputs=X, outputs=Y)
    async with asyncio.timeout(TIMEOUT), client_of(app) as http:
        await server.stop()
        assert await asked(http) == (503, "a server of model 'm' has stopped", False)
        assert await asked(http, "/v2/models/calls/infer") == (503, "a server of model 'calls' has stopped", False)


@pytest.mark.parametrize("restarted", [True, False])
async def test_a_pool_without_replicas(restarted: bool) -> None:
    held = Held()
    async with cb.device("cpu") as gpu:
        pool = cb.ModelReplicaPool[Any, Any](
            1, make=lambda name: cb.Replica(held, device=None if restarted else gpu), idempotent=False
        )
        app = app_of(pool)
        async with asyncio.timeout(TIMEOUT), client_of(app) as http:
            says = "no replica of the model takes requests"
            if restarted:
                asking = asyncio.create_task(asked(http))
                await held.begun.get()
                await pool.restart("replica-0", timeout=0)
                assert await asking == (503, says, True)
            else:
                await gpu.close()
                assert await asked(http) == (503, says, False)
            assert (await http.get("/v2/health/live")).status_code == (200 if restarted else 503)


async def test_an_app_that_was_not_started_names_the_cure() -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(App("lab")), base_url="http://lab") as http:
        assert "async with app.running()" in (await http.get("/v2/health/ready")).json()["error"]
        assert (await http.get("/favicon.ico")).status_code == 204
