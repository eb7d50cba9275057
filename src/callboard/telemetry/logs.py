"""``JsonLog``, ``Concerning``: log records as lines of JSON, each with what it concerns."""

import logging
import os
import sys
import time
from typing import Any

import msgspec

from callboard.actors._runtime.current import CURRENT
from callboard.device.client.line.entries import request_key
from callboard.events.concerns import CONCERNS, REQUEST_ID, TRACE

__all__ = ["VARIABLE", "Concerning", "JsonLog", "complain", "log_by_environment"]

VARIABLE = "CALLBOARD_LOG"

log = logging.getLogger("callboard.telemetry")

USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes of every record; others are fields that were given to it."""


def _actor() -> str | None:
    cell = CURRENT.get()
    return None if cell is None else str(cell.path)


def _trace() -> str | None:
    parent = TRACE.get()
    return parent[3:35] if parent else None


CONCERNS.update(actor=_actor, request_id=REQUEST_ID.get, request_key=request_key.get, trace_id=_trace)


class Concerning(logging.Filter):
    """Gives each record ``request_id``, ``request_key``, ``trace_id`` and ``actor`` of the task that writes it.

    A field that a record has already is kept, and one that is not known is left out. Add it to a handler: a filter of a
    logger sees the records of that logger only.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields; every record passes."""
        known = vars(record)
        for name, read in CONCERNS.items():
            if name not in known and (value := read()) is not None:
                known[name] = value
        return True


class JsonLog(logging.Formatter):
    """A record as a line of JSON: time (UTC), level, logger, message, its own fields, and its traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in USUAL and name not in line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        try:
            return msgspec.json.encode(line, enc_hook=_other).decode()
        except Exception:  # a field that contains itself, or half of a surrogate pair
            plain = {name: str(value).encode(errors="replace").decode() for name, value in line.items()}
            return msgspec.json.encode(plain).decode()


def _other(value: Any) -> str:
    """The text of a value that JSON does not have; of a kind of ``str``, such as the key of a guarded run, itself."""
    return str(value) if isinstance(value, str) else repr(value)


def complain(text: str, *, exc_info: bool = False) -> None:
    """Log at level ERROR what a user has asked for and does not get, such as a file of events.

    Args:
        text: One line.
        exc_info: Log the traceback of the exception that is handled, too.
    """
    log.error("%s", text, exc_info=exc_info or None)


def log_by_environment() -> None:
    """Write the log as ``CALLBOARD_LOG`` says: ``json`` for lines of JSON on stderr.

    Handlers of the root logger that write to the terminal's streams get the format; without one, the root logger gets a
    handler, at level INFO. Calling it again changes nothing.

    Raises:
        ValueError: The variable says something else.
    """
    wanted = os.environ.get(VARIABLE, "").strip()
    if wanted in ("", "text"):
        return
    if wanted != "json":
        raise ValueError(f"{VARIABLE} is {wanted!r}; use 'json' or 'text'")
    root = logging.getLogger()
    if not root.handlers:
        logging.basicConfig(level=logging.INFO, handlers=[logging.StreamHandler(sys.stderr)])
    for handler in root.handlers:
        ours = type(handler) is logging.StreamHandler and handler.stream in (sys.stderr, sys.stdout)
        if ours and not isinstance(handler.formatter, JsonLog):
            handler.setFormatter(JsonLog())
            handler.addFilter(Concerning())
