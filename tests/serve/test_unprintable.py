"""Exceptions whose text cannot be made: clients and the log get one all the same."""

import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from serve_lab import X, Y, client_of, request_of

import callboard as cb
from callboard.actors.errors import printable
from callboard.patterns.replicas.replica import NotSent
from callboard.patterns.requests.calling import deliverable
from callboard.serve import App, BadRequest
from callboard.serve.models import TensorModel


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class UnprintableRequest(Unprintable, BadRequest):
    pass


class UnprintableStop(StopIteration):
    __repr__ = Unprintable.__repr__


def fails(x: Any) -> Any:
    raise Unprintable


def refuses(x: Any) -> Any:
    raise UnprintableRequest


async def streams(x: list[float]) -> AsyncIterator[float]:
    yield x[0]
    raise Unprintable


def test_the_text_of_an_exception() -> None:
    forms: list[Callable[[object], str]] = [str, repr]
    for form in forms:
        assert printable(ValueError("a"), form) == form(ValueError("a"))
        assert printable(Unprintable(), form) == "<Unprintable, whose text raises RuntimeError>"
    assert "Unprintable" in str(NotSent(Unprintable()))
    assert "UnprintableStop" in str(deliverable(UnprintableStop()))


@pytest.mark.parametrize(
    "make",
    [
        lambda function: function,
        lambda function: cb.DynamicBatchingServer[Any, Any](lambda items: [function(each) for each in items]),
        lambda function: cb.ModelReplicaPool[Any, Any]([function, function], fault=function),
        lambda function: cb.SequenceBatchingServer[Any, Any](lambda items, slots: function(items)),
    ],
    ids=["function", "batches", "pool", "sequences"],
)
async def test_a_model_that_raises_it(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "callboard.serve")
    app = App()
    app.add_model("fails", make(fails), inputs=X, outputs=Y)
    app.add_model("refuses", make(refuses), inputs=X, outputs=Y)
    model = app.find("fails")
    assert isinstance(model, TensorModel)
    parameters = {"sequence_id": 1, "sequence_start": True} if model.has_sequences else {}
    async with client_of(app) as http:
        found = await http.post("/v2/models/fails/infer", json=request_of([1.0], parameters=parameters))
        assert found.status_code == 500
        assert "the model failed" in found.json()["error"]
        found = await http.post("/v2/models/refuses/infer", json=request_of([1.0], parameters=parameters))
        assert found.status_code == 400
        assert "UnprintableRequest" in found.json()["error"]
    assert any("Unprintable: <Unprintable, whose text" in each for each in caplog.messages)


async def test_a_stream_that_ends_in_it() -> None:
    app = App()
    app.add_route("/stream", streams)
    async with client_of(app) as http:
        found = await http.post("/stream", json=[1.0])
    *_, last = found.text.strip().split("\n\n")
    assert found.status_code == 200
    assert json.loads(last.removeprefix("data: "))["status"] == 500


async def test_a_version_whose_load_raises_it() -> None:
    server = cb.ModelHotSwapServer[Any, Any](cb.ModelVersion("1", lambda: abs))
    async with server:
        with pytest.raises(cb.SwapFailed, match="load failed: <Unprintable, whose text"):
            await server.swap(cb.ModelVersion("2", lambda: fails(None)))
        assert (await server.submit(-1)).response == 1
