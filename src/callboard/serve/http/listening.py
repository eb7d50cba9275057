"""The life of an app on a port, until a signal or the end of a block. uvicorn speaks HTTP."""

import asyncio
import contextlib
import gc
import importlib
import logging
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from callboard.serve.app import App
from callboard.serve.errors import CannotListen
from callboard.serve.http.bounded import Descriptors, bounded, raise_limit
from callboard.serve.http.ending import Signals
from callboard.serve.http.starting import Port, Tls

__all__ = ["run_inside", "run_until_signal"]

KEEP_ALIVE = 75
"""Seconds that an idle connection is kept."""
LAST_RESPONSES = 5.0
"""Seconds beyond ``drain_timeout`` in which the last responses can be sent."""
SOON = 0.5
"""Seconds for a step of an end that is not to wait."""
LAST_REQUESTS = 0.2
"""Seconds in which requests on open connections are still answered, when no new connection is accepted."""
TICK = 0.01
"""Seconds between the questions whether they have come."""
LAST_TASKS = 2.0
"""Seconds in which tasks that are cancelled at the end can end."""

SWITCH_INTERVAL = 0.5e-3
"""Switch interval in seconds: a model's thread waits at most this long for the event loop's each time that it returns
from native code. Python's 5 ms exceed the duration of a batch."""
COLLECT_AFTER = 5000
"""Containers that are allocated before Python searches for cycles: requests in progress exceed its 700, and would be
promoted, so that the whole heap is searched every few thousand requests."""

_log = logging.getLogger("callboard.serve")


Background = Callable[[], Awaitable[None]]


def run_until_signal(app: App, port: Port, background: Background | None, signals: Signals | None = None) -> None:
    """Implement :func:`callboard.serve`.

    Args:
        app, background: See there.
        port: Where to listen.
        signals: Handlers of signals that were entered before.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_own_process())
        raise_limit(port.max_connections)
        ending = signals or stack.enter_context(Signals())
        ending.loop = stack.enter_context(_own_loop(ending))
        ending.loop.run_until_complete(_until_signal(app, port, background, ending))


@contextlib.contextmanager
def _own_loop(ending: Signals) -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop. Its end has a bound, unlike that of ``asyncio.Runner``: a task may ignore its cancellation."""
    loop = (_loop_factory() or asyncio.new_event_loop)()
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        try:
            loop.run_until_complete(_end_tasks(SOON if ending.hurry.is_set() else LAST_TASKS))
        finally:
            asyncio.set_event_loop(None)
            loop.close()


async def _end_tasks(timeout: float) -> None:
    """Cancel all other tasks and end the asynchronous generators; those that have not ended in time are abandoned."""
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    ended, late = await asyncio.wait(tasks, timeout=timeout) if tasks else (set(), set())
    for task in ended:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s has failed at the end", _named(task), exc_info=error)
    for task in late:
        _log.warning("%s ignores that it is cancelled: it is abandoned", _named(task))
    await asyncio.wait({asyncio.ensure_future(loop.shutdown_asyncgens())}, timeout=timeout)


def _named(task: "asyncio.Task[Any]") -> str:
    return f"the task of {getattr(task.get_coro(), '__qualname__', task.get_name())}"


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


async def _until_signal(app: App, port: Port, background: Background | None, ending: Signals) -> None:
    await _run(app, _server(app, port), ending, background=background)


@asynccontextmanager
async def run_inside(app: App, port: Port) -> AsyncIterator[str]:
    """Implement :func:`callboard.serve.listening`."""
    server = _server(app, port)
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
    background: Background | None = None,
) -> None:
    """Serve until ``ending.stop`` is set; the app's life is entered and left by this task."""
    http = asyncio.create_task(server.serve([server.listener]))
    shortening: asyncio.Task[None] | None = None
    try:
        if not server.late:
            await server.listen(http)
        async with _cancelled_if(ending) as entering, app.running():
            entering.cancel()
            await server.listen(http)
            _log.info("%s accepts requests at %s: %s", app.name, server.url, ", ".join(app.models) or "no models")
            if app.dashboard:
                _log.info("dashboard: %s/dashboard/?token=%s", server.url, app.dashboard_token or "KEY")
            if accepting is not None:
                accepting.set()
            async with _running(background):
                await _first(http, ending.stop)
            _log.info("%s drains: %d requests are open", app.name, app.figures.open)
            ending.explain()
            app.leave()
            server.stop()
            shortening = asyncio.create_task(_shorten(ending.hurry, app, server))
            await _first_of(asyncio.create_task(_finish(app, server, http)), shortening)
    finally:
        server.stop()
        await http
        if shortening is not None:
            shortening.cancel()
    _log.info("%s has stopped", app.name)


async def _finish(app: App, server: "_Server", http: "asyncio.Task[None]") -> None:
    until = time.monotonic() + app.limits.drain_timeout
    await _first(http, server.left)
    await app.drain(max(0.0, until - time.monotonic()))
    await asyncio.shield(http)


async def _shorten(hurry: asyncio.Event, app: App, server: "_Server") -> None:
    """Do not wait for requests, connections and devices once this is set; return when they have had their time."""
    await hurry.wait()
    _log.warning("%s does not wait: %d requests are open", app.name, app.figures.open)
    stopping = asyncio.create_task(app.stop())
    await server.cut()
    await asyncio.wait({stopping}, timeout=SOON)  # functions that run on threads cannot be ended


async def _first_of(task: "asyncio.Task[None]", other: "asyncio.Task[None]") -> None:
    """Wait until one of them has ended; raises its exception. The first one is cancelled then."""
    try:
        done, _ = await asyncio.wait({task, other}, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        task.cancel()


async def _first(task: "asyncio.Task[None]", event: asyncio.Event) -> None:
    """Wait until the event is set, or the task has ended."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


@asynccontextmanager
async def _running(background: Background | None) -> AsyncIterator[None]:
    """Run it during the block; its exceptions are logged, and end nothing else."""
    if background is None:
        yield
        return
    task = asyncio.ensure_future(background())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=LAST_TASKS)
        if not task.done():
            _log.warning("what runs beside the app ignores that it is cancelled")
        elif not task.cancelled() and (error := task.exception()) is not None:
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


def _server(app: App, port: Port) -> "_Server":
    """A server whose port is open.

    Raises:
        CannotListen: The port cannot be listened on, or a file of ``tls`` cannot be used.
    """
    listener = port.open()
    try:
        return _Server(app, listener, port)
    except OSError as e:  # ssl.SSLError is one
        listener.close()
        tls = port.tls
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

    def __init__(self, app: App, listener: socket.socket, port: Port) -> None:
        self._descriptors = Descriptors(app.figures, listener.fileno())
        most = self._descriptors.bounded(port.max_connections)
        self._drain_timeout = app.limits.drain_timeout
        drain = self._drain_timeout + LAST_RESPONSES
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                log_level=logging.WARNING,
                access_log=False,
                http=bounded(most, app.limits.body_timeout, app.limits.send_timeout, app.figures),
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=round(drain),
                server_header=False,
                proxy_headers=False,  # nothing here asks for the client's address
                ws="none",
                root_path=port.root_path,
                **({} if port.tls is None else _tls_options(port.tls)),
            )
        )
        self.config.load()  # with its certificates, before anything waits for it
        self.listener = listener
        self.late = port.late
        self._uds = port.uds
        self._listens = asyncio.Event()
        self._up = asyncio.Event()
        self.left = asyncio.Event()
        """Set when no client can send another request."""

    @property
    def url(self) -> str:
        """The URL of the listening socket."""
        if self.listener.family.name == "AF_UNIX":
            return f"unix:{self.listener.getsockname()}"
        host, port = self.listener.getsockname()[:2]
        scheme = "https" if self.config.is_ssl else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def stop(self) -> None:
        """Stop accepting connections and wait for the open ones."""
        self.should_exit = True
        self._listens.set()

    async def listen(self, serving: "asyncio.Task[None]") -> None:
        """Accept connections, if that has not begun; ``serving`` is the task of this server."""
        self._listens.set()
        await _first(serving, self._up)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self._listens.wait()
        if self.should_exit:  # before it listened
            self.listener.close()
        else:
            await super().startup(sockets)
            self._up.set()

    async def on_tick(self, counter: int) -> bool:
        """Called ten times per second."""
        self._descriptors.look()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._uds is not None:
            self._uds.unlink(missing_ok=True)
        queued = self._accept_queued()
        for server in self.servers:
            server.close()
        self.listener.close()
        if queued:
            await asyncio.wait(queued, timeout=SOON)
        try:
            await self._take_last_requests()
        finally:
            self.left.set()
        await super().shutdown()

    def _accept_queued(self) -> set["asyncio.Task[None]"]:
        """Accept the connections that the kernel has made: with the listener they would be reset."""
        tasks: set[asyncio.Task[None]] = set()
        with contextlib.suppress(OSError):  # there are no more, or no descriptors
            while True:
                tasks.add(asyncio.create_task(self._accept(self.listener.accept()[0])))
        return tasks

    async def _accept(self, connection: socket.socket) -> None:
        loop, config = asyncio.get_running_loop(), self.config
        connection.setblocking(False)

        def protocol() -> asyncio.Protocol:
            made: Any = config.http_protocol_class  # as uvicorn does
            found: asyncio.Protocol = made(
                config=config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop
            )
            return found

        with contextlib.suppress(OSError):  # the client has left, or does not speak TLS
            await loop.connect_accepted_socket(protocol, connection, ssl=config.ssl)

    async def _take_last_requests(self) -> None:
        """Answer what clients send on open connections, then close those on which no request arrives."""
        connections: Any = self.server_state.connections
        await _while(lambda: bool(connections), LAST_REQUESTS)
        for connection in list(connections):
            connection.shutdown()
        await _while(lambda: any(each.arrives for each in connections), self._drain_timeout)

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


async def _while(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until it does not hold, this long at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while condition():  # noqa: ASYNC110 -- uvicorn has no events of its connections
                await asyncio.sleep(TICK)


def _cancel_requests(state: ServerState) -> None:
    for task in state.tasks:
        task.cancel()


def _close_connections(state: ServerState) -> None:
    for connection in list(state.connections):
        transport: Any = connection.transport
        transport.abort()
