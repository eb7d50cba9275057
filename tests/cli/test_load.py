"""``callboard load``: due times and timing of requests, their bodies, and the command against an app."""

import asyncio
import itertools
import json
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from callboard.actors.clock import LoopClock, ManualClock
from callboard.cli import main
from callboard.cli.load import command
from callboard.cli.load.bodies import embedding_posts, infer_posts, some_texts
from callboard.cli.load.driver import Sample, Samples, drive_closed, drive_open
from callboard.cli.load.figures import drawing, figures_of
from callboard.serve import App, HttpError, Tensor
from callboard.serve.encoding.messages import HEADER_LENGTH, parsed

LIMIT = 20.0


class Slow:
    """Takes the given seconds for each request in turn, then none; what is in progress is served at once."""

    def __init__(self, clock: ManualClock, *seconds: float) -> None:
        self.clock = clock
        self.seconds = iter(seconds)
        self.open = self.most = 0

    async def __call__(self) -> str:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.open += 1
        self.most = max(self.most, self.open)
        self.clock.call_later(next(self.seconds, 0.0), over.set_result, None)
        await over
        self.open -= 1
        return "200"


async def run(clock: ManualClock, work: Awaitable[None], until: float, step: float = 0.25) -> None:
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    while not task.done() and clock.time() < until:
        clock.advance(step)
        for _ in range(8):
            await asyncio.sleep(0)
    await asyncio.wait_for(task, LIMIT)


async def test_a_closed_loop_has_as_many_requests_open_as_clients() -> None:
    clock = ManualClock()
    send, samples = Slow(clock, *[1.0] * 100), Samples(since=clock.time() + 2)
    end = clock.time() + 6
    await run(clock, drive_closed(send, samples, clock, clients=3, end=end), end + 20)
    assert (send.open, send.most) == (0, 3)
    assert samples.warm == 3 * 2
    assert [round(each.seconds, 6) for each in samples.kept] == [1.0] * (3 * 4)


async def test_in_an_open_loop_requests_do_not_wait_for_those_before() -> None:
    clock = ManualClock()
    send, samples = Slow(clock, *[30.0] * 1000), Samples(since=clock.time())
    end = clock.time() + 20
    await run(clock, drive_open(send, samples, clock, rate=10.0, end=end, seed=1), end + 60)
    assert send.most == len(samples.kept)
    assert 150 < len(samples.kept) < 250
    gaps = np.diff([each.due for each in samples.kept])
    assert np.std(gaps) == pytest.approx(np.mean(gaps), rel=0.3)  # exponential


async def test_a_request_that_is_sent_late_has_waited() -> None:
    """The clock jumps over 10 s, as where the loop is held up: the requests due in it are as old as that."""
    clock = ManualClock()
    start = clock.time()
    send, samples = Slow(clock), Samples(since=start)
    await run(clock, drive_open(send, samples, clock, rate=5.0, end=start + 10, seed=1), start + 100, step=10.0)
    assert len(samples.kept) > 30
    for each in samples.kept:
        assert each.seconds >= start + 10 - each.due - 1e-9
    assert max(each.seconds for each in samples.kept) > 9


async def test_a_cancelled_load_keeps_what_has_ended() -> None:
    for drive in (drive_closed, drive_open):
        clock = ManualClock()
        samples = Samples(since=clock.time())
        how: dict[str, Any] = {"clients": 2} if drive is drive_closed else {"rate": 4.0, "seed": 0}
        send = Slow(clock, 1.0, 1.0, *[1e6] * 1000)
        task = asyncio.ensure_future(drive(send, samples, clock, end=clock.time() + 1e9, **how))
        for _ in range(40):
            clock.advance(0.25)
            for _ in range(8):
                await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, LIMIT)
        assert len(samples.kept) == 2


def test_figures() -> None:
    samples = Samples(since=0.0, warm=7)
    for i in range(100):
        samples.add(i * 0.1, i * 0.1 + (i + 1) / 1000, "200")
    samples.add(5.0, 5.5, "429")
    samples.add(5.0, 6.0, "timeout")
    samples.add(-1.0, 6.0, "200")
    found = figures_of(samples)
    assert (found.requests, found.warmup, found.ends) == (102, 8, {"200": 100, "429": 1, "timeout": 1})
    assert found.seconds == pytest.approx(10.0)
    assert found.throughput == pytest.approx(10.2)
    assert found.goodput == pytest.approx(10.0)
    assert found.latency["p50"] == pytest.approx(0.051)
    assert found.latency["p99"] == pytest.approx(0.1)
    assert found.latency["max"] == pytest.approx(0.1)
    assert sum(count for *_, count in found.histogram) == 100
    assert all(low < high for low, high, _ in found.histogram)
    assert "100 ended in 200, 1 ended in 429, 1 ended in timeout" in "\n".join(found.lines())


@pytest.mark.parametrize("values", [[], [0.0], [0.001], [0.001] * 5, [1e-7, 100.0]])
def test_figures_of_few(values: list[float]) -> None:
    samples = Samples(since=0.0, kept=[Sample(0.0, value, "200") for value in values], until=1.0)
    found = figures_of(samples)
    assert sum(count for *_, count in found.histogram) == len(values)
    assert all(math.isfinite(value) for value in found.latency.values())
    assert list(found.lines())


def test_the_drawing_shows_all_that_is_there() -> None:
    histogram = [(0.001, 0.002, 1000), (0.002, 0.004, 1), (0.004, 0.008, 0), (1.0, 2.0, 500)]
    plain = list(drawing(histogram, blocks=False))
    assert [line.count("#") for line in plain] == [40, 1, 0, 20]
    assert all(line.isascii() for line in plain)
    blocks = list(drawing(histogram, blocks=True))
    assert [line.count("█") for line in blocks] == [40, 0, 0, 20]
    assert "▏" in blocks[1]
    assert blocks[3].split()[-1] == "500"


def test_requests_of_the_protocol_fit_the_model() -> None:
    inputs = [Tensor("x", "FP16", [-1, 4]), Tensor("flag", "BOOL", [2]), Tensor("text", "BYTES", [-1])]
    metadata = {
        "name": "m",
        "inputs": [{"name": t.name, "datatype": t.datatype, "shape": list(t.shape)} for t in inputs],
    }
    texts = some_texts(0)
    for binary in (True, False):
        posts = infer_posts(metadata, {"x": [3, 4]}, texts, binary=binary, seed=0)
        assert len({post.body for post in posts}) > 1  # the texts differ
        for post in posts[:3]:
            found = parsed(memoryview(post.body), post.headers.get(HEADER_LENGTH), inputs, [])
            assert [array.shape for array in found.arrays] == [(3, 4), (2,), (1,)]
            assert found.arrays[2][0].decode() in texts
    with pytest.raises(ValueError, match="cannot have shape \\[3\\]"):
        infer_posts(metadata, {"x": [3]}, texts, binary=False, seed=0)
    with pytest.raises(ValueError, match="no input 'z'; it takes x, flag, text"):
        infer_posts(metadata, {"z": [3]}, texts, binary=False, seed=0)


def test_embedding_requests() -> None:
    posts = embedding_posts("m", ["a", "b", "c"], 2)
    assert [json.loads(post.body)["input"] for post in posts] == [["a", "b"], ["b", "c"], ["c", "a"]]
    lengths = [len(text.split()) for text in some_texts(1, 500)]
    assert min(lengths) < 8 < 60 < max(lengths)


# -- the command -------------------------------------------------------------------------------------------------------


class Looks(LoopClock):
    """Time that passes by looking at it, 10 ms each time: a busy machine does not change how many requests are sent."""

    def __init__(self) -> None:
        self._looks = 0

    def time(self) -> float:
        self._looks += 1
        return self._looks * 0.01


@pytest.fixture(autouse=True)
def by_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LoopClock", Looks)


async def load(app: App, *arguments: str) -> int:
    """The exit code of the command against an app on a port."""
    pytest.importorskip("uvicorn", reason="for the extra serve")
    pytest.importorskip("starlette", reason="for the extra serve")
    from callboard.serve import listening

    async with asyncio.timeout(LIMIT), listening(app, port=0) as url:
        return await asyncio.to_thread(main, ["load", url, "--warmup", "0", "--seconds", "0.2", *arguments])


def small(double: Callable[[Any], Any] = lambda x: 2 * x, **options: Any) -> App:
    app = App(**options)
    app.add_model("double", double, inputs=[Tensor("x", "FP32", [-1])], outputs=[Tensor("y", "FP32", [-1])])
    return app


@pytest.mark.parametrize("how", [["--clients", "3"], ["--rate", "100"], ["--binary", "--shape", "x=5"]])
async def test_load_of_a_model(how: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    sizes = set()

    def double(x: Any) -> Any:
        sizes.add(len(x))
        return 2 * x

    assert await load(small(double), "--json", *how) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["ends"]) == {"200"}
    assert found["requests"] == found["ends"]["200"] > 0
    assert found["latency"]["p50"] <= found["latency"]["p99"] <= found["latency"]["max"]
    assert sizes == ({5} if "--shape" in how else {1})


async def test_a_load_that_is_mostly_refused_fails(capsys: pytest.CaptureFixture[str]) -> None:
    calls = itertools.count()

    def full(x: Any) -> Any:
        if next(calls):
            raise HttpError("full", 429)
        return x

    assert await load(small(full), "--json", "--clients", "3") == 1
    assert json.loads(capsys.readouterr().out)["ends"]["200"] == 1


async def test_load_of_embeddings_and_its_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts").write_text("one\n\ntwo words\n")
    (tmp_path / "token").write_text("secret\n")
    asked = set()

    def lengths(texts: list[str]) -> list[list[float]]:
        asked.update(texts)
        return [[len(text)] for text in texts]

    app = App(token="secret")
    app.add_embeddings("m", lengths)
    options = ["--embeddings", "--each", "2", "--texts", str(tmp_path / "texts")]
    assert await load(app, *options, "--token-file", str(tmp_path / "token")) == 0
    out = capsys.readouterr().out
    assert asked == {"one", "two words"}
    assert "ended in 200" in out
    assert "#" in out


async def test_a_deadline_is_the_servers(capsys: pytest.CaptureFixture[str]) -> None:
    async def never(x: Any) -> Any:
        await asyncio.Event().wait()

    assert await load(small(never), "--json", "--clients", "2", "--deadline", "0.01") == 1
    assert set(json.loads(capsys.readouterr().out)["ends"]) == {"504"}


async def test_requests_that_are_refused_are_told_by_status(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(x: Any) -> Any:
        raise ValueError("no")

    assert await load(small(refuse), "--json") == 1
    assert set(json.loads(capsys.readouterr().out)["ends"]) == {"500"}


async def test_headers_and_what_failed_requests_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    def tenant(headers: Any) -> str:
        if headers.get("x-tenant") != "acme":
            raise HttpError("no such\x1b[2J tenant\n", 403)
        return "acme"

    assert await load(small(tenant=tenant), "--clients", "1") == 1
    assert capsys.readouterr().out.splitlines()[-1] == 'first 403: {"error":"no such\\u001b[2J tenant\\n"}'
    assert await load(small(tenant=tenant), "--header", "X-Tenant: acme", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (set(found["ends"]), found["errors"]) == ({"200"}, {})


def test_what_a_server_says_cannot_move_the_cursor() -> None:
    assert command._line(b"no\x1b[2J\r\nroom\x00\xff" + b"." * 999).startswith("no\ufffd[2J room\ufffd\ufffd...")
    assert len(command._line(b"." * 9999)) == command.LONGEST
    assert command._line(b"") == "no text"


async def test_what_cannot_be_loaded_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    app = small()
    app.add_embeddings("m", lambda texts: [[1.0]])
    assert await load(app) == 2
    assert "the server has 2 models: name one with --model: double, m" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["http://127.0.0.1:1"], "the server at 127.0.0.1:1 cannot be reached: Connect call failed"),
        (["ftp://x"], "'ftp://x' is not a URL of a server"),
        (["http://x", "--clients", "0"], "not a number of at least 1"),
        (["http://x", "--rate", "0"], "must be above 0"),
        (["http://x", "--rate", "nan"], "not a number of at least 0"),
        (["http://x", "--shape", "x"], "is not a shape"),
        (["http://x", "--header", "x-tenant"], "is not a header; give NAME:VALUE"),
        (["http://x", "--header", "x: a\r\nb: c"], "is not a header"),
        (["http://x", "--header", "x:"], "is not a header"),
        (["http://x", "--header", "Content-Length:1"], "content-length is set by the requests themselves"),
    ],
)
def test_bad_arguments(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("h11", reason="for the extra serve")
    if len(arguments) > 1:
        with pytest.raises(SystemExit, match="2"):  # argparse's
            main(["load", *arguments])
    else:
        assert main(["load", *arguments]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "answer, end",
    [
        (b"", "ConnectionResetError"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", "ValueError"),
        (b"hello\r\n\r\n", "ValueError"),
        (None, "timeout"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab", "200"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", "200"),
    ],
)
async def test_servers_that_break_off(answer: bytes | None, end: str) -> None:
    pytest.importorskip("h11", reason="for the extra serve")
    from callboard.cli.load.bodies import Post
    from callboard.cli.load.command import _sent
    from callboard.cli.load.connections import Connections

    never = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await never.wait()
        writer.write(answer or b"")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connections = Connections(f"http://127.0.0.1:{port}", {}, timeout=0.2 if answer is None else LIMIT)
    try:
        assert await _sent(connections, Post("/", b"{}", {})) == end
    finally:
        await connections.close()
        never.set()
        server.close()
        await server.wait_closed()
