"""The parser and its commands."""

import argparse
import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence

import callboard
from callboard.device.configure import check_environment

__all__ = ["run"]

COMMANDS = {
    "demo": "demo.command:add_demo",
    "doctor": "doctor.command:add_doctor",
    "bench": "measuring.bench:add_bench",
    "serve": "serving.command:add_serve",
    "engine": "serving.engine:add_engine",
    "cutlass": "serving.prebuild:add_cutlass",
    "train": "training.command:add_train",
    "host": "serving.host:add_host",
    "load": "load.command:add_load",
    "ask": "ask.command:add_ask",
    "top": "top.command:add_top",
    "dashboard": "pages.dashboard:add_dashboard",
    "play": "pages.play:add_play",
    "trace": "measuring.tracing:add_trace",
    "api": "api.command:add_api",
    "new-library": "new_library:add_new_library",
}
"""Module and function that add each command to the parser."""


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "callboard",
        description="Accelerator libraries for Python services that survive lost contexts: demo, checks, measurements, "
        "training, and serving over HTTP.",
    )
    parser.add_argument("--version", action="version", version=f"callboard {callboard.__version__}")
    parser.set_defaults(run=lambda _: parser.print_help())
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for where in _wanted(arguments):
        module, _, function = where.partition(":")
        getattr(importlib.import_module(f"callboard.cli.{module}"), function)(commands)
    return parser


def _wanted(arguments: Sequence[str]) -> list[str]:
    """The command that is named, or all for the help and for errors; together they import a thousand modules."""
    first = arguments[0] if arguments else ""
    if first == "--version":
        return []
    return [COMMANDS[first]] if first in COMMANDS else list(COMMANDS.values())


def run(arguments: Sequence[str] | None) -> int:
    """Implement :func:`callboard.cli.main`."""
    if sys.stdout is None:  # closed by the caller, `callboard doctor >&-`
        return _failed("standard output is closed; redirect it to a file or to /dev/null")
    given = sys.argv[1:] if arguments is None else arguments
    parsed = _parser(given).parse_args(given)
    try:
        check_environment()
    except ValueError as e:
        return _failed(str(e))
    try:
        code: int = parsed.run(parsed) or 0
        sys.stdout.flush()  # a failure at the interpreter's exit could not be handled
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of the output has left (`callboard demo | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that flushing at exit does not fail again
        return 128 + signal.SIGPIPE
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EIO) or e.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return _failed(f"the output cannot be written: {e.strerror}")
    return code


def _failed(why: str) -> int:
    """Print the reason of a failure on one line and return the exit code."""
    if sys.stderr is not None:
        print(f"callboard: {why}", file=sys.stderr)
    return 2
