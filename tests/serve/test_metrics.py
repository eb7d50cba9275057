"""The text for Prometheus."""

import asyncio
import functools
import math
import os
import re
import signal
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from generation_lab import Writer, writing
from serve_lab import TIMEOUT, X, Y, client_of, request_of, small_app, until
from tests.patterns.poison_lab import Card

import callboard as cb
from callboard.cli.serving.live import Watch
from callboard.patterns.requests.needs import contexts_of, needs_of
from callboard.serve import App, Tensor
from callboard.serve.figures import ENDS
from callboard.serve.statistics import REASONS, TRITON

FAILURE = "request_failure"
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
            family = name if name in kinds else re.sub("_(bucket|sum|count)$", "", name)
            assert family == list(kinds)[-1], f"{name} is not with its family"
            assert kinds[family] == "histogram" or name == family
            assert f"{name}{labels or ''}" not in found
            found[f"{name}{labels or ''}"] = float(value)
    buckets: dict[str, list[tuple[float, float]]] = {}
    for name, count in found.items():
        if "_bucket{" in name:
            series, _, bound = name.removesuffix('"}').partition(',le="')
            buckets.setdefault(series.replace("_bucket{", "_count{") + "}", []).append((float(bound), count))
    for series, counts in buckets.items():
        assert counts == sorted(counts)
        assert [count for _, count in counts] == sorted(count for _, count in counts)
        assert counts[-1] == (math.inf, found[series])
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
    assert found['callboard_http_request_seconds_bucket{route="/v2/models/{model}/infer",le="60.0"}'] == 2
    assert found['callboard_model_requests_total{model="double",version="1",end="completed"}'] == 1
    assert found['callboard_model_total_seconds_count{model="double",version="1"}'] == 1
    assert found["callboard_ready"] == found["callboard_http_requests_open"] == 1
    assert found["callboard_http_connections_stalled_total"] == 0
    of_triton = {name: found[f'nv_inference_{name}{{model="double",version="1"}}'] for name in set(TRITON) - {FAILURE}}
    assert all(of_triton.pop(name) > 0 for name in TRITON if name.endswith("_us"))
    assert of_triton == {"request_success": 1, "count": 1, "exec_count": 1, "pending_request_count": 0}


async def test_a_value_that_is_not_what_the_model_declares_has_failed() -> None:
    app = App()
    app.add_model("m", lambda x: {"z": x}, inputs=X, outputs=Y)
    async with client_of(app) as http:
        assert (await http.post("/v2/models/m/infer", json=request_of([1]))).status_code == 500
        found = samples((await http.get("/metrics")).text)
    ends = {end: found[f'callboard_model_requests_total{{model="m",version="1",end="{end}"}}'] for end in ENDS}
    assert ends == dict.fromkeys(ENDS, 0) | {"completed": 1, "failed": 1}
    assert found['nv_inference_request_success{model="m",version="1"}'] == 1
    reasons = dict.fromkeys((*REASONS, "OTHER"), 0) | {"BACKEND": 1}
    for reason, count in reasons.items():
        assert found[f'nv_inference_request_failure{{model="m",version="1",reason="{reason}"}}'] == count


async def test_names_are_quoted_and_devices_are_counted() -> None:
    async with cb.device("cpu") as gpu:
        app = App()
        x = [Tensor("x", "FP32", [-1])]
        app.add_model('a "b" \\ \n', lambda x: x, inputs=x, outputs=x, device=gpu)
        async with client_of(app) as http:
            found = samples((await http.get("/metrics")).text)
    label = r'model="a \"b\" \\ \n",version="1"'
    assert found[f"callboard_model_ready{{{label}}}"] == 1
    assert found[f'callboard_device_generation{{{label},device="cpu:0"}}'] == 1
    assert found[f'callboard_device_restarts_total{{{label},device="cpu:0"}}'] == 0


class Fragile(cb.ResidentActor):
    def double(self, x: Any) -> Any:
        if x[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * x


@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only")
async def test_losses_of_own_processes_and_of_replicas_are_counted() -> None:
    async with asyncio.timeout(TIMEOUT), cb.device("cpu") as first, cb.device("cpu") as second:
        app, own = App(), first.actor_of(cb.Props(Fragile), "own", own_process=True)
        beside = second.actor_of(cb.Props(Fragile), "beside")
        double = functools.partial(own.call, Fragile.double)
        app.add_model("own", double, inputs=X, outputs=Y, idempotent=False)
        inner = cb.DynamicBatchingServer[Any, Any](lambda rows: rows)
        replicas = [cb.Replica(inner.submit, device=first), cb.Replica(functools.partial(beside.call, Fragile.double))]
        version = cb.ModelVersion("1", lambda: cb.ModelReplicaPool[Any, Any](replicas))
        app.add_model("pool", version, inputs=X, outputs=Y)
        router = cb.MoeRouter(lambda x: x, [double], top_k=1)
        assert [port.name for port in contexts_of(needs_of(router, spare=True))] == ["cpu:0/own"]
        assert not needs_of(router)
        async with client_of(app) as http:
            await own.ready()
            with pytest.raises(cb.ContextPoisoned):
                await own.call(Fragile.double, np.array([-1.0], "f4"))
            await own.ready()
            found = samples((await http.get("/metrics")).text)
            line = Watch(app, 1, 1.0).line()
            assert (await http.get("/v2/models/pool/ready")).status_code == 200
    counted = {name: count for name, count in found.items() if "_device_" in name}
    assert counted == {
        'callboard_device_generation{model="own",version="1",device="cpu:0/own"}': 2,
        'callboard_device_generation{model="pool",version="1",device="cpu:0"}': 1,
        'callboard_device_generation{model="pool",version="1",device="cpu:0 #2"}': 1,
        'callboard_device_restarts_total{model="own",version="1",device="cpu:0/own"}': 1,
        'callboard_device_restarts_total{model="pool",version="1",device="cpu:0"}': 0,
        'callboard_device_restarts_total{model="pool",version="1",device="cpu:0 #2"}': 0,
    }
    assert line.endswith("losses survived: 1")


@pytest.mark.parametrize(
    "page",
    [
        *("no newline", "a b c\n", "a 1\n", "# TYPE a gauge\na 1\na 1\n"),
        '# TYPE a histogram\na_bucket{m="",le="1.0"} 2\na_bucket{m="",le="+Inf"} 1\na_count{m=""} 1\n',
        '# TYPE a histogram\na_bucket{m="",le="+Inf"} 1\na_count{m=""} 2\n',
    ],
)
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


class Gated:
    """A batch function that waits for the test."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = asyncio.Event()

    async def __call__(self, items: list[Any]) -> list[Any]:
        self.begun += 1
        await self.go.wait()
        return items


@pytest.mark.parametrize("front", ["none", "tenants", "version", "tenants and version"])
async def test_queue_time_counts_the_wait_in_every_server(front: str) -> None:
    gate = Gated()
    server = cb.DynamicBatchingServer[Any, Any](gate, max_batch=1)
    app = App(tenant=lambda headers: "a")
    model = cb.ModelVersion("1", lambda: server) if "version" in front else server
    app.add_model("m", model, inputs=X, outputs=Y, tenants={"a": 1} if "tenants" in front else None)
    async with client_of(app) as http:
        asking = [asyncio.create_task(http.post("/v2/models/m/infer", json=request_of([1]))) for _ in range(2)]
        await until(lambda: gate.begun == 1 and server.stats().queued == 1)
        waiting = time.monotonic()
        await until(lambda: time.monotonic() > waiting + 0.03)
        gate.go.set()
        assert {(await each).status_code for each in asking} == {200}
        found = samples((await http.get("/metrics")).text)
        stats = (await http.get("/v2/models/m/stats")).json()["model_stats"][0]["inference_stats"]
    label = 'model="m",version="1"'
    assert found[f"callboard_model_queue_seconds_count{{{label}}}"] == 2
    assert found[f"callboard_model_queue_seconds_sum{{{label}}}"] >= 0.03
    assert found[f'callboard_model_queue_seconds_bucket{{{label},le="0.025"}}'] <= 1
    assert found[f"callboard_model_total_seconds_sum{{{label}}}"] >= 0.06
    assert found[f'callboard_model_batch_size_bucket{{{label},le="1.0"}}'] == 2
    assert (stats["queue"]["count"], stats["queue"]["ns"] >= 3e7) == (2, True)


async def test_queue_time_counts_the_wait_for_a_device() -> None:
    async with cb.device("cpu") as gpu:
        app = App()
        app.add_model("m", lambda x: x, inputs=X, outputs=Y, device=gpu)
        async with client_of(app) as http:
            model = app.models["m"]
            model.device = Rebuilding()  # type: ignore[assignment]
            assert (await http.post("/v2/models/m/infer", json=request_of([1]))).status_code == 200
            assert model.queue_time.sum >= 0.03


class Rebuilding:
    """A device that replaces its context, which takes 30 ms from when it is waited for."""

    ok = False

    def health(self) -> Any:
        return SimpleNamespace(ok=self.ok, state="ready" if self.ok else "rebuilding", ordinal=1, restarts=1)

    async def ready(self) -> None:
        begun = time.monotonic()
        await until(lambda: time.monotonic() > begun + 0.03)
        self.ok = True


async def test_quarantined_requests_are_counted() -> None:
    card, app = Card(), App()

    async def double(x: Any) -> Any:
        return np.array(await card.double(x.tolist()), np.float32)

    app.add_model("m", double, inputs=X, outputs=Y)
    async with client_of(app) as http:
        for value in (1, -1, -1, -2):
            await http.post("/v2/models/m/infer", json=request_of([value]))
        found = samples((await http.get("/metrics")).text)
    assert found['callboard_model_quarantined_keys{model="m",version="1"}'] == 2
    assert found['callboard_model_quarantined_total{model="m",version="1"}'] == 3


async def test_tokens_and_their_times() -> None:
    app = writing(Writer())
    async with client_of(app) as http:
        for prompt in ("abc", "abcdefg"):
            await http.post("/v1/completions", json={"model": "writer", "prompt": prompt})
        found = samples((await http.get("/metrics")).text)

    label = 'model="writer",version="1"'
    for metric, count, total in (("prompt_tokens", 2, 10), ("completion_tokens", 2, 12)):
        assert found[f"callboard_model_{metric}_count{{{label}}}"] == count
        assert found[f"callboard_model_{metric}_sum{{{label}}}"] == total
    assert found[f'callboard_model_prompt_tokens_bucket{{{label},le="4.0"}}'] == 1
    assert found[f"callboard_model_time_to_first_token_seconds_count{{{label}}}"] == 2
    assert found[f"callboard_model_time_between_tokens_seconds_count{{{label}}}"] == 10
    assert found[f"callboard_model_batch_size_count{{{label}}}"] == 12
    assert found[f"callboard_model_total_seconds_count{{{label}}}"] == 2
    assert found[f"callboard_model_queue_seconds_count{{{label}}}"] == 2
