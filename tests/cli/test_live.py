"""Output of ``callboard serve`` while it runs."""

import asyncio
import io
import logging
from typing import Any

import pytest

import callboard as cb
from callboard.cli.serving import live
from callboard.cli.serving.live import ClearingHandler, Watch, show
from callboard.serve import App, Tensor

INFER = "/v2/models/{model}/infer"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def respond(app: App, count: int, seconds: float = 0.01, status: int = 200, route: str = INFER) -> None:
    for _ in range(count):
        app.figures.responded(route, status, seconds)


def test_the_line_tells_of_the_last_moments() -> None:
    app = App()
    watch = Watch(app, window=2, interval=1.0)
    assert watch.line() == "0 requests · 0.0/s · 0 open"
    respond(app, 30)
    respond(app, 1000, route="/v2/health/ready")  # probes are not counted
    respond(app, 1000, route="/v1/models")
    line = watch.line()
    assert line.startswith("30 requests · 15.0/s · p50 ")
    p50 = float(line.split("p50 ")[1].split(" ms")[0])
    assert p50 == pytest.approx(10, rel=0.03)
    respond(app, 3, seconds=1.0, status=500, route="/v1/embeddings")
    app.figures.open = 7
    line = watch.line()
    assert line.startswith("33 requests · 11.0/s · 3 failed · ")
    assert line.endswith(" · 7 open")
    for _ in range(3):
        line = watch.line()
    assert line == "33 requests · 0.0/s · 7 open"


async def test_batches_and_losses() -> None:
    app = App()
    async with cb.device("cpu") as device:
        server = cb.DynamicBatchingServer(lambda items: items, max_batch=8, executor="loop")
        tensors = [Tensor("x", "FP32", [-1])]
        app.add_model("m", server, inputs=tensors, outputs=tensors, device=device)
        app.add_model("n", lambda x: x, inputs=tensors, outputs=tensors, device=device)
        async with app.running():
            watch = Watch(app, window=1, interval=1.0)
            await asyncio.gather(*(server.submit(i) for i in range(8)))
            assert "batches of 8.0" in watch.line()
            assert watch.line().endswith("losses survived: 0")


async def shown(app: App, stream: Any, condition: Any) -> None:
    task = asyncio.create_task(show(app, stream))
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 -- of another task
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_a_terminal_has_a_line_that_changes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 0.001)
    stream, app = Terminal(), App()
    respond(app, 5)
    await shown(app, stream, lambda: stream.getvalue().count("5 requests") >= 3)
    lines = stream.getvalue().split("\r\x1b[K")
    assert "\n" not in stream.getvalue()
    assert lines[-1] == ""


async def test_elsewhere_it_logs_while_there_are_requests(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(live, "LOGGED_EVERY", 0.001)
    caplog.set_level(logging.INFO, "callboard.serve")
    stream, app = io.StringIO(), App()
    rounds = 0

    def asked() -> bool:
        nonlocal rounds
        rounds += 1
        if rounds == 5:
            respond(app, 5)
        return bool(caplog.messages)

    await shown(app, stream, asked)
    assert stream.getvalue() == ""
    assert len(caplog.messages) == 1  # the moments without requests say nothing
    assert caplog.messages[0].startswith("5 requests · ")


def test_log_lines_take_the_line_away() -> None:
    stream = Terminal()
    handler = ClearingHandler(stream)
    handler.emit(logging.LogRecord("a", logging.INFO, "f", 1, "text", (), None))
    assert stream.getvalue() == "\r\x1b[Ktext\n"
