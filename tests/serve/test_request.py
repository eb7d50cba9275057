"""Requests below the handlers: headers, messages, routes that are known, clients that leave."""

import asyncio
import gc
import json
import sys
from typing import Any

import pytest
from serve_lab import TIMEOUT, Held, X, Y, client_of, request_of, small_app, until

pytest.importorskip("starlette", reason="it comes with the extra 'serve'")

from callboard.serve import App
from callboard.serve.http.listening import COLLECT_AFTER, SWITCH_INTERVAL, _own_process
from callboard.serve.http.request import Fields, receive_soon

INFER = "/v2/models/double/infer"


def test_headers_have_no_case_and_the_first_counts() -> None:
    fields = Fields([(b"x-a", b"1"), (b"x-b", b"\xfc"), (b"x-a", b"2")])
    assert dict(fields) == {"x-a": "1", "x-b": "ü"}
    assert len(fields) == 2
    assert fields["X-A"] == fields.get("x-A") == "1"
    assert fields.get("x-c") is None
    assert "x-c" not in fields


async def test_a_message_that_is_there_needs_no_timer() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    assert await receive_soon(receive, 0.0) == {"type": "http.request"}


async def test_a_message_that_is_not_there_is_waited_for() -> None:
    messages = asyncio.Queue[dict[str, Any]]()
    asking = asyncio.ensure_future(receive_soon(messages.get, TIMEOUT))
    await asyncio.sleep(0)
    messages.put_nowait({"type": "http.request"})
    assert await asking == {"type": "http.request"}


async def test_a_message_that_does_not_come_is_given_up() -> None:
    ended: list[str] = []

    async def receive() -> dict[str, Any]:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)  # it may wait while it ends
            ended.append("ended")
        return {}

    with pytest.raises(TimeoutError):
        await receive_soon(receive, 0.001)
    assert ended == ["ended"]


async def test_a_route_that_is_known_is_the_same_route() -> None:
    app = small_app()
    async with client_of(app) as http:
        for path in (INFER, "/v2/models/double/versions/1/infer"):
            for number in range(3):
                found = await http.post(path, json=request_of([number]))
                assert found.json()["outputs"][0]["data"] == [2 * number]
            assert (await http.get(path)).status_code == 405
    assert app.figures.responses["/v2/models/{model}/infer", 200] == 3


async def test_paths_that_clients_think_of_are_not_kept() -> None:
    app = small_app()
    async with client_of(app) as http:
        for number in range(3):
            for path in (f"/v2/models/none{number}/infer", f"/v2/models/double/versions/{number + 2}/infer"):
                assert (await http.post(path, json=request_of([1]))).status_code == 404
        assert (await http.post(INFER, json=request_of([1]))).status_code == 200
    assert len(app.load()._found) == 1


async def test_a_client_that_leaves_another_asgi_server() -> None:
    held = Held()
    app = App("elsewhere")
    app.add_model("double", held, inputs=X, outputs=Y)
    messages = asyncio.Queue[dict[str, Any]]()
    messages.put_nowait({"type": "http.request", "body": json.dumps(request_of([1])).encode()})
    scope = {"type": "http", "method": "POST", "path": INFER, "headers": [], "query_string": b""}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async with app.running(), asyncio.timeout(TIMEOUT):
        asking = asyncio.ensure_future(app(scope, messages.get, send))
        await held.begun.get()
        messages.put_nowait({"type": "http.disconnect"})
        await asking
        assert await held.ended.get() == "cancelled"
        await until(lambda: app.figures.responses == {("/v2/models/{model}/infer", 499): 1})
    assert sent == []


def test_a_serving_process_has_its_settings_while_it_serves() -> None:
    before = sys.getswitchinterval(), gc.get_threshold()
    with _own_process():
        assert sys.getswitchinterval() <= SWITCH_INTERVAL
        assert gc.get_threshold()[0] >= COLLECT_AFTER
    assert (sys.getswitchinterval(), gc.get_threshold()) == before
    gc.set_threshold(0)
    try:
        with _own_process():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before[1])
