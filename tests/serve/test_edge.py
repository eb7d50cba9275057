"""What a failing request tells its client, and what the log has of it: ids, reasons, records of the log."""

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from serve_lab import TIMEOUT, X, Y, client_of, request_of, small_app
from tests.patterns.poison_lab import Card

import callboard as cb
from callboard.patterns.hotswap.errors import SwapFailed
from callboard.serve import App, BadRequest, HttpError, NotReady, listening
from callboard.serve.errors import BadModelResult, refusal_of
from callboard.serve.http import noted as module
from callboard.serve.http.noted import ACCESS, Noted
from callboard.serve.http.reports import MOST, Reports
from callboard.telemetry.logs import JsonLog

INFER = "/v2/models/m/infer"
SECRET = "password of the database"
ID = "x-request-id"


class Chained(cb.ResidentActor):
    """Raises what it is told to, with a cause."""

    def fail(self, x: Any) -> Any:
        try:
            raise KeyError(SECRET)
        except KeyError as e:
            raise [ValueError, RuntimeError, BadRequest][int(x[0])](SECRET) from e


def failing(error: BaseException, **options: Any) -> App:
    async def model(x: Any) -> Any:
        raise error

    app = App(**options)
    app.add_model("m", model, inputs=X, outputs=Y, version="7")
    return app


# -- reasons -----------------------------------------------------------------------------------------------------------

TOLD = (HttpError, cb.ShapeError, cb.BudgetSpent, BadRequest, cb.ItemTooLarge, NotReady)


def errors() -> list[type[Exception]]:
    given = [error for name in dir(cb) if isinstance(error := getattr(cb, name), type)]
    found = [error for error in given if issubclass(error, Exception) and error is not cb.NoEligibleDevice]
    return [*found, ValueError, KeyError, MemoryError, BadModelResult, SwapFailed, *TOLD]


@pytest.mark.parametrize("kind", errors(), ids=lambda kind: kind.__name__)
def test_a_text_of_a_model_is_not_for_clients(kind: type[Exception]) -> None:
    error = kind(SECRET)
    assert (SECRET in refusal_of(error, "m").reason) == isinstance(error, TOLD)


@pytest.mark.parametrize("batched", [False, True])
async def test_errors_of_an_actor_and_of_a_batch(batched: bool) -> None:
    async with cb.device("cpu") as device:
        actor = device.actor_of(cb.Props(Chained))

        async def one(x: Any) -> Any:
            return await actor.call(Chained.fail, x)

        async def batch(items: list[Any]) -> Any:
            return await actor.call(Chained.fail, items[0])

        app = App()
        app.add_model("m", cb.DynamicBatchingServer(batch) if batched else one, inputs=X, outputs=Y)
        async with client_of(app) as http:
            found = [await http.post(INFER, json=request_of([n])) for n in range(3)]
    for each in found[:2]:
        assert (each.status_code, each.json()["error"]) == (500, f"the model failed; request {each.headers[ID]}")
    assert (found[2].status_code, found[2].json()["error"]) == (400, SECRET)


async def test_a_template_of_a_chat_that_fails() -> None:
    def chat(messages: Any) -> str:
        raise ValueError(SECRET)

    app = App()
    decoder = cb.SpeculativeDecoder(cb.Cacheless(lambda sequences, rows: []), cb.NGramDraft(), eos=0)
    app.add_decoder("m", decoder, encode=lambda text: [1], decode=str, chat=chat)
    async with client_of(app) as http:
        found = await http.post("/v1/chat/completions", json={"model": "m", "messages": [{}]})
    assert (found.status_code, SECRET in found.text) == (400, False)


async def test_a_device_that_has_stopped_tells_no_error_to_probes() -> None:
    async with client_of(failing(cb.DeviceStopped(SECRET))) as http:
        assert (await http.post(INFER, json=request_of([1]))).status_code == 503
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/m/ready", "/docs"):
            found = await http.get(path)
            assert "a device of model" in found.text
            assert SECRET not in found.text
        assert SECRET not in (await http.post("/v2/repository/index")).text


# -- ids ---------------------------------------------------------------------------------------------------------------


async def test_each_response_has_an_id() -> None:
    async with client_of(failing(ValueError(SECRET))) as http:
        for path in ("/v2", "/v2/health/live", "/metrics", "/none", "/v2/", INFER):
            found = await http.get(path)
            given = await http.get(path, headers={ID: "of-the-client/1"})
            assert len(found.headers[ID]) == 16
            assert given.headers.get_list(ID) == ["of-the-client/1"]
        body = request_of([1], id="of the body")
        assert (await http.post(INFER, json=body)).headers[ID]
    async with client_of(small_app()) as http:
        found = await http.post("/v2/models/double/infer", json=request_of([1], id="of the body"), headers={ID: "a"})
        assert (found.json()["id"], found.headers[ID]) == ("of the body", "a")


@pytest.mark.parametrize("given", [b"", b"two words", b"\xe4", b"a" * 129, b"tab\there", b"\x7f"])
def test_an_id_that_is_not_short_visible_ascii_is_replaced(given: bytes) -> None:
    made = Noted({"headers": [(b"x-request-id", given)], "method": "GET", "path": "/"}).id
    assert (len(made), made.encode() == given) == (16, False)


async def test_what_is_refused_before_the_app_has_an_id_too() -> None:
    async with listening(small_app(), port=0, max_connections=1) as url, httpx.AsyncClient(base_url=url) as one:
        assert (await one.get("/v2")).headers[ID]
        assert (await one.get("/v2", headers={"a": "a" * 70_000})).headers[ID]
        async with httpx.AsyncClient(base_url=url) as first, httpx.AsyncClient(base_url=url) as two:
            assert (await first.get("/v2")).status_code == 200
            refused = await two.get("/v2", headers={ID: "a"})
    assert (refused.status_code, refused.headers[ID]) == (503, "a")
    assert refused.json()["error"] == "there are too many connections; request a"


# -- the log -----------------------------------------------------------------------------------------------------------


async def test_many_failures_are_one_record_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    app = failing(ValueError(SECRET), tenant=lambda headers: "acme")
    waits: list[Any] = []
    app.reports = Reports(lambda seconds, call: waits.append(call))
    async with client_of(app) as http:
        found = [await http.post(INFER, json=request_of([1])) for _ in range(100)]
        (end,) = waits
        end()
    assert {each.status_code for each in found} == {500}
    first, last = [each for each in caplog.records if each.name == "callboard.serve"]
    told: Any = vars(first)
    assert told["exc_info"] is not None
    assert SECRET in first.getMessage()
    assert {name: told[name] for name in ("request_id", "model", "version", "tenant", "route", "status")} == {
        "request_id": found[0].headers[ID],
        "model": "m",
        "version": "7",
        "tenant": "acme",
        "route": "/v2/models/{model}/infer",
        "status": 500,
    }
    assert last.getMessage().startswith("99 more requests to model 'm' failed with ValueError at ")
    ids = [each.headers[ID] for each in found[1 : 1 + MOST]]
    assert last.getMessage().endswith(f"requests {', '.join(ids)} and {99 - MOST} more")
    rest: Any = vars(last)
    assert (rest["suppressed"], rest["request_id"], rest["exc_info"]) == (99, found[-1].headers[ID], None)


async def test_other_kinds_and_later_ones_are_logged_and_the_end_leaves_none(caplog: pytest.LogCaptureFixture) -> None:
    def raised(line: int) -> Exception:
        try:
            if line:
                raise ValueError
            raise ValueError
        except ValueError as e:
            return e

    waits: list[Any] = []
    reports = Reports(lambda seconds, call: waits.append(call))
    about: Any = SimpleNamespace(id="1", model="m", path="/", fields=dict)
    for kind in (0, 1, 0, 1):
        reports.refused(raised(kind), about)
    assert len(caplog.records) == 2
    waits.pop(0)()
    assert len(caplog.records) == 3
    reports.refused(raised(0), about)
    assert len(caplog.records) == 4
    reports.flush()
    reports.flush()
    assert len(caplog.records) == 5


async def test_other_texts_are_other_kinds_up_to_a_number(caplog: pytest.LogCaptureFixture) -> None:
    waits: list[Any] = []
    reports = Reports(lambda seconds, call: waits.append(call))

    def fail(number: int, cause: Exception | None = None) -> None:
        about: Any = SimpleNamespace(id=f"id-{number}", model="m", path="/", fields=dict)
        error = ValueError("it failed" if cause else f"bad value {number}")
        error.__cause__ = cause
        reports.refused(error, about)

    for number, reason in enumerate(("cut off", "other inputs", "cut off")):
        fail(number, OSError(reason))
    assert [each.getMessage()[-4:] for each in caplog.records] == ["id-0", "id-1"]
    for number in range(3, 2 * MOST):
        fail(number)
    assert len(caplog.records) == MOST + 1
    reports.flush()
    text = "\n".join(each.getMessage() for each in caplog.records)
    assert [number for number in range(2 * MOST) if f"id-{number}" not in text] == []
    assert "requests id-2" in text


async def test_the_access_log(caplog: pytest.LogCaptureFixture) -> None:
    async with client_of(failing(ValueError(SECRET))) as http:
        await http.get("/v2")
        assert not [each for each in caplog.records if each.name == ACCESS]
        with caplog.at_level(logging.INFO, ACCESS):
            await http.get("/none%0Aline?key=secret")
            await http.post(INFER, json=request_of([1]), headers={ID: "a"})
    other, asked = [each for each in caplog.records if each.name == ACCESS]
    assert '"GET /none%0Aline" 404 ' in other.getMessage()
    assert asked.getMessage().endswith(" ms, request a")
    fields: Any = vars(asked)
    assert (fields["request_id"], fields["status"], fields["model"], fields["seconds"] > 0) == ("a", 500, "m", True)


async def test_slow_requests_are_logged_without_the_access_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_slow", module._slow)  # as it was, afterwards
    async with client_of(failing(ValueError(SECRET))) as http:
        module.log_slow(3600.0)
        await http.get("/v2")
        module.log_slow(0.0)
        await http.get("/v2", headers={ID: "b"})
    [slow] = [each for each in caplog.records if each.name == ACCESS]
    assert slow.levelname == "WARNING"
    assert slow.getMessage().endswith(" ms, slow, request b")


def test_records_as_lines_of_json() -> None:
    def line(**fields: Any) -> Any:
        record = logging.makeLogRecord({"name": "a", "levelname": "INFO", "msg": "it is %s", "args": ("so",), **fields})
        text = JsonLog().format(record)
        assert "\n" not in text
        return json.loads(text)

    found = line(request_id="1", tenant=None, odd={1, 2}.__class__)
    assert (found["message"], found["level"], found["request_id"], found["tenant"]) == ("it is so", "info", "1", None)
    assert found["time"].endswith("Z")
    itself: list[Any] = []
    itself.append(itself)
    assert line(request_id=itself)["request_id"] == "[[...]]"
    assert line(tenant="\ud800")["tenant"] == "?"
    assert SECRET in line(exc_info=(ValueError, ValueError(SECRET), None))["traceback"]


# -- quarantine --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["calls", "tenants", "batches", "version"])
async def test_a_poison_is_named_and_pardoned(how: str) -> None:
    card: Any = Card()

    async def one(x: Any) -> Any:
        return await card.double([float(x[0])])

    async def batch(items: list[Any]) -> Any:
        return [[each] for each in await card.double([float(item[0]) for item in items])]

    async def load() -> Any:
        return cb.DynamicBatchingServer(batch, name="inside")

    model: Any = {"batches": cb.DynamicBatchingServer(batch), "version": cb.ModelVersion("1", load)}.get(how, one)
    app = App()
    app.add_model("m", model, inputs=X, outputs=Y, tenants={"": 1} if how == "tenants" else None)
    async with asyncio.timeout(TIMEOUT), client_of(app) as http:
        refused = await http.post(INFER, json=request_of([-1.0]))
        reason = refused.json()["error"]
        key = reason.split("'")[3]
        assert (refused.status_code, len(key), int(key, 16) > 0) == (422, 16, True)
        assert reason.startswith(f"model 'm': request '{key}' was in flight at 3 losses of a context")
        assert reason.endswith(f"; request {refused.headers[ID]}")
        (held,) = (await http.get("/v2/quarantine")).json()["held"]
        assert (held["model"], held["key"], 0 < held["seconds"] <= 600) == ("m", key, True)
        figures = (await http.get("/metrics")).text
        assert 'callboard_model_quarantined_keys{model="m",version="1"} 1\n' in figures
        assert 'callboard_model_quarantined_total{model="m",version="1"} 1\n' in figures
        for body, status in (({"key": "none"}, 404), ({"key": key, "model": "n"}, 404), ({}, 400), ({"key": key}, 200)):
            assert (await http.post("/v2/quarantine/pardon", json=body)).status_code == status
        assert (await http.get("/v2/quarantine")).json() == {"held": []}
