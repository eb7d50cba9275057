"""``serve`` and ``listening``: an app on a port, or on a Unix socket."""

import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from callboard.serve.app import App
from callboard.serve.errors import CannotListen, needs_extra
from callboard.serve.http.ending import Signals

__all__ = ["LOOPBACK", "MAX_CONNECTIONS", "PORT", "Port", "Tls", "listening", "serve", "serve_until"]

LOOPBACK = "127.0.0.1"
PORT = 8000
MAX_CONNECTIONS = 1024


@dataclass(frozen=True)
class Tls:
    """HTTPS, as uvicorn does it.

    Attributes:
        certificate: File with the certificate and its chain, in PEM.
        key: File with its key; None if it is in the same file.
        password: Password of the key.
        client_ca: File with certificates of authorities: clients must then show a certificate of one of them.
    """

    certificate: Path
    key: Path | None = None
    password: str | None = None
    client_ca: Path | None = None


@dataclass(frozen=True)
class Port:
    """Where and how an app listens.

    Attributes:
        host, port, uds, root_path, max_connections, tls: See :func:`serve`.
        listener: A bound socket, in place of ``host``, ``port`` and ``uds``.
        late: Listen only when the app accepts requests, and not while it starts.

    Raises:
        ValueError: ``port``, ``max_connections`` or ``root_path`` is out of range.
    """

    host: str = LOOPBACK
    port: int = PORT
    max_connections: int = MAX_CONNECTIONS
    tls: Tls | None = None
    uds: Path | None = None
    root_path: str = ""
    listener: socket.socket | None = None
    late: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:  # the system would take the rest of a division
            raise ValueError(f"port must be from 0 to 65535, but is {self.port}")
        if self.max_connections < 1:
            raise ValueError(f"max_connections must be at least 1, but is {self.max_connections}")
        path = self.root_path
        if path and (not path.startswith("/") or path.endswith("/") or not path.isascii() or not path.isprintable()):
            raise ValueError(
                f"root_path must be empty, or ASCII such as /models with no slash at its end, but is {path!r}"
            )

    def open(self) -> socket.socket:
        """The bound socket.

        Raises:
            CannotListen: There can be none.
        """
        if self.listener is not None:
            return self.listener
        try:
            return _bound(self.host, self.port) if self.uds is None else _bound_uds(self.uds)
        except OSError as e:
            where = f"{self.host}:{self.port}" if self.uds is None else str(self.uds)
            raise CannotListen(e.errno, f"cannot listen on {where}: {e.strerror or e}") from e


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _bound_uds(path: Path) -> socket.socket:
    if not hasattr(socket, "AF_UNIX"):
        raise OSError(f"uds={path}: Python has no Unix sockets on {sys.platform}; give host and port")
    if path.is_socket() and not _is_served(path):
        path.unlink()  # of a server that was killed
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)
        with suppress(BlockingIOError):  # its queue is full
            return asking.connect_ex(str(path)) == 0
    return True


def serve(
    app: App,
    *,
    host: str = LOOPBACK,
    port: int = PORT,
    max_connections: int = MAX_CONNECTIONS,
    tls: Tls | None = None,
    uds: Path | None = None,
    root_path: str = "",
    background: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve the app until SIGTERM or SIGINT comes, then drain it and return.

    The port is open before the app's ``lifespan`` is entered, so that ``/v2/health/live`` answers while devices open.
    At a signal the app is not ready any more, and soon no connection is accepted. Requests that come on open ones in
    this moment are still answered, and the requests that were accepted are finished, within ``limits.drain_timeout``
    seconds. With a SIGINT after that signal, requests that still run get 503 at once, and ``lifespan`` is left. One
    more ends the process at once.

    Args:
        app: App to serve; an app can be served once.
        host: The address to listen on. The default is reached from this machine only.
        port: 0 for any free one.
        max_connections: Connections at once; on those beyond, requests get 503.
        tls: Serve HTTPS.
        uds: Path of a Unix socket to listen on, in place of ``host`` and ``port``. The umask determines who may
            connect.
        root_path: Path under which a proxy has the app, and which it takes off, such as ``/models``.
        background: An async function that runs from when the app accepts requests until it drains; it is cancelled
            then.

    Raises:
        BackendUnavailable: Starlette or uvicorn is not installed (extra ``serve``).
        ValueError: ``port``, ``max_connections`` or ``root_path`` is out of range.
        OSError: The port cannot be opened; a file of ``tls`` cannot be read, or has the wrong content.
        Exception: Raised by ``lifespan``.
    """
    serve_until(app, Port(host, port, max_connections, tls, uds, root_path), background)


def serve_until(
    app: App, port: Port, background: Callable[[], Awaitable[None]] | None, signals: Signals | None = None
) -> None:
    """As :func:`serve`, until one of these signals."""
    with needs_extra():
        from callboard.serve.http.listening import run_until_signal
    app.load()
    run_until_signal(app, port, background, signals)


@asynccontextmanager
async def listening(
    app: App,
    *,
    host: str = LOOPBACK,
    port: int = PORT,
    max_connections: int = MAX_CONNECTIONS,
    tls: Tls | None = None,
    uds: Path | None = None,
    root_path: str = "",
) -> AsyncIterator[str]:
    """Serve the app on this event loop, inside a block that is given its URL.

    The block is entered when the app accepts requests; at its end the app is drained. Signals are left alone.

    Args:
        app, host, port, max_connections, tls, uds, root_path: See :func:`serve`. The URL of a Unix socket is
            ``unix:`` and its path.

    Raises:
        BackendUnavailable, ValueError, OSError, Exception: As for :func:`serve`.
    """
    with needs_extra():
        from callboard.serve.http.listening import run_inside
    app.load()
    async with run_inside(app, Port(host, port, max_connections, tls, uds, root_path)) as url:
        yield url
