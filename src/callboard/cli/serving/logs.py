"""The log of ``callboard serve``: its format, its levels, and the access log."""

import argparse
import contextlib
import logging
import math
import os
import sys
import threading
from collections.abc import Callable
from types import TracebackType

from callboard.cli.serving.live import ClearingHandler
from callboard.serve.http.noted import ACCESS, log_slow
from callboard.telemetry.logs import VARIABLE, Concerning, JsonLog

__all__ = ["add_logs", "set_up_logs", "told"]

LEVELS = ("debug", "info", "warning", "error")
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_log = logging.getLogger("callboard.serve")


class _Labelled(logging.Filter):
    """Gives each record the field ``worker``."""

    def __init__(self, worker: int) -> None:
        super().__init__()
        self._worker = worker

    def filter(self, record: logging.LogRecord) -> bool:
        record.worker = self._worker
        return True


def _format() -> str:
    return "json" if os.environ.get(VARIABLE) == "json" else "text"


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (seconds := float(text)) < math.inf:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!a:.60} is not a number of seconds from 0")


def add_logs(parser: argparse.ArgumentParser) -> None:
    """Add the options to the parser."""
    parser.add_argument(
        "--log-format", choices=("text", "json"), default=_format(), help=f"default: {VARIABLE}, or text"
    )
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="default: %(default)s")
    parser.add_argument("--access-log", action="store_true", help="log each response")
    parser.add_argument(
        "--log-slow",
        type=_seconds,
        metavar="SECONDS",
        help="log each response that took at least so long, as a warning (texts that are streamed take long)",
    )
    parser.add_argument("--verbose", action="store_true", help="log refused requests too: --log-level debug")


def set_up_logs(given: argparse.Namespace, worker: int | None = None) -> None:
    """Write the log to stderr, as these options say. Other packages than callboard log at INFO and above only.

    Args:
        given: The options.
        worker: Number of this worker, for the records; None if there is one only.
    """
    level = logging.DEBUG if given.verbose else logging.getLevelName(given.log_level.upper())
    json = given.log_format == "json"
    handler = ClearingHandler(sys.stderr) if sys.stderr.isatty() and not json else logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonLog() if json else logging.Formatter(TEXT if worker is None else f"worker {worker} {TEXT}")
    )
    if json:
        handler.addFilter(Concerning())
        _record_uncaught()
    if worker is not None and json:
        handler.addFilter(_Labelled(worker))
    logging.basicConfig(level=max(level, logging.INFO), handlers=[handler])
    logging.getLogger("callboard").setLevel(level)
    if given.access_log:
        logging.getLogger(ACCESS).setLevel(logging.INFO)
    if given.log_slow is not None:
        log_slow(given.log_slow)


def told(given: argparse.Namespace) -> Callable[[int, str], object]:
    """Writes what the command itself has to say, with a level: as a line of text, or of JSON."""
    if given.log_format == "json":
        return _log.log
    return lambda level, line: print(f"callboard serve: {line}", file=sys.stderr, flush=True)


def _record_uncaught() -> None:
    """Let exceptions and warnings that Python would write to stderr be records, too."""

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        _log.critical("the command has failed: %s", kind.__name__, exc_info=(kind, error, trace))

    def in_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and args.exc_type is not SystemExit:
            name = "a thread" if args.thread is None else f"thread {args.thread.name!r}"
            failure = args.exc_type, args.exc_value, args.exc_traceback
            _log.error("%s has failed: %s", name, args.exc_type.__name__, exc_info=failure)

    def ignored(args: "sys.UnraisableHookArgs") -> None:
        if args.exc_value is not None:
            failure = args.exc_type, args.exc_value, args.exc_traceback
            _log.error("%s: %r", args.err_msg or "an exception was ignored in", args.object, exc_info=failure)

    sys.excepthook, threading.excepthook, sys.unraisablehook = uncaught, in_thread, ignored
    logging.captureWarnings(True)
