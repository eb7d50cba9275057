"""The command ``callboard dashboard``: the page of a running application, for browsers of this machine."""

import argparse
import asyncio
import secrets
import sys
from pathlib import Path

from callboard.cli.top.source import Source, found
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
        paths = found(arguments.pid)
    except (OSError, AttributeError) as e:  # AttributeError: Windows
        return _failed(f"applications cannot be looked for: {e}")
    pids = sorted({int(path.name.partition("-")[0]) for path in paths})
    if not pids:
        whose = "no application of this user is" if arguments.pid is None else f"process {arguments.pid} is not"
        return _failed(f"{whose} observed; call cb.observe(system) in it, or start it with CALLBOARD_TELEMETRY=1")
    if len(pids) > 1:
        return _failed(
            f"several applications are observed; choose one: callboard dashboard {' | '.join(map(str, pids))}"
        )
    try:
        import uvicorn
    except ImportError:
        return _failed('uvicorn is missing: pip install "callboard[serve]"')
    token = secrets.token_urlsafe(24)
    try:
        asyncio.run(_serve(paths[0], arguments.host, arguments.port, token, uvicorn))
    except OSError as e:
        return _failed(str(e))
    return 0


async def _serve(path: Path, host: str, port: int, token: str, uvicorn: "object") -> None:
    import socket

    listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    shown = f"[{host}]" if ":" in host else host
    source = await asyncio.to_thread(Source, path)
    try:
        feed = Feed(lambda: asyncio.to_thread(source.snapshot))
        app = dashboard(feed, token)
        print(f"http://{shown}:{listening.getsockname()[1]}/?token={token}", flush=True)
        settings = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)  # type: ignore[attr-defined]
        await uvicorn.Server(settings).serve(sockets=[listening])  # type: ignore[attr-defined]
    finally:
        source.__exit__(None, None, None)


def _failed(text: str) -> int:
    print(f"callboard dashboard: {text}", file=sys.stderr)
    return 2
