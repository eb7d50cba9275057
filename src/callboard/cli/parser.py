"""The parser and its commands."""

import argparse
import errno
import os
import signal
import sys
from collections.abc import Sequence

import callboard
from callboard.cli.api.command import add_api
from callboard.cli.ask.command import add_ask
from callboard.cli.demo.command import add_demo
from callboard.cli.doctor.command import add_doctor
from callboard.cli.load.command import add_load
from callboard.cli.measuring.bench import add_bench
from callboard.cli.measuring.tracing import add_trace
from callboard.cli.new_library import add_new_library
from callboard.cli.pages.dashboard import add_dashboard
from callboard.cli.pages.play import add_play
from callboard.cli.serving.command import add_serve
from callboard.cli.serving.host import add_host
from callboard.cli.top.command import add_top
from callboard.cli.training.command import add_train
from callboard.device.configure import check_environment

__all__ = ["run"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "callboard",
        description="Accelerator libraries for Python services that survive lost contexts: demo, checks, measurements, "
        "training, and serving over HTTP.",
    )
    parser.add_argument("--version", action="version", version=f"callboard {callboard.__version__}")
    parser.set_defaults(run=lambda _: parser.print_help())
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    add_demo(commands)
    add_doctor(commands)
    add_bench(commands)
    add_serve(commands)
    add_train(commands)
    add_host(commands)
    add_load(commands)
    add_ask(commands)
    add_top(commands)
    add_dashboard(commands)
    add_play(commands)
    add_trace(commands)
    add_api(commands)
    add_new_library(commands)
    return parser


def run(arguments: Sequence[str] | None) -> int:
    """Implement :func:`callboard.cli.main`."""
    if sys.stdout is None:  # closed by the caller, `callboard doctor >&-`
        return _failed("standard output is closed; redirect it to a file or to /dev/null")
    parsed = _parser().parse_args(arguments)
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
