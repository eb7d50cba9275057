"""Output and log records of a host, on their way to the logger ``callboard.host``."""

import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TextIO

from callboard.device.supervision.hosts.stackdump import StackDump

__all__ = ["LOGGER", "HostLog", "LineSplitter", "OutputPipe"]

LOGGER = logging.getLogger("callboard.host")
LOGGER.addHandler(logging.NullHandler())

LONGEST_LINE = 8192
TAIL = 20


class LineSplitter:
    """Takes bytes as they come and returns lines of text; a line without end is given in pieces."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[str]:
        *lines, rest = (self._rest + data).split(b"\n")
        while len(rest) >= LONGEST_LINE:
            lines.append(rest[:LONGEST_LINE])
            rest = rest[LONGEST_LINE:]
        self._rest = rest
        for line in lines:
            yield line.decode(errors="replace").rstrip()

    def end(self) -> Iterator[str]:
        """The last line, if it had no end."""
        rest, self._rest = self._rest, b""
        if rest:
            yield rest.decode(errors="replace").rstrip()


class HostLog:
    """The output of one host: stdout (INFO) and stderr (WARNING) line by line, log records with their own level.

    Where the application has no handler for them, stdout and stderr go to its own, so that what a resident actor prints
    is seen as if it ran in the application; log records are dropped then, as those of the application's libraries are.
    Records carry ``host`` (the label), ``host_pid`` and ``host_logger`` (``"stdout"``, ``"stderr"`` or the name in the
    host).

    Attributes:
        tail: The last lines of its stderr that belong to no dump.
        dump: Output of faulthandler in its stderr.
    """

    def __init__(self, label: str, pid: int) -> None:
        self._label = label
        self._pid = pid
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.dump = StackDump()

    def record(self, logger: str, level: int, text: str) -> None:
        if LOGGER.isEnabledFor(level):
            extra = {"host": self._label, "host_pid": self._pid, "host_logger": logger}
            LOGGER.log(level, "[%s %d] %s: %s", self._label, self._pid, logger, text, extra=extra)

    def stdout(self, line: str) -> None:
        if _has_handler(LOGGER):
            self.record("stdout", logging.INFO, line)
        else:
            _print(line, sys.stdout)

    def stderr(self, line: str) -> None:
        if rest := self.dump.take(line):
            self.tail.append(rest)
        if _has_handler(LOGGER):
            self.record("stderr", logging.WARNING, line)
        else:
            _print(line, sys.stderr)


def _has_handler(logger: logging.Logger) -> bool:
    """True if the application handles the records of this logger."""
    found: logging.Logger | None = logger
    while found is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in found.handlers):
            return True
        found = found.parent if found.propagate else None
    return False


def _print(line: str, stream: TextIO | None) -> None:
    with suppress(OSError, ValueError):  # closed, or its reader has gone: nothing depends on it
        print(line, file=stream, flush=True)


class OutputPipe:
    """The reading end of a host's stdout or stderr; does not block."""

    def __init__(self, descriptor: int, take: Callable[[str], None]) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._take = take
        self._lines = LineSplitter()

    def read(self) -> bool:
        """Forward available output, at most 64 KiB; False if there was none.

        Raises:
            EOFError: No more output will come.
        """
        try:
            data = os.read(self.descriptor, 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            raise EOFError
        for line in self._lines.feed(data):
            self._take(line)
        return True

    def end(self) -> None:
        """Pass on a last line that has no end."""
        for line in self._lines.end():
            self._take(line)
