"""Heads of requests: their bounds over real connections, and the numbers in them."""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from serve_lab import TIMEOUT, client_of, request_of, small_app, until

from callboard.cli.tokens import read_token
from callboard.serve import App, EdgeLimits, Tensor, listening
from callboard.serve.http.heads import MAX_HEAD, MAX_HEADERS

INFER = b"POST /v2/models/double/infer HTTP/1.1\r\nhost: h\r\n"
BODY = json.dumps(request_of([1.0])).encode()


async def said(url: str, *parts: bytes, close: bool = False) -> bytes:
    """Everything that the server sends for these bytes, up to its end of the connection."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        if close:
            writer.write_eof()
        return await reader.read()
    except ConnectionError:  # it ended the connection while more was sent
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.few(20)
@pytest.mark.parametrize(
    "head, status",
    [
        (b"x: 1\r\n" * (MAX_HEADERS - 10), 200),
        (b"x: 1\r\n" * (MAX_HEADERS + 1), 431),
        (b"x: 1\r\n" * 100_000, 431),
        (b"x: " + b"a" * (MAX_HEAD - 500) + b"\r\n", 200),
        (b"x: " + b"a" * MAX_HEAD + b"\r\n", 431),
        (b"x: " + b"a" * (1 << 22), 431),
    ],
)
async def test_heads_are_bounded(head: bytes, status: int) -> None:
    async with asyncio.timeout(TIMEOUT), listening(small_app(), port=0) as url:
        tail = b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY
        found = await said(url, INFER, *(head[at : at + 60_000] for at in range(0, len(head), 60_000)), tail)
        assert found.startswith(b"HTTP/1.1 %d " % status), found[:200]
        other = await said(url, INFER, b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(BODY), BODY)
        assert other.startswith(b"HTTP/1.1 200 ")


async def test_a_request_line_is_bounded_and_so_is_the_framing_of_chunks() -> None:
    async with asyncio.timeout(TIMEOUT), listening(small_app(), port=0) as url:
        found = await said(url, b"GET /" + b"a" * (2 * MAX_HEAD))
        assert found.startswith(b"HTTP/1.1 431 ")
        extension = b"1;" + b"e" * 10_000 + b"\r\n \r\n"
        found = await said(url, INFER, b"transfer-encoding: chunked\r\n\r\n", *[extension] * 100)
        assert found.startswith(b"HTTP/1.1 400 ")


async def test_a_head_must_arrive_in_time() -> None:
    limits = EdgeLimits(body_timeout=0.05)
    async with asyncio.timeout(TIMEOUT), listening(small_app(limits=limits), port=0) as url:
        assert (await said(url, b"GET /v2 HTTP/1.1\r\nhost:")).startswith(b"HTTP/1.1 408 ")
        assert (await said(url)).startswith(b"HTTP/1.1 408 ")  # a connection that sends nothing


async def test_bodies_share_a_bound() -> None:
    limits = EdgeLimits(max_body=1000, max_bodies=1500)
    app = small_app(limits=limits)
    async with asyncio.timeout(TIMEOUT), listening(app, port=0) as url:
        where = urlsplit(url)
        _, first = await asyncio.open_connection(where.hostname, where.port)
        first.write(INFER + b"content-length: 1000\r\n\r\n" + b" " * 900)
        await until(lambda: app.bodies == 900)
        found = await said(url, INFER, b"connection: close\r\ncontent-length: 1000\r\n\r\n" + b" " * 1000)
        assert found.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in found
        first.close()
        await until(lambda: app.bodies == 0)


HOSTILE: list[tuple[dict[str, str], bytes]] = [
    ({"Inference-Header-Content-Length": "9" * 5000}, BODY),
    ({"Inference-Header-Content-Length": "0" * 5000 + "1"}, BODY),
    ({}, b'{"inputs": [{"name": "x", "shape": [0, 4611686018427387904], "datatype": "FP32", "data": []}]}'),
    ({}, b'{"inputs": [{"name": "t", "shape": [0, 4611686018427387904], "datatype": "BYTES", "data": []}]}'),
    ({}, b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1e400]}]}'),
    ({}, b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [%s]}]}' % (b"9" * 5000)),
    ({}, b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": %s}]}' % (b"[" * 100_000)),
    ({}, b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [NaN, %s]}]}' % (b"[" * 100_000)),
    ({}, b'{"inputs": [{"name": "x", "shape": [%s], "datatype": "FP32", "data": [1]}]}' % (b"9" * 5000)),
    ({}, b'{"id": "\\ud800", "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}'),
    ({}, b'{"id": "\\ud800", "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [NaN]}]}'),
    ({}, b'{"inputs": [{"name": "\\ud800", "shape": [1], "datatype": "FP32", "data": [NaN]}]}'),
    ({}, b'{"parameters": {"timeout": %s}, "inputs": []}' % (b"9" * 5000)),
    ({}, b'{"parameters": {"priority": -1}, "inputs": []}'),
    ({"Content-Length": "9" * 30}, b""),
]


@pytest.mark.few(20)
@pytest.mark.parametrize("number", range(len(HOSTILE)))
async def test_hostile_numbers_and_texts_are_the_clients_fault(number: int) -> None:
    headers, body = HOSTILE[number]
    app = App()
    twice = [Tensor("x", "FP32", [-1]), Tensor("t", "BYTES", [-1, -1])]
    app.add_model("double", lambda x, t: x, inputs=twice, outputs=[Tensor("y", "FP32", [-1])])
    app.add_model("plane", lambda x: x, inputs=[Tensor("x", "FP32", [-1, -1])], outputs=[Tensor("y", "FP32", [-1, -1])])
    async with client_of(app) as http:
        for model in ("double", "plane"):
            found = await http.post(f"/v2/models/{model}/infer", content=body, headers=headers)
            assert 400 <= found.status_code < 500, found.text
            assert found.json()["error"]


async def test_a_size_of_texts_that_no_memory_holds() -> None:
    app = App()
    texts = [Tensor("t", "BYTES", [-1])]
    app.add_model("echo", lambda t: t, inputs=texts, outputs=texts)
    head = {"inputs": [{"name": "t", "shape": [1 << 40], "datatype": "BYTES", "parameters": {"binary_data_size": 8}}]}
    text = json.dumps(head).encode()
    async with client_of(app) as http:
        headers = {"Inference-Header-Content-Length": str(len(text))}
        found = await http.post("/v2/models/echo/infer", content=text + b"\0" * 8, headers=headers)
        assert found.status_code == 400
        surrogate = {"inputs": [{"name": "t", "shape": [1], "datatype": "BYTES", "data": ["\ud800"]}]}
        found = await http.post("/v2/models/echo/infer", content=json.dumps(surrogate))
        assert found.status_code == 400


async def test_nan_and_infinities_as_clients_of_triton_write_them() -> None:
    seen: list[Any] = []
    app = App()
    x = [Tensor("x", "FP32", [-1])]

    def model(x: Any) -> Any:
        seen.append(x)
        return np.nan_to_num(x, posinf=1, neginf=-1)

    app.add_model("m", model, inputs=x, outputs=[Tensor("y", "FP32", [-1])])
    body = json.dumps({"inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "data": [np.nan, np.inf, -np.inf]}]})
    assert "NaN" in body
    async with client_of(app) as http:
        found = await http.post("/v2/models/m/infer", content=body)
    assert found.json()["outputs"][0]["data"] == [0, 1, -1]
    np.testing.assert_array_equal(seen[0], np.array([np.nan, np.inf, -np.inf], "f4"))


async def test_half_of_a_surrogate_pair_in_a_result_is_replaced() -> None:
    app = App()
    texts = [Tensor("t", "BYTES", [-1])]
    app.add_model("m", lambda t: np.array(["a\ud800"], object), inputs=texts, outputs=texts)
    async with client_of(app) as http:
        body = {"inputs": [{"name": "t", "shape": [1], "datatype": "BYTES", "data": ["x"]}]}
        found = await http.post("/v2/models/m/infer", json=body)
    assert found.json()["outputs"][0]["data"] == ["a?"]


@pytest.mark.parametrize(
    "content, says",
    [
        (b"secret", None),
        (b"\xef\xbb\xbfsecret\r\n", None),
        (b"secret\nother\n", "2 lines"),
        (b"\n", "empty"),
        ("gehéim".encode(), "visible ASCII"),
        (b"\xff\xfes\0", "not UTF-8"),
    ],
)
def test_files_with_a_token(content: bytes, says: str | None, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    if says is None:
        assert read_token(path) == "secret"
    else:
        with pytest.raises(ValueError, match=says):
            read_token(path)
