"""The page of a served app: who may see it, what it shows, and that it does not keep the server from its end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from serve_lab import TIMEOUT, X, Y, client_of

import callboard as cb
from callboard import observability
from callboard.serve import App, listening
from callboard.telemetry import installed


def app_of(**options: Any) -> App:
    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        async with cb.device("cpu", isolation="thread", standby=None) as device:
            await device.put(np.ones(2))
            app.add_model("double", lambda x: 2 * x, inputs=X, outputs=Y)
            yield

    return App("lab", lifespan=lifespan, **options)


async def frame(client: httpx.AsyncClient, path: str) -> Any:
    async with client.stream("GET", path) as events:
        assert events.status_code == 200, events.status_code
        async for line in events.aiter_lines():
            if line.startswith("data: "):
                return msgspec.json.decode(line[6:])
    raise AssertionError("no frame")


async def test_only_who_may_read_sees_it_and_nothing_keeps_the_server() -> None:
    rights = {"reader": {"read"}, "asker": {"infer"}}
    app = app_of(dashboard=True, rights=rights)
    async with asyncio.timeout(TIMEOUT), httpx.AsyncClient(timeout=TIMEOUT) as client:
        async with listening(app, port=0) as url:
            for key in ("asker", "nobody", ""):
                assert (await client.get(f"{url}/dashboard/", params={"token": key})).status_code == 403
            assert (await client.get(f"{url}/dashboard/events")).status_code == 403
            page = await client.get(f"{url}/dashboard?token=reader", follow_redirects=True)
            assert "dashboard.js" in page.text
            assert (await client.post(f"{url}/dashboard/")).status_code == 405
            shown = await frame(client, f"{url}/dashboard/events")
            assert [device["name"] for device in shown["devices"]] == ["cpu:0"]
            assert "double" in [server["name"] for server in shown["blueprints"]]
            header = {"authorization": "Bearer reader"}
            async with httpx.AsyncClient(headers=header) as program:
                assert (await frame(program, f"{url}/dashboard/events"))["pid"] == shown["pid"]
            left = client.stream("GET", f"{url}/dashboard/events")
            events = await left.__aenter__()
            lines = events.aiter_lines()
            await anext(lines)
        rest = [line async for line in lines]  # the server has ended, within the time of this test
        await left.__aexit__(None, None, None)
    assert "event: ended" in rest
    assert "data: lab is draining" in rest
    assert installed() == []


async def test_it_is_off_and_without_rules_it_is_refused() -> None:
    async with client_of(app_of()) as client:
        assert (await client.get("/dashboard/")).status_code == 404
        assert installed() == []
    with pytest.raises(ValueError, match="lab has dashboard, and nothing says which clients may use it"):
        async with listening(app_of(dashboard=True), port=0):
            pass


async def test_an_application_of_ones_own_mounts_it() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    with pytest.raises(ValueError, match="the token of the dashboard is empty"):
        observability.dashboard(" ")
    own = Starlette(routes=[Mount("/inside", observability.dashboard("known to you"))])
    transport = httpx.ASGITransport(app=own)
    async with httpx.AsyncClient(transport=transport, base_url="https://own") as client:
        assert (await client.get("/inside/")).status_code == 403
        first = await client.get("/inside/", params={"token": "known to you"})
        assert (first.status_code, first.headers["location"]) == (303, "/inside/")
        assert "secure" in first.headers["set-cookie"].lower()
        assert "dashboard.js" in (await client.get("/inside/")).text
