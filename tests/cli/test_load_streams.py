"""``callboard load`` of streamed texts: the times of their parts, and how they end."""

import asyncio
import json
from typing import Any

import pytest

import callboard as cb
from callboard.cli import main
from callboard.cli.load.driver import Samples
from callboard.cli.load.figures import figures_of
from callboard.cli.load.streams import Stream
from callboard.serve import App

LIMIT = 20.0


def part(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


def stream_of(*parts: tuple[float, bytes]) -> Stream:
    now = 0.0
    stream = Stream(lambda: now)
    for now, data in parts:  # noqa: B007 -- the stream reads it
        stream.feed(data)
    return stream


def test_parts_are_timed_and_tokens_counted() -> None:
    usage = b'data: {"choices": [], "usage": {"completion_tokens": 5}}\n\ndata: [DONE]\n\n'
    first = stream_of((1.0, part("")), (2.0, part("a")[:9]), (3.0, part("a")[9:] + part("b")), (5.0, part("c") + usage))
    second = stream_of((4.0, b": a comment\n\n" + part("a")), (8.0, part("b") + b"data: [DONE]\n\n"))
    samples = Samples(since=0.0)
    for due, stream in ((1.0, first), (2.0, second)):
        samples.add(due, 10.0, (stream.end(200), stream))
    found = figures_of(samples)
    assert found.ends == {"200": 2}
    assert found.tokens == (5 + 2) / 9  # of 9 seconds
    assert (found.first_token["mean"], found.first_token["max"]) == (2.0, 2.0)
    assert (found.between_tokens["p50"], found.between_tokens["max"], found.between_tokens["mean"]) == (2.0, 4.0, 2.0)
    lines = list(found.lines())
    assert [line.split()[0] for line in lines[2:]] == ["tokens", "first", "between", "latency"]


@pytest.mark.parametrize(
    "data, end",
    [
        (part("a"), "unfinished stream"),
        (part("a") + b'data: {"error": {"message": "no"}}\n\n', "error in the stream"),
        (b"data: hello\n\n", "error in the stream"),
        (b"", "unfinished stream"),
    ],
)
def test_streams_that_do_not_end_well(data: bytes, end: str) -> None:
    stream = stream_of((0.0, data))
    samples = Samples(since=0.0)
    samples.add(0.0, 1.0, (stream.end(200), stream))
    found = figures_of(samples)
    assert (found.ends, found.first_token, found.latency, found.tokens) == ({end: 1}, {}, {}, 0.0)
    assert stream.end(429) == "429"


@pytest.mark.parametrize("kind", ["--chat", "--completions"])
async def test_the_command(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn", reason="for the extra serve")
    pytest.importorskip("starlette", reason="for the extra serve")
    from callboard.serve import listening

    def step(slots: list[Any]) -> list[Any]:
        return [cb.Last(97) if len(slot.parts) + 1 == slot.item.max_new_tokens else 97 for slot in slots]

    app = App()
    app.add_decoder(
        "writer",
        cb.ContinuousBatchingServer[cb.Decode, int](step, max_batch=4),
        encode=lambda text: list(text.encode()),
        decode=lambda tokens: bytes(tokens).decode(),
        chat=lambda messages: str(messages[0]["content"]),
    )
    options = ["--json", "--warmup", "0", "--seconds", "0.2", "--clients", "2", "--max-tokens", "5"]
    async with asyncio.timeout(LIMIT), listening(app, port=0) as url:
        assert await asyncio.to_thread(main, ["load", url, kind, *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["ends"]) == {"200"}
    assert found["tokens"] * found["seconds"] == pytest.approx(5 * found["requests"])
    assert found["first_token"]["p99"] <= found["latency"]["max"]
    assert set(found["between_tokens"]) == {"mean", "p50", "p90", "p99", "max"}
