"""The life of an app on a port, until a signal or the end of a block. uvicorn speaks HTTP."""

import asyncio
import contextlib
import gc
import importlib
import logging
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import uvicorn

from callboard.serve.app import App
from callboard.serve.errors import CannotListen
from callboard.serve.http.bounded import bounded
from callboard.serve.http.starting import Tls

__all__ = ["run_inside", "run_until_signal"]

KEEP_ALIVE = 75
"""Seconds that an idle connection is kept."""
LAST_RESPONSES = 5.0
"""Seconds beyond ``drain_timeout`` in which the last responses can be sent."""

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
    with _own_process(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_until_signal(app, host, port, max_connections, tls, beside))


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
    app: App, host: str, port: int, max_connections: int, tls: Tls | None, beside: Beside | None
) -> None:
    server = _server(app, host, port, max_connections, tls, signals=True)
    await _run(app, server, server.stopping, beside=beside)


@asynccontextmanager
async def run_inside(app: App, host: str, port: int, max_connections: int, tls: Tls | None) -> AsyncIterator[str]:
    """Implement :func:`callboard.serve.listening`."""
    server = _server(app, host, port, max_connections, tls, signals=False)
    accepting, over = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(_run(app, server, over, accepting))
    try:
        await _first(running, accepting)
        if not running.done():
            yield server.url
    finally:
        over.set()
        await running


async def _run(
    app: App,
    server: "_Server",
    over: asyncio.Event,
    accepting: asyncio.Event | None = None,
    beside: Beside | None = None,
) -> None:
    """Serve until ``over`` is set; the app's life is entered and left by this task."""
    http = asyncio.create_task(server.serve([server.listener]))
    try:
        await _first(http, server.up)
        async with _cancelled_if(over) as entering, app.running():
            entering.cancel()
            _log.info("%s accepts requests at %s: %s", app.name, server.url, ", ".join(app.models) or "no models")
            if accepting is not None:
                accepting.set()
            async with _running(beside):
                await _first(http, over)
            _log.info("%s drains: %d requests are open", app.name, app.figures.open)
            server.stop()
            await app.drain()
            await http
    finally:
        server.stop()
        await http
    _log.info("%s has stopped", app.name)


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
async def _cancelled_if(over: asyncio.Event) -> AsyncIterator["asyncio.Task[None]"]:
    """Cancel the block when the event is set, unless the task that is given out was cancelled before."""
    task = asyncio.current_task()
    assert task is not None
    interrupted = False

    async def watch() -> None:
        nonlocal interrupted
        await over.wait()
        interrupted = True
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


def _server(app: App, host: str, port: int, max_connections: int, tls: Tls | None, *, signals: bool) -> "_Server":
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
        return _Server(app, listener, max_connections, tls, signals=signals)
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

    def __init__(
        self, app: App, listener: socket.socket, max_connections: int, tls: Tls | None, *, signals: bool
    ) -> None:
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
        self.stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._signals = signals

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

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if self._signals:
            with super().capture_signals():
                yield
        else:
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn would note the signal and raise it again at the end; here the process ends as one that is done.
        if self.stopping.is_set() and sig == signal.SIGINT:
            self.force_exit = True
        self._loop.call_soon_threadsafe(self.stopping.set)
