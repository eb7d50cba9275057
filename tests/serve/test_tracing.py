"""Times of sampled requests: the trace extension."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from serve_lab import client_of, request_of, small_app

from callboard.serve import BadRequest
from callboard.serve.http.tracing import Tracer

DOUBLE, ALL = "/v2/models/double/trace/setting", "/v2/trace/setting"
ON = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_requests_are_traced_as_clients_set_it(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    async with client_of(small_app(trace_file=path)) as http:
        assert "trace" in (await http.get("/v2")).json()["extensions"]
        await http.post("/v2/models/double/infer", json=request_of([1.0]))
        assert lines(path) == []  # off until a client turns it on
        found = await http.post(DOUBLE, json=ON)
        off = {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0"}
        assert found.json() == {**off, **ON, "trace_file": str(path)}
        assert (await http.get(ALL)).json() == {**off, "trace_file": str(path)}
        await http.post("/v2/models/double/infer", json=request_of([1.0]))
        await http.post("/v2/models/double/infer", json={"inputs": []})
        (whole, refused) = lines(path)
        assert (whole["id"], whole["model_name"], whole["model_version"]) == (1, "double", "1")
        steps = ["REQUEST_START", "QUEUE_START", "COMPUTE_END", "REQUEST_END"]
        assert [each["name"] for each in whole["timestamps"]] == steps
        times = [each["ns"] for each in whole["timestamps"]]
        assert times == sorted(times)
        assert [each["name"] for each in refused["timestamps"]] == ["REQUEST_START", "REQUEST_END"]
        assert (await http.post(DOUBLE, json={"trace_level": None})).json()["trace_level"] == ["OFF"]
        await http.post("/v2/models/double/infer", json=request_of([1.0]))
        assert len(lines(path)) == 2
        assert (await http.get("/v2/models/none/trace/setting")).status_code == 404


async def test_without_a_file_there_are_none() -> None:
    async with client_of(small_app()) as http:
        assert "trace" not in (await http.get("/v2")).json()["extensions"]
        for found in (await http.get(ALL), await http.post(DOUBLE, json=ON)):
            assert found.status_code == 403


async def test_what_is_collected_is_written_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    async with client_of(small_app(trace_file=path)) as http:
        await http.post(ALL, json={**ON, "log_frequency": 10})
        for _ in range(3):
            await http.post("/v2/models/double/infer", json=request_of([1.0]))
        assert lines(path) == []
    assert len(lines(path)) == 3


def test_rate_and_count(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path / "traces.jsonl")
    tracer.update({**ON, "trace_rate": 3, "trace_count": 2})
    assert [tracer.begin("a", "1") is not None for _ in range(9)] == [n % 3 == 0 and n < 7 for n in range(1, 10)]
    assert tracer.settings()["trace_count"] == "0"
    tracer.update({"trace_count": "1", "trace_rate": "1"}, "b")
    assert [tracer.begin("b", "1") is not None for _ in range(3)] == [True, False, False]
    assert tracer.settings("b")["trace_count"] == "0"
    assert tracer.settings("a")["trace_rate"] == "3"


@pytest.mark.parametrize(
    "given, says",
    [
        ({"trace_file": "/etc/passwd"}, "cannot be changed over HTTP"),
        ({"mode": "opentelemetry"}, "cannot be changed over HTTP"),
        ({"trace_level": ["TENSORS"]}, "trace_level must be"),
        ({"trace_level": {}}, "trace_level must be"),
        ({"trace_rate": "0"}, "trace_rate must be an integer of at least 1"),
        ({"trace_rate": True}, "trace_rate must be an integer"),
        ({"trace_count": "-2"}, "trace_count must be an integer of at least -1"),
        ({"log_frequency": "often"}, "log_frequency must be an integer"),
        ({"log_frequency": "1" * 5000}, "log_frequency must be an integer"),
    ],
)
def test_settings_that_are_refused_change_nothing(given: dict[str, Any], says: str, tmp_path: Path) -> None:
    tracer = Tracer(tmp_path / "traces.jsonl")
    before = tracer.settings()
    with pytest.raises(BadRequest, match=says):
        tracer.update({**ON, **given})
    assert tracer.settings() == before


def test_a_file_that_cannot_be_written_ends_tracing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tracer = Tracer(tmp_path)  # a folder
    tracer.update(ON)
    trace = tracer.begin("a", "1")
    assert trace is not None
    with caplog.at_level(logging.WARNING, "callboard.serve"):
        trace.end()
    assert "tracing is off" in caplog.text
    assert tracer.begin("a", "1") is None
