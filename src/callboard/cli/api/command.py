"""The command: writes ``api.py`` and ``api.pyi`` of a package of messages, or checks that they are up to date."""

import argparse
import importlib
import sys
from pathlib import Path

from callboard.cli.api.methods import api_sources

__all__ = ["add_api"]


def add_api(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "api",
        help="generate the typed methods of a library from its messages",
        description="Writes PACKAGE/api.py and, for type checkers, api.pyi: one method per message, with its fields as "
        "parameters.",
    )
    parser.add_argument(
        "packages", nargs="+", metavar="PACKAGE", help="package with messages, such as callboard.kernel.blas"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a file is out of date")
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    sys.path.insert(0, "")  # a plug-in under development need not be installed
    stale = 0
    for name in given.packages:
        folder = Path(next(iter(importlib.import_module(name).__path__)))
        for file, wanted in zip(("api.py", "api.pyi"), api_sources(name), strict=True):
            path = folder / file
            if path.exists() and path.read_text("utf-8") == wanted:
                continue
            if given.check:
                sys.stderr.write(f"{path} is out of date; run: callboard api {name}\n")
                stale += 1
            else:
                path.write_text(wanted, "utf-8")
                sys.stdout.write(f"{path}\n")
    return 1 if stale else 0
