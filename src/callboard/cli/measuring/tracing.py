"""``callboard trace -- python app.py``: run a program, write a trace file of it, and print its costliest ops."""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from callboard.telemetry.install import VARIABLE
from callboard.telemetry.profiling.costs import SO_FAR

__all__ = ["add_trace"]

FORWARDED = ("SIGTERM", "SIGHUP")
"""Signals that service managers and ``timeout`` send to this process alone: the program is to end in its way."""


def add_trace(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "trace",
        help="run a program and record what its ops take",
        description="Runs a program that uses callboard, measures all its ops, writes a trace file that "
        "https://ui.perfetto.dev opens (the file stays on your machine), and prints the ops that took most time. "
        "The exit code is the program's.",
    )
    parser.add_argument("-o", "--output", default="callboard.pftrace", metavar="FILE", help="trace file (%(default)s)")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- PROGRAM", help="such as: -- python app.py")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the program; its exit code."""
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        print("callboard trace: no program is given: callboard trace -- python app.py", file=sys.stderr)
        return 2
    output = Path(arguments.output).absolute()
    if "," in str(output) or not output.parent.is_dir():
        why = "its name has a comma" if "," in str(output) else f"there is no folder {output.parent}"
        print(f"callboard trace: {arguments.output} cannot be written: {why}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="callboard-") as folder:
        costs = Path(folder) / "costs"
        given = os.environ.get(VARIABLE, "")
        wanted = [*([given] if given not in ("", "0") else []), f"perfetto:{output}", f"costs:{costs}"]
        code = _run(command, {**os.environ, VARIABLE: ",".join(wanted)})
        table = costs.read_text() if costs.exists() else ""
    if not table:
        print("callboard trace: nothing was recorded: the program has started no callboard system", file=sys.stderr)
        return code or 1
    cut = "" if not table.startswith(SO_FAR) else "incomplete, as the program ended before its callboard system did; "
    print(f"\n{table}\n\n{arguments.output}: {cut}open it at https://ui.perfetto.dev", file=sys.stderr)
    return code


def _run(command: list[str], environment: dict[str, str]) -> int:
    came: list[int] = []  # before there was a program
    programs: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _: object) -> None:
        came.append(number)
        for program in programs:
            program.send_signal(number)

    with _handling(forward):
        try:
            program = subprocess.Popen(command, env=environment)
        except OSError as e:
            print(f"callboard trace: {command[0]} cannot be run: {e.strerror}", file=sys.stderr)
            return 127
        programs.append(program)
        for number in came:
            program.send_signal(number)
        while True:
            with contextlib.suppress(KeyboardInterrupt):  # which the program gets, too
                code = program.wait()
                return 128 - code if code < 0 else code


@contextlib.contextmanager
def _handling(handler: Callable[[int, object], None]) -> Iterator[None]:
    """Handle the signals that are to be forwarded, but not those that are ignored, as by ``nohup``."""
    numbers = [number for name in FORWARDED if (number := getattr(signal, name, None)) is not None]
    before = {each: signal.signal(each, handler) for each in numbers if signal.getsignal(each) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, found in before.items():
            signal.signal(number, found)
