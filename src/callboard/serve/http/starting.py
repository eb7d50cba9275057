"""``serve`` and ``listening``: an app on a port."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from callboard.serve.app import App
from callboard.serve.errors import needs_extra

__all__ = ["LOOPBACK", "MAX_CONNECTIONS", "PORT", "Tls", "listening", "serve"]

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


def serve(
    app: App,
    *,
    host: str = LOOPBACK,
    port: int = PORT,
    max_connections: int = MAX_CONNECTIONS,
    tls: Tls | None = None,
    beside: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve the app until SIGTERM or SIGINT comes, then drain it and return.

    The port is open before the app's ``lifespan`` is entered, so that ``/v2/health/live`` answers while devices open.
    At a signal no connection is accepted any more, and the requests that were accepted are finished, within
    ``limits.drain_timeout`` seconds. With a SIGINT after that signal, requests that still run get 503 at once, and
    ``lifespan`` is left. One more ends the process at once.

    Args:
        app: App to serve; an app can be served once.
        host: The address to listen on. The default is reached from this machine only.
        port: 0 for any free one.
        max_connections: Connections at once; on those beyond, requests get 503.
        tls: Serve HTTPS.
        beside: An async function that runs from when the app accepts requests until it drains, and is cancelled then.

    Raises:
        BackendUnavailable: Starlette or uvicorn is not installed (extra ``serve``).
        ValueError: ``port`` or ``max_connections`` is out of range.
        OSError: The port cannot be opened; a file of ``tls`` cannot be read, or has the wrong content.
        Exception: Raised by ``lifespan``.
    """
    with needs_extra():
        from callboard.serve.http.listening import run_until_signal
    app.load()
    run_until_signal(app, host, port, max_connections, tls, beside)


@asynccontextmanager
async def listening(
    app: App,
    *,
    host: str = LOOPBACK,
    port: int = PORT,
    max_connections: int = MAX_CONNECTIONS,
    tls: Tls | None = None,
) -> AsyncIterator[str]:
    """Serve the app on this event loop, inside a block that is given its URL.

    The block is entered when the app accepts requests; at its end the app is drained. Signals are left alone.

    Args:
        app, host, port, max_connections, tls: See :func:`serve`.

    Raises:
        BackendUnavailable, ValueError, OSError, Exception: As for :func:`serve`.
    """
    with needs_extra():
        from callboard.serve.http.listening import run_inside
    app.load()
    async with run_inside(app, host, port, max_connections, tls) as url:
        yield url
