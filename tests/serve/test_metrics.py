"""The text for Prometheus."""

import asyncio
import re
from typing import Any

import pytest
from serve_lab import client_of, request_of, small_app, until

import callboard as cb
from callboard.serve import App, Tensor

SAMPLE = re.compile(r'([a-z_]+)(\{(?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)*\})? (\S+)')


def samples(text: str) -> dict[str, float]:
    """The samples by name and labels; checks the form of the page on the way."""
    found: dict[str, float] = {}
    kinds: dict[str, str] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, labels, value = match.groups()
            family = name if name in kinds else re.sub("_(sum|count)$", "", name)
            assert family == list(kinds)[-1], f"{name} is not with its family"
            assert kinds[family] == "summary" or name == family
            assert f"{name}{labels or ''}" not in found
            found[f"{name}{labels or ''}"] = float(value)
    return found


async def test_metrics() -> None:
    async with client_of(small_app()) as http:
        await http.post("/v2/models/double/infer", json=request_of([1]))
        await http.post("/v2/models/double/infer", json=request_of([1], outputs=[{"name": "none"}]))
        page = await http.get("/metrics")
    found = samples(page.text)
    assert page.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert found['callboard_http_responses_total{route="/v2/models/{model}/infer",status="200"}'] == 1
    assert found['callboard_http_responses_total{route="/v2/models/{model}/infer",status="400"}'] == 1
    assert found['callboard_http_request_seconds_count{route="/v2/models/{model}/infer"}'] == 2
    assert found['callboard_model_requests_total{model="double",version="1",end="completed"}'] == 1
    assert found['callboard_model_total_seconds_count{model="double",version="1"}'] == 1
    assert found["callboard_ready"] == found["callboard_http_requests_open"] == 1
    assert found["callboard_http_connections_stalled_total"] == 0


async def test_names_are_quoted_and_devices_are_counted() -> None:
    async with cb.device("cpu") as gpu:
        app = App()
        x = [Tensor("x", "FP32", [-1])]
        app.add_model('a "b" \\ \n', lambda x: x, inputs=x, outputs=x, device=gpu)
        async with client_of(app) as http:
            found = samples((await http.get("/metrics")).text)
    label = r'{model="a \"b\" \\ \n",version="1"}'
    assert found[f"callboard_model_ready{label}"] == found[f"callboard_device_generation{label}"] == 1
    assert found[f"callboard_device_restarts_total{label}"] == 0


@pytest.mark.parametrize("page", ["no newline", "a b c\n", "a 1\n", "# TYPE a gauge\na 1\na 1\n"])
def test_a_bad_page_is_found(page: str) -> None:
    with pytest.raises((AssertionError, IndexError)):
        samples(page)


async def test_tenants_are_counted() -> None:
    app = App(tenant=lambda headers: ("acme", headers["x-tenant"]))
    x = [Tensor("x", "FP32", [-1])]
    app.add_model("m", lambda x: x, inputs=x, outputs=x, tenants={("acme", "ann"): 1.0, ("acme", "bob"): 2.0})
    async with client_of(app) as http:
        for tenant in ("ann", "bob", "bob"):
            await http.post("/v2/models/m/infer", json=request_of([1]), headers={"X-Tenant": tenant})
        found = samples((await http.get("/metrics")).text)
    served = 'callboard_model_tenant_served_total{model="m",version="1",tenant="acme/%s"}'
    assert (found[served % "ann"], found[served % "bob"]) == (1, 2)
    assert found['callboard_model_tenant_queued{model="m",version="1",tenant="acme/bob"}'] == 0


async def test_concurrency_of_a_model_that_can_be_replaced() -> None:
    begun, go = 0, asyncio.Event()

    async def model(x: Any) -> Any:
        nonlocal begun
        begun += 1
        await go.wait()
        return x

    app = App()
    x = [Tensor("x", "FP32", [-1])]
    app.add_model("m", cb.ModelVersion("1", lambda: model), inputs=x, outputs=x, concurrency=3)
    async with client_of(app) as http:
        asking = [asyncio.create_task(http.post("/v2/models/m/infer", json=request_of([1]))) for _ in range(5)]
        await until(lambda: begun == 3 and app.models["m"].stats().submitted == 5)
        assert app.models["m"].stats().queued == 2
        go.set()
        assert {(await each).status_code for each in asking} == {200}
