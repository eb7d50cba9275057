"""Several versions of a model: addressed by URL, swapped in Python and over HTTP, tried on a share of the requests."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
from serve_lab import TIMEOUT, X, Y, anyone, client_of, request_of

import callboard as cb
from callboard.serve import App, EdgeLimits, HttpError

INFER = "/v2/models/m/infer"
LOAD, UNLOAD = "/v2/repository/models/m/load", "/v2/repository/models/m/unload"


class Weights:
    """Makes versions that multiply by a number, and notes which are loaded."""

    def __init__(self) -> None:
        self.loaded: list[str] = []

    def version(self, name: str, fails: bool = False) -> cb.ModelVersion:
        def load() -> Any:
            if fails:
                raise FileNotFoundError("no weights")
            self.loaded.append(name)
            return lambda x: np.float32(name) * x

        return cb.ModelVersion(name, load, unload=lambda _: self.loaded.remove(name))


async def answer(http: httpx.AsyncClient, path: str = INFER) -> Any:
    """The version in the response, or the status; the response is that version's."""
    found = await http.post(path, json=request_of([1.0]))
    if found.status_code != 200:
        return found.status_code
    body = found.json()
    assert body["outputs"][0]["data"] == [float(body["model_version"])]
    return body["model_version"]


def of(version: str) -> str:
    return f"/v2/models/m/versions/{version}/infer"


def app_of(model: Any, limits: EdgeLimits | None = None, **options: Any) -> App:
    app = App("lab", model_control=True, rights=anyone, limits=limits)
    app.add_model("m", model, inputs=X, outputs=Y, **options)
    return app


FUNCTIONS: Any = {"1": lambda x: x, "2": lambda x: 2 * x}


@pytest.mark.parametrize("tenants", [None, {"a": 1.0}])
async def test_versions_by_url_and_the_default(tenants: Any) -> None:
    app = app_of(
        {**FUNCTIONS, "3": cb.DynamicBatchingServer[Any, Any](lambda xs: [3 * x for x in xs])}, tenants=tenants
    )
    async with client_of(app) as http:
        assert [await answer(http, path) for path in (INFER, of("1"), of("2"), of("3"), of("4"))] == [
            "1",
            "1",
            "2",
            "3",
            404,
        ]
        assert (await http.get("/v2/models/m")).json()["versions"] == ["1", "2", "3"]
        assert (await http.get("/v2/models/m/versions/2/ready")).status_code == 200
        listed = (await http.post("/v2/repository/index")).json()
        assert [(each["version"], each["state"]) for each in listed] == [(v, "READY") for v in "123"]
        await app.swap("m", "2")
        assert [await answer(http, path) for path in (INFER, of("1"), of("2"))] == ["2", "1", "2"]
        assert (await http.post(LOAD, json={"parameters": {"version": "3"}})).status_code == 200
        assert await answer(http) == "3"
        lines = (await http.get("/metrics")).text.splitlines()
        for version, count in (("1", 3), ("2", 3), ("3", 2)):
            assert f'callboard_model_requests_total{{model="m",version="{version}",end="completed"}} {count}' in lines
        stats = (await http.get("/v2/models/stats")).json()["model_stats"]
        assert [(each["version"], each["inference_count"]) for each in stats] == [("1", 3), ("2", 3), ("3", 2)]


async def test_a_new_version_takes_the_place_of_the_old_one_and_back() -> None:
    weights = Weights()
    app = app_of(weights.version("1"))
    async with client_of(app) as http:
        assert (await answer(http), weights.loaded) == ("1", ["1"])
        await app.swap("m", weights.version("2"))
        assert (await answer(http), weights.loaded) == ("2", ["2"])
        assert await answer(http, of("1")) == 503
        assert (await http.get("/v2/health/ready")).status_code == 200
        with pytest.raises(ValueError, match="serves a version '2' already"):
            await app.swap("m", weights.version("2"))
        assert (await http.post(LOAD, json={"parameters": {"version": "1"}})).status_code == 200
        assert (await answer(http), sorted(weights.loaded)) == ("1", ["1", "2"])
        assert (await http.post(UNLOAD, json={"parameters": {"version": "2"}})).status_code == 200
        assert (await answer(http), await answer(http, of("2")), weights.loaded) == ("1", 503, ["1"])
    assert weights.loaded == []


async def test_no_request_fails_while_versions_are_swapped() -> None:
    weights = Weights()
    app = app_of([weights.version("1"), weights.version("2")])
    async with asyncio.timeout(TIMEOUT), client_of(app) as http:
        over = False

        async def client() -> list[Any]:
            found = []
            while not over:
                found.append(await answer(http))
            return found

        clients = [asyncio.create_task(client()) for _ in range(4)]
        for version in "2121":
            await app.swap("m", version)
            assert await answer(http) == version
        await app.swap("m", weights.version("3"))
        assert await answer(http) == "3"
        over = True
        found = [each for task in clients for each in await task]
        assert set(found) <= {"1", "2", "3"}
        assert weights.loaded == ["2", "3"]  # what was the default has gone


async def test_a_version_that_cannot_be_loaded_changes_nothing() -> None:
    weights = Weights()
    app = app_of(weights.version("1"))
    async with client_of(app) as http:
        with pytest.raises(cb.SwapFailed, match="no weights"):
            await app.swap("m", weights.version("2", fails=True))
        assert (await answer(http), await answer(http, of("2")), weights.loaded) == ("1", 404, ["1"])
        for parameters, status in (({"version": "2"}, 404), ({"version": 2}, 400)):
            assert (await http.post(LOAD, json={"parameters": parameters})).status_code == status
        with pytest.raises(HttpError, match="no model 'x'"):
            await app.swap("x", "1")


@pytest.mark.parametrize("good", [True, False])
async def test_a_canary_gets_its_share_and_is_withdrawn_if_it_fails(good: bool) -> None:
    def broken(x: Any) -> Any:
        raise ArithmeticError("broken")

    app = app_of({"1": lambda x: x})
    second = cb.ModelVersion("2", lambda: (lambda x: 2 * x) if good else broken)
    async with asyncio.timeout(TIMEOUT), client_of(app) as http:
        swap = asyncio.create_task(app.swap("m", second, canary=cb.Canary(share=0.25, requests=20)))
        found: Counter[Any] = Counter()
        while not swap.done():
            found[await answer(http)] += 1
        if good:
            await swap
            assert found["2"] >= 20
            assert set(found) == {"1", "2"}
            assert found["1"] > found["2"]
        else:
            with pytest.raises(cb.SwapFailed) as failed:
                await swap
            assert (failed.value.phase, found[500]) == ("canary", 1)
            assert await answer(http, of("2")) == 404
        assert await answer(http) == ("2" if good else "1")


async def test_requests_are_shared_by_weight_until_the_next_swap() -> None:
    app = app_of(FUNCTIONS)
    async with client_of(app) as http:
        app.share("m", {"1": 3, "2": 1})
        found = Counter([await answer(http) for _ in range(80)])
        assert 8 < found["2"] < 35
        await app.swap("m", "1")
        assert {await answer(http) for _ in range(10)} == {"1"}
        for weights in ({"1": -1}, {"1": 0}):
            with pytest.raises(ValueError, match="weights must be"):
                app.share("m", weights)
        with pytest.raises(HttpError, match="no '9'"):
            app.share("m", {"9": 1})


def test_what_is_no_set_of_versions() -> None:
    first = cb.ModelVersion("1", lambda: lambda x: x)
    for model, options, error, why in (
        ({}, {}, ValueError, "has no version"),
        ([first, first], {}, ValueError, "two versions have one name"),
        ([lambda x: x], {}, TypeError, "give a cb.ModelVersion, or a dict"),
        (FUNCTIONS, {"version": "3"}, ValueError, "the default version is '3'"),
        ({"a/b": lambda x: x}, {}, ValueError, "parts of URLs"),
    ):
        with pytest.raises(error, match=why):
            app_of(model, **options)
    assert app_of(FUNCTIONS, version="2").find("m").version == "2"
    assert app_of(cb.ModelVersion("2026-11", lambda: lambda x: x)).find("m").version == "2026-11"


@pytest.mark.parametrize("good", [True, False])
async def test_a_canary_over_http(good: bool) -> None:
    def bad(x: Any) -> Any:
        raise ValueError("no")

    canary = {"share": 0.5, "requests": 4}
    async with (
        asyncio.timeout(TIMEOUT),
        client_of(app_of({"1": lambda x: x, "2": (lambda x: 2 * x) if good else bad})) as http,
    ):
        swap = asyncio.create_task(http.post(LOAD, json={"parameters": {"version": "2", "canary": canary}}))
        found: Counter[Any] = Counter()
        while not swap.done():
            found[await answer(http)] += 1
        assert (await swap).status_code == (200 if good else 500)
        assert ("withdrawn in its trial" in (await swap).text) is not good
        assert await answer(http) == ("2" if good else "1")
        assert found["1"]
        assert (found[500] == 1) is not good


@pytest.mark.parametrize(
    "parameters, why",
    [
        ({"canary": {}}, "needs 'version'"),
        ({"version": "2", "canary": {"share": 2}}, "share must be"),
        ({"version": "2", "canary": {"shares": 1}}, "shares"),
        ({"version": "2", "canary": 1}, "canary"),
    ],
)
async def test_a_wrong_canary_is_refused(parameters: Any, why: str) -> None:
    async with client_of(app_of(FUNCTIONS)) as http:
        found = await http.post(LOAD, json={"parameters": parameters})
        assert found.status_code == 400
        assert why in found.text
        assert await answer(http) == "1"


async def trial(app: App, new: cb.ModelVersion, canary: cb.Canary) -> tuple["Counter[Any]", "asyncio.Task[None]"]:
    """Ask until the trial has ended; the versions that answered."""
    async with asyncio.timeout(TIMEOUT), client_of(app) as http:
        swap = asyncio.create_task(app.swap("m", new, canary=canary))
        found: Counter[Any] = Counter()
        while not swap.done():
            found[await answer(http)] += 1
        await asyncio.wait({swap})
        found["after", await answer(http)] += 1
    return found, swap


def raises(*_: Any) -> Any:
    raise ArithmeticError("cannot judge")


SECOND = cb.ModelVersion("2", lambda: lambda x: 2 * x)


@pytest.mark.parametrize(
    "judge, why",
    [
        (lambda y: y[0] == 2, None),
        ("finite", None),
        (lambda y: y[0] != 2, "1 of 1 requests failed"),
        (raises, "cannot judge"),
        (lambda y: 1, "judge returned 1"),
    ],
)
async def test_a_judge_refuses_responses_that_clients_get_all_the_same(judge: Any, why: str | None) -> None:
    found, swap = await trial(app_of(FUNCTIONS["1"]), SECOND, cb.Canary(share=0.5, requests=8, judge=judge))
    if why is None:
        assert found["2"] >= 8
        assert found["after", "2"] == 1
    else:
        assert why in str(swap.exception())
        assert isinstance(swap.exception(), cb.SwapFailed)
        assert (found["2"], found["after", "1"]) == (1, 1)
    assert set(found) <= {"1", "2", ("after", "1"), ("after", "2")}


@pytest.mark.parametrize(
    "new, options, why",
    [
        (lambda x: 2 * x, {}, None),
        (lambda x: 2 * x, {"agree": lambda old, new: (old[0], new[0]) == (1, 2), "judge": "finite"}, None),
        (lambda x: x.repeat(2), {}, "1 of 1 requests failed"),
        (lambda x: x * np.float32("nan"), {"judge": "finite"}, "1 of 1 requests failed"),
        (raises, {}, "1 of 1 requests failed"),
        (lambda x: x, {"agree": raises}, "cannot judge"),
    ],
)
async def test_a_shadow_answers_no_client(new: Any, options: Any, why: str | None) -> None:
    canary = cb.Canary(share=0.5, requests=8, shadow=True, **options)
    found, swap = await trial(app_of(FUNCTIONS["1"]), cb.ModelVersion("2", lambda: new), canary)
    assert found["2"] == 0
    if why is None:
        assert swap.exception() is None
        assert found["after", "2"] == 1
    else:
        assert why in str(swap.exception())
        assert found["after", "1"] == 1


@pytest.mark.parametrize("shadow", [False, True])
@pytest.mark.parametrize("batching", [False, True])
async def test_a_version_that_loses_contexts_is_withdrawn(batching: bool, shadow: bool) -> None:
    def loses(*_: Any) -> Any:
        raise cb.ContextPoisoned("killed")

    new = cb.ModelVersion("2", lambda: cb.DynamicBatchingServer[Any, Any](loses) if batching else loses)
    found, swap = await trial(app_of(FUNCTIONS["1"]), new, cb.Canary(share=0.5, requests=8, shadow=shadow))
    assert "requests failed" in str(swap.exception())
    assert (found[422] > 0, found["after", "1"]) == (not shadow, 1)


@pytest.mark.parametrize("shadow", [False, True])
@pytest.mark.parametrize("batching", [False, True])
async def test_a_version_that_hangs_is_withdrawn(batching: bool, shadow: bool) -> None:
    async def hangs(*_: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    new = cb.ModelVersion("2", lambda: cb.DynamicBatchingServer[Any, Any](hangs) if batching else hangs)
    app = app_of(FUNCTIONS["1"], EdgeLimits(request_timeout=0.2))
    async with asyncio.timeout(TIMEOUT), client_of(app) as http:
        swap = asyncio.create_task(app.swap("m", new, canary=cb.Canary(share=0.5, requests=8, shadow=shadow)))
        while not swap.done():
            await answer(http)
        assert "requests failed" in str(swap.exception())


async def test_a_trial_that_is_undecided_in_time_ends(caplog: pytest.LogCaptureFixture) -> None:
    app = app_of(FUNCTIONS["1"])
    async with asyncio.timeout(TIMEOUT), client_of(app) as http:
        with pytest.raises(cb.SwapFailed, match=r"undecided after 0\.01 s: 0 of 8 requests have ended") as failed:
            await app.swap("m", SECOND, canary=cb.Canary(requests=8, timeout=0.01))
        assert failed.value.phase == "canary"
        assert "version '2' is withdrawn: undecided" in caplog.text
        assert (await answer(http), await answer(http, of("2"))) == ("1", 404)


async def test_what_cannot_be_judged_or_copied() -> None:
    async def parts(x: list[int]) -> AsyncIterator[int]:
        yield 1

    app = App("lab")
    app.add_route("/parts", {"1": parts, "2": parts})
    sequences = {each: cb.SequenceBatchingServer[Any, Any](lambda items, slots: items) for each in "12"}
    app.add_model("m", sequences, inputs=X, outputs=Y)
    async with client_of(app):
        for name, options, why in (
            ("parts", {"judge": "finite"}, "streams: its canary can have neither"),
            ("parts", {"shadow": True}, "streams"),
            ("m", {"shadow": True}, "has sequences: its canary can have no shadow"),
        ):
            with pytest.raises(ValueError, match=why):
                await app.swap(name, "2", canary=cb.Canary(**options))
