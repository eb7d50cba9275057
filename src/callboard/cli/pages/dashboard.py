"""The command ``callboard dashboard``: the page of a running application, for browsers of this machine."""

import argparse
import asyncio
import secrets
import sys
from pathlib import Path

from callboard.cli.top.source import Source, found, one_of
from callboard.telemetry.dashboard.app import dashboard
from callboard.telemetry.dashboard.feed import Feed

__all__ = ["add_dashboard"]


def add_dashboard(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    page = commands.add_parser(
        "dashboard",
        help="a running application in the browser",
        description="Serves a page that shows a running application which is observed: cb.observe(system), or "
        "CALLBOARD_TELEMETRY=1. It is read only, and needs the token in the printed address.",
    )
    page.add_argument("pid", nargs="?", type=int, help="process; not needed if one application is observed")
    page.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    page.add_argument("--port", type=int, default=8090, help="port (default: 8090; 0: any free one)")
    page.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    try:
        paths = one_of(found(arguments.pid), "dashboard")
    except (OSError, LookupError) as e:
        return _failed(str(e))
    try:
        import uvicorn
    except ImportError:
        return _failed('uvicorn is missing: pip install "callboard[serve]"')
    token = secrets.token_urlsafe(24)
    try:
        asyncio.run(_serve(paths, arguments.host, arguments.port, token, uvicorn))
    except OSError as e:
        return _failed(str(e))
    return 0


async def _serve(paths: list[Path], host: str, port: int, token: str, uvicorn: "object") -> None:
    import socket

    listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    shown = f"[{host}]" if ":" in host else host
    source = await asyncio.to_thread(Source, *paths)
    try:
        feed = Feed(lambda: asyncio.to_thread(source.snapshot))
        app = dashboard(feed, token)
        print(f"http://{shown}:{listening.getsockname()[1]}/?token={token}", flush=True)
        settings = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)  # type: ignore[attr-defined]
        await uvicorn.Server(settings).serve(sockets=[listening])  # type: ignore[attr-defined]
    finally:
        source.close()


def _failed(text: str) -> int:
    print(f"callboard dashboard: {text}", file=sys.stderr)
    return 2
