"""The parser and its commands."""

import argparse
import importlib.metadata
import os
import signal
import sys
from collections.abc import Sequence

from callboard.cli.bench import add_bench
from callboard.cli.demo.command import add_demo
from callboard.cli.doctor.command import add_doctor

__all__ = ["run", "version"]


def version() -> str:
    """Version of the installed distribution; a source tree that is not installed has none."""
    try:
        return importlib.metadata.version("callboard")
    except importlib.metadata.PackageNotFoundError:
        return "(source tree, not installed)"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "callboard", description="Typed, supervised actors for accelerator libraries: demo, checks and measurements."
    )
    parser.add_argument("--version", action="version", version=f"callboard {version()}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add_demo(commands)
    add_doctor(commands)
    add_bench(commands)
    return parser


def run(arguments: Sequence[str] | None) -> int:
    """What :func:`callboard.cli.main` does."""
    parsed = _parser().parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()  # here, where its failure is looked after, and not by the interpreter at its end
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of our output has left (`callboard demo | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that flushing at exit does not fail again
        return 128 + signal.SIGPIPE
    return code
