"""Models that are loaded, replaced and unloaded over HTTP; tenants; embeddings under the Open Inference Protocol."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from serve_lab import TIMEOUT, X, Y, anyone, client_of, request_of, tensor, until

import callboard as cb
from callboard.serve import App, HttpError, Tls, listening

INFER = "/v2/models/m/infer"
LOAD, UNLOAD = "/v2/repository/models/m/load", "/v2/repository/models/m/unload"


class Loads:
    """A model whose n-th load multiplies by n."""

    def __init__(self) -> None:
        self.count = 0
        self.loaded: list[int] = []
        self.fails = False
        self.go = asyncio.Event()
        self.go.set()
        self.begun = 0

    def version(self) -> cb.ModelVersion:
        return cb.ModelVersion("1", self.load, unload=lambda model: self.loaded.remove(model.factor))

    async def load(self) -> Any:
        if self.fails:
            raise FileNotFoundError("no weights")
        self.count += 1
        factor = self.count
        self.loaded.append(factor)

        return Model(self, factor)


class Model:
    def __init__(self, loads: Loads, factor: int) -> None:
        self.loads = loads
        self.factor = factor

    async def __call__(self, x: Any) -> Any:
        self.loads.begun += 1
        await self.loads.go.wait()
        return x * np.float32(self.factor)


def app_of(loads: Loads, **options: Any) -> App:
    app = App("lab", model_control=options.pop("model_control", True), rights=anyone)
    app.add_model("m", loads.version(), inputs=X, outputs=Y, **options)
    return app


async def value(http: httpx.AsyncClient) -> Any:
    found = await http.post(INFER, json=request_of([1]))
    return found.json()["outputs"][0]["data"][0] if found.status_code == 200 else found.status_code


@pytest.mark.parametrize("tenants", [None, {"a": 1.0}])
async def test_load_replaces_unload_ends_and_load_begins_again(tenants: Any) -> None:
    loads = Loads()
    async with client_of(app_of(loads, tenants=tenants)) as http:
        assert (await value(http), loads.loaded) == (1.0, [1])
        assert (await http.post(LOAD)).status_code == 200
        assert (await value(http), loads.loaded) == (2.0, [2])
        assert (await http.post(UNLOAD, json={"parameters": {"unload_dependents": False}})).status_code == 200
        assert (await value(http), loads.loaded) == (503, [])
        (entry,) = (await http.post("/v2/repository/index")).json()
        assert (entry["state"], entry["reason"]) == ("UNAVAILABLE", "version '1' of model 'm' is unloaded")
        assert (await http.post("/v2/repository/index", json={"ready": True})).json() == []
        assert (await http.get("/v2/models/m/ready")).status_code == 503
        assert (await http.post(UNLOAD)).status_code == 200  # again, which changes nothing
        assert (await http.post(LOAD)).status_code == 200
        assert (await value(http), loads.loaded) == (3.0, [3])
    assert loads.loaded == []


async def test_a_model_that_was_unloaded_leaves_the_others_ready() -> None:
    app = app_of(Loads())
    app.add_model("other", Loads().version(), inputs=X, outputs=Y)
    other = UNLOAD.replace("/m/", "/other/")
    async with client_of(app) as http:
        ready: list[int] = []
        for path in (UNLOAD, other, LOAD):
            assert (await http.post(path)).status_code == 200
            ready.append((await http.get("/v2/health/ready")).status_code)
            assert f"callboard_ready {int(ready[-1] == 200)}\n" in (await http.get("/metrics")).text
        assert ready == [200, 503, 200]
        assert (await http.get("/v2/models/m/ready")).status_code == 200
        assert (await http.get("/v2/models/other/ready")).status_code == 503


async def test_requests_go_on_while_a_model_is_replaced_and_are_finished_before_it_is_unloaded() -> None:
    loads = Loads()
    app = app_of(loads)
    async with client_of(app) as http, asyncio.timeout(TIMEOUT):
        loads.go.clear()
        first = asyncio.create_task(value(http))
        await until(lambda: loads.begun == 1)
        loading = asyncio.create_task(http.post(LOAD))
        await until(lambda: loads.count == 2)
        second = asyncio.create_task(value(http))
        await until(lambda: loads.begun == 2)
        assert loads.loaded == [1, 2]
        loads.go.set()
        assert (await first, await second, (await loading).status_code) == (1.0, 2.0, 200)
        assert loads.loaded == [2]
        loads.go.clear()
        third = asyncio.create_task(value(http))
        await until(lambda: loads.begun == 3)
        unloading = asyncio.create_task(http.post(UNLOAD))
        await until(lambda: app.models["m"].chain.unloaded)
        assert await value(http) == 503
        loads.go.set()
        assert (await third, (await unloading).status_code, loads.loaded) == (2.0, 200, [])


async def test_a_load_that_fails_leaves_the_model_as_it_was() -> None:
    loads = Loads()
    async with client_of(app_of(loads)) as http:
        loads.fails = True
        failed = await http.post(LOAD)
        assert failed.status_code == 500
        assert "load" in failed.json()["error"]
        assert await value(http) == 1.0
        await http.post(UNLOAD)
        assert (await http.post(LOAD)).status_code == 500
        assert await value(http) == 503
        loads.fails = False
        assert (await http.post(LOAD)).status_code == 200
        assert await value(http) == 2.0


async def test_what_is_not_loaded_over_http() -> None:
    app = app_of(Loads())
    app.add_model("plain", lambda x: x, inputs=X, outputs=Y)
    async with client_of(app) as http:
        found = await http.post("/v2/repository/models/plain/load")
        assert (found.status_code, "only one that is a ModelVersion" in found.json()["error"]) == (400, True)
        found = await http.post(LOAD, json={"parameters": {"file:1/model.onnx": "AAAA"}})
        assert (found.status_code, "'file:1/model.onnx' is not supported" in found.json()["error"]) == (400, True)
        assert (await http.post("/v2/repository/models/none/load")).status_code == 404
        assert (await http.post(LOAD, content=b"[")).status_code == 400
    async with client_of(app_of(Loads(), model_control=False)) as http:
        assert [(await http.post(path)).status_code for path in (LOAD, UNLOAD)] == [403, 403]
        assert await value(http) == 1.0


# -- tenants -----------------------------------------------------------------------------------------------------------


async def test_tenants_share_by_weight() -> None:
    order: list[float] = []
    go = asyncio.Event()

    async def model(x: Any) -> Any:
        await go.wait()
        order.append(float(x[0]))
        return x

    app = App(tenant=lambda headers: headers.get("x-tenant"))
    app.add_model("m", model, inputs=X, outputs=Y, tenants={"a": 1.0, "b": 3.0})
    async with client_of(app) as http, asyncio.timeout(TIMEOUT):
        asking = [
            asyncio.create_task(http.post(INFER, json=request_of([n]), headers={"X-Tenant": tenant}))
            for n, tenant in ((1.0, "a"), (2.0, "b"))
            for _ in range(24)
        ]
        await until(lambda: app.models["m"].stats().submitted == 48)
        go.set()
        assert {(await each).status_code for each in asking} == {200}
    assert order[:24].count(1.0) in (6, 7)


async def test_tenants_that_are_refused() -> None:
    def tenant(headers: Any) -> str:
        if "x-tenant" not in headers:
            raise HttpError("name your tenant in X-Tenant", 401)
        return str(headers["x-tenant"])

    app = App(tenant=tenant)
    scheduler = cb.FairShareScheduler[Any, Any](lambda x: x, tenants={"a": 1.0}, default=None)
    app.add_model("m", scheduler, inputs=X, outputs=Y)
    async with client_of(app) as http:
        for headers, status in (({}, 401), ({"X-Tenant": "c"}, 403), ({"X-Tenant": "a"}, 200)):
            assert (await http.post(INFER, json=request_of([1]), headers=headers)).status_code == status


# -- embeddings --------------------------------------------------------------------------------------------------------


def tokens(given: Any) -> Any:
    return [ord(letter) for letter in given] if isinstance(given, str) else given


@pytest.mark.parametrize("batched", [True, False])
async def test_embeddings_under_both_protocols(batched: bool) -> None:
    def embed(items: list[list[int]]) -> Any:
        return np.array([[len(item), sum(item)] for item in items], "f4")

    app = App()
    model: Any = cb.DynamicBatchingServer(embed, executor="loop") if batched else embed
    app.add_embeddings("m", model, tokenize=tokens, tenants={"a": 1.0})
    text = tensor("text", "BYTES", [2], ["ab", "c"])
    async with client_of(app) as http:
        found = (await http.post(INFER, json={"inputs": [text]})).json()["outputs"]
        assert found == [tensor("embedding", "FP32", [2, 2], [2.0, 195.0, 1.0, 99.0])]
        described = (await http.get("/v2/models/m")).json()
        assert described["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
        for wrong in (tensor("text", "BYTES", [0], []), tensor("text", "BYTES", [1], [""])):
            refused = await http.post(INFER, json={"inputs": [wrong]})
            assert (refused.status_code, refused.json()["error"]) == (400, "input 'text' must not be empty")
        openai = (await http.post("/v1/embeddings", json={"model": "m", "input": "ab" * 40_000})).json()
        assert openai["usage"]["total_tokens"] == 80_000  # made on a thread
        assert openai["data"][0]["embedding"][0] == 80_000
    server: Any = app.models["m"].server
    assert server.stats().served == 2 + 1 + 80_000 if batched else server.stats().completed == 2


# -- TLS ---------------------------------------------------------------------------------------------------------------


async def test_https(certificate: Tls) -> None:
    import ssl

    context = ssl.create_default_context(cafile=str(certificate.certificate))
    async with listening(app_of(Loads()), port=0, tls=certificate) as url:
        assert url.startswith("https://127.0.0.1:")
        async with httpx.AsyncClient(base_url=url, verify=context, timeout=TIMEOUT) as http:
            assert await value(http) == 1.0
        async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT) as http:
            with pytest.raises(httpx.ConnectError, match="certificate"):
                await value(http)


async def test_clients_that_must_show_a_certificate(certificate: Tls) -> None:
    import ssl

    strict = Tls(certificate.certificate, certificate.key, client_ca=certificate.certificate)
    context = ssl.create_default_context(cafile=str(certificate.certificate))
    known = ssl.create_default_context(cafile=str(certificate.certificate))
    assert certificate.key is not None
    known.load_cert_chain(certificate.certificate, certificate.key)
    async with listening(app_of(Loads()), port=0, tls=strict) as url:
        async with httpx.AsyncClient(base_url=url, verify=known, timeout=TIMEOUT) as http:
            assert await value(http) == 1.0
        async with httpx.AsyncClient(base_url=url, verify=context, timeout=TIMEOUT) as http:
            with pytest.raises(httpx.TransportError):
                await value(http)


async def test_files_that_are_no_certificate(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("nothing")
    for path in (tmp_path / "cert.pem", tmp_path / "none.pem"):
        with pytest.raises(OSError, match=rf"^TLS with {path}, which must be PEM files that fit together: "):
            async with listening(app_of(Loads()), port=0, tls=Tls(path)):
                pass
