"""A client that leaves cancels its request; an app that ends finishes what it accepted."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from serve_lab import TIMEOUT, Held, X, Y, request_of, until

import callboard as cb
from callboard.serve import App, EdgeLimits, listening
from callboard.serve.http import bounded
from callboard.serve.http import listening as listening_module
from callboard.serve.http.ending import Signals
from callboard.serve.http.listening import _own_loop, _run, _running, _server
from callboard.serve.http.starting import Port

INFER = "/v2/models/double/infer"


def app_of(model: Any, **options: Any) -> App:
    app = App("leaving", **options)
    app.add_model("double", model, inputs=X, outputs=Y)
    return app


async def until_responded(app: App, status: int) -> None:
    """Wait for a response of this status, which may have no reader."""
    await until(lambda: any(key[1] == status for key in app.figures.responses))


async def test_a_client_that_leaves_cancels_a_call_that_runs() -> None:
    held = Held()
    app = app_of(held)
    async with listening(app, port=0) as url, httpx.AsyncClient(base_url=url) as http, asyncio.timeout(TIMEOUT):
        asking = asyncio.create_task(http.post(INFER, json=request_of([1])))
        await held.begun.get()
        asking.cancel()
        assert await held.ended.get() == "cancelled"
        await until_responded(app, 499)
    assert app.models["double"].stats().cancelled == 1


async def test_a_client_that_leaves_gives_its_place_in_the_queue_back() -> None:
    held = Held()
    app = App()
    server = cb.DynamicBatchingServer(lambda items: held_batch(held, items), max_batch=1, max_queue=1, executor="loop")
    app.add_model("double", server, inputs=X, outputs=Y)
    async with listening(app, port=0) as url, httpx.AsyncClient(base_url=url) as http, asyncio.timeout(TIMEOUT):
        first = asyncio.create_task(http.post(INFER, json=request_of([1])))
        await held.begun.get()
        second = asyncio.create_task(http.post(INFER, json=request_of([1, 1])))
        await until(lambda: server.stats().queued)
        second.cancel()
        await until_responded(app, 499)
        assert server.stats().queued == 0
        third = asyncio.create_task(http.post(INFER, json=request_of([1, 1, 1])))
        await until(lambda: server.stats().queued)
        held.go.set()
        assert [(await each).status_code for each in (first, third)] == [200, 200]
    stats = server.stats()
    assert (stats.completed, stats.cancelled, stats.submitted) == (2, 1, 3)


async def held_batch(held: Held, items: list[Any]) -> list[Any]:
    return [await held(item) for item in items]


async def test_a_client_that_leaves_in_the_middle_of_its_body() -> None:
    app = app_of(lambda x: x)
    async with listening(app, port=0) as url:
        host, port = url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc".encode())
        await writer.drain()
        await until(lambda: app.figures.open)
        writer.close()
        await until_responded(app, 499)
    assert app.models["double"].stats().submitted == 0


async def test_the_end_waits_for_what_was_accepted() -> None:
    held = Held()
    app = app_of(held)
    async with httpx.AsyncClient() as http, asyncio.timeout(TIMEOUT):
        async with listening(app, port=0) as url:
            asking = asyncio.create_task(http.post(url + INFER, json=request_of([1])))
            await held.begun.get()
            letting = asyncio.create_task(let_go_when_draining(app, held))
        await letting
        assert (await asking).status_code == 200
        assert await held.ended.get() == "done"
        with pytest.raises(httpx.ConnectError):
            await http.get(url)


async def let_go_when_draining(app: App, held: Held) -> None:
    await until(lambda: not app.accepting)
    held.go.set()


async def test_what_is_not_done_in_time_ends_in_503() -> None:
    held = Held()
    app = app_of(held, limits=EdgeLimits(drain_timeout=0.01))
    async with httpx.AsyncClient() as http, asyncio.timeout(TIMEOUT):
        async with listening(app, port=0) as url:
            asking = asyncio.create_task(http.post(url + INFER, json=request_of([1])))
            await held.begun.get()
        found = await asking
    assert found.status_code == 503
    assert found.json()["error"].startswith("leaving is draining; request ")
    assert await held.ended.get() == "cancelled"


async def test_an_end_in_haste_ends_all_that_is_open() -> None:
    """What runs, what has not arrived wholly, and a response that its client does not take."""
    app = App(limits=EdgeLimits(drain_timeout=3600))
    held = Held()
    app.add_model("double", held, inputs=X, outputs=Y)
    app.add_model("much", lambda x: x.repeat(1 << 23), inputs=X, outputs=Y)
    ending = Signals()
    async with httpx.AsyncClient() as http, asyncio.timeout(TIMEOUT):
        server = _server(app, Port(port=0))
        accepting = asyncio.Event()
        running = asyncio.create_task(_run(app, server, ending, accepting))
        await accepting.wait()
        address = server.listener.getsockname()
        asking = asyncio.create_task(http.post(server.url + INFER, json=request_of([1])))
        await held.begun.get()
        part_reader, part = await asyncio.open_connection(*address)
        part.write(f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc".encode())
        body = json.dumps(request_of([1], parameters={"binary_data_output": True})).encode()
        _, idle = await asyncio.open_connection(*address, limit=1)
        idle.write(
            f"POST /v2/models/much/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        await until(lambda: app.models["much"].stats().completed and app.figures.open >= 2)
        ending.stop.set()
        await until(lambda: app.draining)
        ending.hurry.set()
        assert (await asking).status_code == 503
        assert (await part_reader.readline()).split()[1] == b"503"
        await running
        for writer in (part, idle):
            writer.close()


async def test_the_port_is_open_while_the_app_starts() -> None:
    statuses: list[int] = []
    order: list[str] = []

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        app.add_model("double", lambda x: 2 * x, inputs=X, outputs=Y)
        async with httpx.AsyncClient() as http:
            paths = ("/v2/health/live", "/v2/health/ready", "/v2/models/double/ready")
            statuses.extend([(await http.get(address[0] + path)).status_code for path in paths])
            statuses.append((await http.post(address[0] + INFER, json=request_of([1]))).status_code)
        task = asyncio.current_task()
        order.append("opened")
        yield
        assert asyncio.current_task() is task  # so that task groups and timeouts may span it
        order.append("closed")

    address: list[str] = []
    app = App(lifespan=lifespan)
    with reserved_port() as port:
        address.append(f"http://127.0.0.1:{port}")
        async with listening(app, port=port) as url:
            assert url == address[0]
            async with httpx.AsyncClient() as http:
                assert (await http.get(url + "/v2/health/ready")).status_code == 200
            order.append("asked")
    assert statuses == [200, 503, 503, 503]
    assert order == ["opened", "asked", "closed"]


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port that is bound here, so that it is given to no other program; a program that names it can still listen."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


async def test_another_server_enters_the_life_of_the_app() -> None:
    """By the lifespan protocol of ASGI."""
    held = Held()
    app = app_of(held)
    say: asyncio.Queue[str] = asyncio.Queue()
    said: asyncio.Queue[Any] = asyncio.Queue()

    async def receive() -> Any:
        return {"type": await say.get()}

    async with asyncio.timeout(TIMEOUT):
        life = asyncio.create_task(app({"type": "lifespan", "state": {}}, receive, said.put))
        say.put_nowait("lifespan.startup")
        assert await said.get() == {"type": "lifespan.startup.complete"}
        assert app.accepting
        say.put_nowait("lifespan.shutdown")
        assert await said.get() == {"type": "lifespan.shutdown.complete"}
        await life
    assert not app.accepting


async def test_a_lifespan_that_fails_is_the_callers_error() -> None:
    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        raise KeyError("no weights")
        yield

    with pytest.raises(KeyError, match="no weights"):
        async with listening(App(lifespan=lifespan), port=0):
            raise AssertionError


async def test_a_block_that_fails_ends_the_app() -> None:
    app = app_of(lambda x: x)
    with pytest.raises(KeyError):
        async with listening(app, port=0):
            raise KeyError
    assert not app.accepting


async def test_a_port_that_is_taken() -> None:
    async with listening(app_of(lambda x: x), port=0) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(OSError, match=rf"cannot listen on 127.0.0.1:{port}"):
            async with listening(app_of(lambda x: x), port=port):
                raise AssertionError


@pytest.mark.parametrize(
    "options, says",
    [
        ({"port": 65_536 + 80}, "port must be from 0 to 65535, but is 65616"),
        ({"port": -1}, "port must be"),
        ({"port": 0, "max_connections": 0}, "max_connections must be at least 1, but is 0"),
    ],
)
async def test_numbers_out_of_range(options: dict[str, int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        async with listening(app_of(lambda x: x), **options):
            raise AssertionError


async def test_a_host_that_is_not_known() -> None:
    with pytest.raises(OSError, match="cannot listen on no such host:0: "):
        async with listening(app_of(lambda x: x), host="no such host", port=0):
            raise AssertionError


async def test_connections_beyond_the_bound_are_refused_and_the_others_go_on() -> None:
    app = app_of(lambda x: x)
    async with listening(app, port=0, max_connections=2) as url, contextlib.AsyncExitStack() as stack:
        one, two, three = [await stack.enter_async_context(httpx.AsyncClient(base_url=url)) for _ in range(3)]
        for _ in range(2):
            statuses = [(await http.get("/v2/health/live")).status_code for http in (one, two, three)]
            assert statuses == [200, 200, 503]
        await two.aclose()
        await until_status(three, 200)
        assert (await one.get("/v2/health/live")).status_code == 200


async def until_status(http: httpx.AsyncClient, status: int) -> None:
    async with asyncio.timeout(TIMEOUT):
        while (await http.get("/v2/health/live")).status_code != status:
            pass


async def test_a_refused_connection_that_asks_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "REFUSED_FOR", 0.01)
    async with listening(app_of(lambda x: x), port=0, max_connections=1) as url, asyncio.timeout(TIMEOUT):
        async with httpx.AsyncClient(base_url=url) as one:
            assert (await one.get("/v2/health/live")).status_code == 200
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            assert await reader.read() == b""
            writer.close()
            assert (await one.get("/v2/health/live")).status_code == 200


async def swallow() -> None:
    """Ignore each cancellation."""
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()


def test_a_task_that_ignores_its_cancellation_is_abandoned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening_module, "LAST_TASKS", 0.01)
    monkeypatch.setattr(listening_module, "_loop_factory", lambda: None)  # uvloop keeps a pipe for the whole process
    cleaned: list[bool] = []

    async def clean() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned.append(True)

    async def begin() -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(each()) for each in (swallow, clean)]
        async with _running(swallow):
            await asyncio.sleep(0)
        return tasks

    with _own_loop(Signals()) as loop:
        tasks = loop.run_until_complete(begin())
    assert loop.is_closed()
    assert cleaned == [True]
    assert [task.done() for task in tasks] == [False, True]
    assert "beside the app ignores that it is cancelled" in caplog.text
    assert caplog.text.count("the task of swallow ignores that it is cancelled: it is abandoned") == 2


SWALLOWS = """
import asyncio, logging, sys
from callboard.serve import App, Tensor, serve

async def swallow(x):
    print("begun", flush=True)
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass

app = App("swallows")
app.add_model("double", swallow, inputs=[Tensor("x", "FP32", [-1])], outputs=[Tensor("y", "FP32", [-1])])

async def tell():
    print(sys.argv[1], flush=True)

logging.basicConfig()
serve(app, port=int(sys.argv[1]), background=tell)
print("ended", flush=True)
"""


@pytest.mark.fault
async def test_two_interrupts_end_a_process_whose_model_ignores_its_cancellation() -> None:
    with reserved_port() as port:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SWALLOWS, str(port)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            async with httpx.AsyncClient() as http, asyncio.timeout(TIMEOUT):
                assert child.stdout is not None
                assert child.stderr is not None
                assert await child.stdout.readline() == f"{port}\n".encode()
                asking = asyncio.create_task(http.post(f"http://127.0.0.1:{port}{INFER}", json=request_of([1])))
                assert await child.stdout.readline() == b"begun\n"
                child.send_signal(signal.SIGINT)
                await child.stderr.readuntil(b"press Ctrl-C again")
                child.send_signal(signal.SIGINT)
                assert (await asking).status_code == 503
                said, _ = await child.communicate()
                assert (said, child.returncode) == (b"ended\n", 0)
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()


def test_signals_that_last_are_obeyed_until_the_process_ends() -> None:
    """A second SIGTERM, while the interpreter exits, does not change the exit code."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for lasting, again in ((False, False), (True, True)):
            with Signals(lasting=lasting) as signals:
                assert signal.getsignal(signal.SIGTERM) == signals._handle
            assert {number: signal.getsignal(number) for number in before} == before  # no signal came
            with Signals(lasting=lasting) as signals:
                os.kill(os.getpid(), signal.SIGTERM)
                assert signals.stop.is_set()
            assert (signal.getsignal(signal.SIGTERM) == signals._handle) is again
            if again:
                os.kill(os.getpid(), signal.SIGTERM)  # nothing happens
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
