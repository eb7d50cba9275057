"""The command ``callboard top``."""

import argparse
import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from callboard.cli.top.source import Source, found, one_of, process_of
from callboard.cli.top.tables import TABLES
from callboard.cli.top.view import View
from callboard.telemetry.sampling.snapshot import Snapshot

__all__ = ["add_top"]

PAUSE = 0.7
"""Seconds between the two snapshots that rates of ``--once`` are computed from."""


def add_top(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    top = commands.add_parser(
        "top",
        help="a live view of a running application",
        description="Shows devices, ops, servers, resident actors, actors and processes of a running application that "
        "is observed: cb.observe(system), or CALLBOARD_TELEMETRY=1. Applications of the same user only.",
    )
    top.add_argument("pid", nargs="?", type=int, help="process; not needed if one application is observed")
    top.add_argument("--once", action="store_true", help="print all tables once")
    top.add_argument("--json", action="store_true", help="with --once: print the snapshot as JSON")
    top.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="between two figures (default: 1)")
    top.set_defaults(run=_top)


def _top(arguments: argparse.Namespace) -> int:
    if not arguments.interval > 0:
        return _failed(f"--interval is {arguments.interval}; it is a number of seconds above 0")
    if arguments.json and not arguments.once:
        return _failed("--json prints one snapshot: callboard top --once --json")
    try:
        paths = found(arguments.pid)
        if arguments.once:
            return _once(paths, as_json=arguments.json)
        return _live(one_of(paths, "top"), arguments.interval)
    except BrokenPipeError:  # of `| head`, which has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, LookupError) as e:
        return _failed(str(e))


def _once(paths: list[Path], *, as_json: bool) -> int:
    code = 0
    for _, several in itertools.groupby(paths, process_of):
        try:
            with Source(*several) as source:
                before = None if as_json else source.snapshot()
                if before is not None:
                    time.sleep(PAUSE)
                now = source.snapshot()
        except OSError as e:  # the others can be shown all the same
            code = _failed(str(e))
            continue
        if as_json:
            sys.stdout.write(msgspec.json.encode(now).decode() + "\n")
        else:
            _print(now, before)
    sys.stdout.flush()
    return code


def _print(now: Snapshot, before: Snapshot | None) -> None:
    for number, table in enumerate(TABLES):
        view = View(table=number, selected=-1)
        rows = view.rows(now, before)
        if rows or not number:
            head, _, _, *lines = view.lines(now, before, 10_000, len(rows) + 6)
            print(*([head, ""] if not number else []), table.name, *lines[: len(rows) + 1], "", sep="\n")


def _live(paths: list[Path], interval: float) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _failed("this is no terminal; print the figures once: callboard top --once [--json]")
    try:
        from callboard.cli.top.screen import show
    except ImportError:
        return _failed("Python's curses is missing here; print the figures: callboard top --once")
    with Source(*paths) as source:
        show(source, interval)
    return 0


def _failed(text: Any) -> int:
    print(f"callboard top: {text}", file=sys.stderr)
    return 2
