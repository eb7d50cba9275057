"""The trace context and the id of an HTTP request reach its model's server and the log records of its task."""

import json
import logging
from typing import Any

import pytest
from serve_lab import X, Y, client_of, request_of

import callboard as cb
from callboard.events.kinds import REQUEST
from callboard.events.ring import Event
from callboard.serve import App
from callboard.serve.http.noted import ACCESS
from callboard.telemetry.logs import Concerning, JsonLog

PARENT = f"00-{'ab' * 16}-{'cd' * 8}-01"


def tenant(headers: Any) -> str:
    logging.getLogger("callboard.serve").warning("tenant")
    return "all"


async def test_a_request_carries_its_trace_to_its_server_and_to_logs(caplog: pytest.LogCaptureFixture) -> None:
    events: list[Event] = []
    caplog.handler.addFilter(filtering := Concerning())
    app = App("lab", tenant=tenant)
    app.add_model("double", lambda x: 2 * x, inputs=X, outputs=Y)
    async with cb.System("app") as system:
        telemetry = cb.observe(system)
        telemetry.subscribe(events.extend)
        async with client_of(app) as http:
            for headers in ({"traceparent": PARENT, "x-request-id": "one"}, {"traceparent": "00-no"}):
                found = await http.post("/v2/models/double/infer", json=request_of([1.0]), headers=headers)
                assert found.status_code == 200, found.text
        telemetry.flush()
    caplog.handler.removeFilter(filtering)
    assert [each[8] for each in events if each[2] == REQUEST and each[3] == "double"] == [PARENT, None]
    first, second = [vars(each) for each in caplog.records if each.getMessage() == "tenant"]
    assert (first["request_id"], first["trace_id"]) == ("one", "ab" * 16)
    assert second["request_id"] != "one"
    assert "trace_id" not in second


@pytest.mark.parametrize("on_thread", [False, True])
async def test_logs_of_a_function_and_of_access_have_the_ids_of_their_request(
    caplog: pytest.LogCaptureFixture, on_thread: bool
) -> None:
    caplog.handler.addFilter(filtering := Concerning())
    caplog.set_level(logging.INFO, ACCESS)

    def told(x: Any) -> Any:
        logging.getLogger("mine").warning("in the model")
        return x

    async def awaited(x: Any) -> Any:
        return told(x)

    app = App("lab")
    app.add_model("double", told if on_thread else awaited, inputs=X, outputs=Y)
    async with cb.System("app") as system:
        cb.observe(system)
        async with client_of(app) as http:
            for headers in ({"traceparent": PARENT, "x-request-id": "one"}, {"x-request-id": "two"}):
                found = await http.post("/v2/models/double/infer", json=request_of([1.0]), headers=headers)
                assert found.status_code == 200, found.text
    caplog.handler.removeFilter(filtering)
    for name in ("mine", ACCESS):
        first, second = [vars(each) for each in caplog.records if each.name == name]
        assert (first["request_id"], first["trace_id"]) == ("one", "ab" * 16)
        assert second["request_id"] == "two"
        assert "trace_id" not in second
    line = json.loads(JsonLog().format(next(each for each in caplog.records if each.name == "mine")))
    assert line["request_key"].startswith("double#")
