"""The life of an app on a port, until a signal or the end of a block. uvicorn speaks HTTP."""

import asyncio
import contextlib
import gc
import importlib
import logging
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from callboard.serve.app import App
from callboard.serve.errors import CannotListen
from callboard.serve.http.bounded import bounded
from callboard.serve.http.ending import Signals
from callboard.serve.http.starting import Tls

__all__ = ["run_inside", "run_until_signal"]

KEEP_ALIVE = 75
"""Seconds that an idle connection is kept."""
LAST_RESPONSES = 5.0
"""Seconds beyond ``drain_timeout`` in which the last responses can be sent."""
SOON = 0.5
"""Seconds for a step of an end that is not to wait."""

SWITCH_INTERVAL = 0.5e-3
"""Switch interval in seconds: a model's thread waits at most this long for the event loop's each time that it returns
from native code. Python's 5 ms exceed the duration of a batch."""
COLLECT_AFTER = 5000
"""Containers that are allocated before Python searches for cycles: requests in progress exceed its 700, and would be
promoted, so that the whole heap is searched every few thousand requests."""

_log = logging.getLogger("callboard.serve")


Beside = Callable[[], Awaitable[None]]


def run_until_signal(
    app: App, host: str, port: int, max_connections: int, tls: Tls | None, beside: Beside | None
) -> None:
    """Implement :func:`callboard.serve`."""
    with _own_process(), Signals() as signals, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        signals.loop = runner.get_loop()
        runner.run(_until_signal(app, host, port, max_connections, tls, beside, signals))


@contextlib.contextmanager
def _own_process() -> Iterator[None]:
    """Settings of an interpreter that only serves; they are restored at the end."""
    interval, (youngest, *older) = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(min(interval, SWITCH_INTERVAL))
    gc.set_threshold(max(youngest, COLLECT_AFTER) if youngest else 0, *older)  # 0: it is switched off
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(youngest, *older)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, if it is installed; else that of asyncio."""
    try:
        uvloop: Any = importlib.import_module("uvloop")
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _until_signal(
    app: App, host: str, port: int, max_connections: int, tls: Tls | None, beside: Beside | None, signals: Signals
) -> None:
    server = _server(app, host, port, max_connections, tls)
    await _run(app, server, signals, beside=beside)


@asynccontextmanager
async def run_inside(app: App, host: str, port: int, max_connections: int, tls: Tls | None) -> AsyncIterator[str]:
    """Implement :func:`callboard.serve.listening`."""
    server = _server(app, host, port, max_connections, tls)
    accepting, ending = asyncio.Event(), Signals()  # none is handled: the block's end sets it
    running = asyncio.create_task(_run(app, server, ending, accepting))
    try:
        await _first(running, accepting)
        if not running.done():
            yield server.url
    finally:
        ending.stop.set()
        await running


async def _run(
    app: App,
    server: "_Server",
    ending: Signals,
    accepting: asyncio.Event | None = None,
    beside: Beside | None = None,
) -> None:
    """Serve until ``ending.stop`` is set; the app's life is entered and left by this task."""
    http = asyncio.create_task(server.serve([server.listener]))
    try:
        await _first(http, server.up)
        async with _cancelled_if(ending) as entering, app.running():
            entering.cancel()
            _log.info("%s accepts requests at %s: %s", app.name, server.url, ", ".join(app.models) or "no models")
            if accepting is not None:
                accepting.set()
            async with _running(beside):
                await _first(http, ending.stop)
            _log.info("%s drains: %d requests are open", app.name, app.figures.open)
            ending.explain()
            server.stop()
            async with _shortened_by(ending.hurry, app, server):
                await app.drain()
                await http
    finally:
        server.stop()
        await http
    _log.info("%s has stopped", app.name)


@asynccontextmanager
async def _shortened_by(hurry: asyncio.Event, app: App, server: "_Server") -> AsyncIterator[None]:
    """Do not wait for requests and connections in the block once this is set."""

    async def shorten() -> None:
        await hurry.wait()
        _log.warning("%s does not wait: %d requests are open", app.name, app.figures.open)
        await asyncio.gather(app.stop(), server.cut())

    task = asyncio.create_task(shorten())
    try:
        yield
    finally:
        if not hurry.is_set():
            task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()


async def _first(task: "asyncio.Task[None]", event: asyncio.Event) -> None:
    """Wait until the event is set, or the task has ended."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


@asynccontextmanager
async def _running(beside: Beside | None) -> AsyncIterator[None]:
    """Run it during the block; its exceptions are logged, and end nothing else."""
    if beside is None:
        yield
        return
    task = asyncio.ensure_future(beside())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("what ran beside the app has failed", exc_info=error)


@asynccontextmanager
async def _cancelled_if(ending: Signals) -> AsyncIterator["asyncio.Task[None]"]:
    """Cancel the block when ``stop`` is set, unless the task that is given out was cancelled before."""
    task = asyncio.current_task()
    assert task is not None
    interrupted = False

    async def watch() -> None:
        nonlocal interrupted
        await ending.stop.wait()
        interrupted = True
        ending.explain()
        task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield watcher
    except asyncio.CancelledError:
        if not interrupted or task.uncancel() > 0:
            raise
    finally:
        watcher.cancel()


def _listener(host: str, port: int) -> socket.socket:
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setblocking(False)
    except OSError as e:
        if listener is not None:
            listener.close()
        raise CannotListen(e.errno, f"cannot listen on {host}:{port}: {e.strerror}") from e
    return listener


def _server(app: App, host: str, port: int, max_connections: int, tls: Tls | None) -> "_Server":
    """A server whose port is open.

    Raises:
        ValueError: ``port`` or ``max_connections`` is out of range.
        CannotListen: The port cannot be listened on, or a file of ``tls`` cannot be used.
    """
    if not 0 <= port < 1 << 16:  # the system would take the rest of a division
        raise ValueError(f"port must be from 0 to 65535, but is {port}")
    if max_connections < 1:
        raise ValueError(f"max_connections must be at least 1, but is {max_connections}")
    listener = _listener(host, port)
    try:
        return _Server(app, listener, max_connections, tls)
    except OSError as e:  # ssl.SSLError is one
        listener.close()
        files = "" if tls is None else ", ".join(map(str, filter(None, (tls.certificate, tls.key, tls.client_ca))))
        raise CannotListen(f"TLS with {files}, which must be PEM files that fit together: {e.strerror or e}") from e


def _tls_options(tls: Tls) -> dict[str, Any]:
    """The options of uvicorn."""
    options: dict[str, Any] = {
        "ssl_certfile": tls.certificate,
        "ssl_keyfile": tls.key,
        "ssl_keyfile_password": tls.password,
    }
    if tls.client_ca is not None:
        options |= {"ssl_ca_certs": str(tls.client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return options


class _Server(uvicorn.Server):
    """uvicorn's server without its logs, its lifespan and its way to end."""

    def __init__(self, app: App, listener: socket.socket, max_connections: int, tls: Tls | None) -> None:
        drain = app.limits.drain_timeout + LAST_RESPONSES
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                log_level=logging.WARNING,
                access_log=False,
                http=bounded(max_connections, app.limits.body_timeout, app.limits.send_timeout, app.figures),
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=round(drain),
                server_header=False,
                proxy_headers=False,  # nothing here asks for the client's address
                ws="none",
                **({} if tls is None else _tls_options(tls)),
            )
        )
        self.config.load()  # with its certificates, before anything waits for it
        self.listener = listener
        self.up = asyncio.Event()

    @property
    def url(self) -> str:
        """The URL of the listening socket."""
        host, port = self.listener.getsockname()[:2]
        scheme = "https" if self.config.is_ssl else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def stop(self) -> None:
        """Stop accepting connections and wait for the open ones."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    async def cut(self) -> None:
        """End requests that still run: with status 503, and their connection if the client takes no response."""
        for end in (_cancel_requests, _close_connections):
            if self.server_state.tasks:
                await asyncio.wait(set(self.server_state.tasks), timeout=SOON)
            end(self.server_state)
        self.force_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # they are handled for the app's whole life, and not only for that of the server


def _cancel_requests(state: ServerState) -> None:
    for task in state.tasks:
        task.cancel()


def _close_connections(state: ServerState) -> None:
    for connection in list(state.connections):
        transport: Any = connection.transport
        transport.abort()
