"""Heads of requests: their bounds over real connections, and the numbers in them."""

import asyncio
import json
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from serve_lab import TIMEOUT, Held, X, Y, client_of, request_of, small_app, until

from callboard.cli.parts.tokens import read_token
from callboard.serve import App, BadRequest, EdgeLimits, Tensor, listening
from callboard.serve.http.compression import LARGE, STEP, decompressed
from callboard.serve.http.heads import MAX_HEAD, MAX_HEADERS, MAX_PIPELINED

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
        chunk = b"transfer-encoding: chunked\r\n\r\n40000\r\n" + b" " * 0x40000 + b"\r\n"
        for rest in (b"0\r\nx: ", b"1;"):  # trailers, an extension
            found = await said(url, INFER, chunk + rest, *[b"a" * MAX_HEAD] * 8)
            assert found.startswith(b"HTTP/1.1 400 "), found[:200]


async def test_what_follows_a_request_does_not_disturb_its_response() -> None:
    held, limits = Held(), EdgeLimits(body_timeout=0.05)
    app = App(limits=limits)
    app.add_model("double", held, inputs=X, outputs=Y)
    whole = INFER + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    async with asyncio.timeout(TIMEOUT), listening(app, port=0) as url:
        where = urlsplit(url)
        for rest in (b"\r\n", b"GET", b"\0\xff\r\n", b"GET /v2 HTTP/1.1\r\nhost: " + b"a" * (2 * MAX_HEAD)):
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            writer.write(whole)
            await held.begun.get()
            writer.write(rest)
            # Another head that does not arrive: its time is over after that of the first one.
            assert (await said(url, b"GET")).startswith(b"HTTP/1.1 408 ")
            held.go.set()
            found = await reader.read()
            held.go.clear()
            assert found.startswith(b"HTTP/1.1 200 ")
            assert found.count(b"HTTP/1.1") == 1
            assert found.endswith(b'"data":[1.0]}]}')
            writer.close()


async def test_requests_ahead_of_their_responses_are_bounded() -> None:
    held = Held()
    app = App()
    app.add_model("double", held, inputs=X, outputs=Y)
    whole = INFER + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    async with asyncio.timeout(TIMEOUT), listening(app, port=0) as url:
        where = urlsplit(url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(whole)
        await held.begun.get()
        writer.write(b"GET /v2/health/live HTTP/1.1\r\nhost: h\r\n\r\n" * 2000)
        assert (await said(url, b"GET /v2/health/live HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        held.go.set()
        found = await reader.read()
        assert found.count(b"HTTP/1.1 200 ") == 1 + MAX_PIPELINED
        writer.close()


UPGRADE = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"


async def test_a_request_to_upgrade_the_connection_is_a_request_like_others() -> None:
    length = b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    chunks = b"transfer-encoding: chunked\r\n\r\n%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"
    last = INFER + b"connection: close\r\n" + length
    async with asyncio.timeout(TIMEOUT), listening(small_app(), port=0) as url:
        for body in (length, chunks):
            asked = INFER + UPGRADE + body
            for parts in (
                (asked + asked, last),
                (asked[:100], asked[100:-5], asked[-5:] + asked[:60], asked[60:] + last),
            ):
                found = await said(url, *parts)
                assert found.count(b"HTTP/1.1 200 ") == found.count(b'"data":[2.0]') == 3
        websocket = b"GET /v2 HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
        assert (await said(url, websocket + last)).count(b"HTTP/1.1 200 ") == 2
        found = await said(url, INFER, UPGRADE + b"a: b\r\n" * MAX_HEADERS + length)
        assert found.startswith(b"HTTP/1.1 431 ")
        assert found.count(b"HTTP/1.1") == 1
        assert (await said(url, b"CONNECT h:80 HTTP/1.1\r\nhost: h\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


async def test_a_head_must_arrive_in_time() -> None:
    limits = EdgeLimits(body_timeout=0.05)
    async with asyncio.timeout(TIMEOUT), listening(small_app(limits=limits), port=0) as url:
        assert (await said(url, b"GET /v2 HTTP/1.1\r\nhost:")).startswith(b"HTTP/1.1 408 ")
        assert (await said(url)).startswith(b"HTTP/1.1 408 ")  # a connection that sends nothing


async def test_the_bound_of_all_bodies_is_at_least_that_of_one() -> None:
    app = small_app(limits=EdgeLimits(max_body=4096, max_bodies=16))
    async with client_of(app) as http:
        assert (await http.post("/v2/models/double/infer", json=request_of([1.0] * 20))).status_code == 200


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


GOOD = b'{"parameters": {%s}, "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [%s]}]}'
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
    ({}, GOOD % (b'"timeout": %s' % (b"9" * 400), b"1")),
    ({}, GOOD % (b'"priority": %s' % (b"9" * 400), b"1")),
    ({}, GOOD % (b'"sequence_id": "\\ud800"', b"NaN")),
    ({}, GOOD % (b"", b"NaN, 1e999")),
    ({}, GOOD % (b'"timeout": NaN', b"1")),
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
    app.add_model("one", lambda x: x, inputs=[Tensor("x", "FP32", [-1])], outputs=[Tensor("y", "FP32", [-1])])
    async with client_of(app) as http:
        for model in ("double", "plane", "one"):
            if model == "one" and b"[0, 4611" in body:
                continue  # an array without elements, which fits
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


async def test_nan_and_infinities_in_answers_are_read_by_clients_of_triton() -> None:
    given = np.array([np.nan, np.inf, -np.inf, 1.5])
    app = App()
    x = [Tensor("x", "FP32", [-1])]
    for name, dtype in (("FP16", "f2"), ("FP32", "f4"), ("FP64", "f8")):
        value = given.astype(dtype)
        app.add_model(name, lambda x, value=value: value, inputs=x, outputs=[Tensor("y", name, [-1])])
    async with client_of(app) as http:
        for name in ("FP16", "FP32", "FP64"):
            found = await http.post(f"/v2/models/{name}/infer", json=request_of([1.0]))
            assert found.status_code == 200
            np.testing.assert_array_equal(found.json()["outputs"][0]["data"], given)
            rapidjson = pytest.importorskip("rapidjson", reason="tritonclient's")
            np.testing.assert_array_equal(rapidjson.loads(found.content)["outputs"][0]["data"], given)


async def test_what_a_model_raises_may_be_no_text_and_long() -> None:
    app = App()

    def model(x: Any) -> Any:
        raise (ValueError if x[0] else BadRequest)("\ud800" + "a" * 10_000)

    app.add_model("double", model, inputs=X, outputs=Y)
    async with client_of(app) as http:
        for number, status in ((1.0, 500), (0.0, 400)):
            found = await http.post("/v2/models/double/infer", json=request_of([number]))
            assert found.status_code == status
            assert len(found.content) < 1100


async def test_a_small_body_that_becomes_large_is_counted_as_it_grows() -> None:
    held: list[int] = []

    def hold(size: int) -> None:
        held.append(size)
        if sum(held) > 9 << 20:
            raise MemoryError

    small = zlib.compress(bytes(32 << 20), 9)
    with pytest.raises(MemoryError):
        await decompressed(memoryview(small), "deflate", 64 << 20, hold)
    assert max(held) <= STEP
    assert held[0] <= LARGE
    found = await decompressed(memoryview(small), "deflate", 32 << 20, lambda size: None)
    assert bytes(found) == bytes(32 << 20)


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
