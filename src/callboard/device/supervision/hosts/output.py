"""Output and log records of a host, on their way to the logger ``callboard.host``."""

import logging
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TextIO

from callboard.core.backend.announcing import NOTICE
from callboard.device.supervision.hosts.stackdump import StackDump

__all__ = ["LOGGER", "HostLog", "LineSplitter", "OutputPipe"]

LOGGER = logging.getLogger("callboard.host")

LONGEST_LINE = 8192
LONGEST_STACK = 2000
"""Lines of one record at most."""
TAIL = 20
SETTLED = 0.2
"""Seconds without a further line after which a stack is whole."""

_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):|Exception in thread .*:|Exception ignored in.*"
    r"|During handling of the above exception.*|The above exception was the direct cause.*"
)


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

    A traceback, and faulthandler's stacks of all threads, are one record each, whose ``stack_info`` is the whole text.

    Where the application has no handler for them, stdout and stderr go to its own, so that what a resident actor prints
    is seen as if it ran in the application; log records are dropped then, as those of the application's libraries are.
    Records carry ``device`` and ``host`` (the label), ``host_pid`` and ``host_logger`` (``"stdout"``, ``"stderr"`` or
    the name in the host).

    Attributes:
        tail: The last lines of its stderr that belong to no dump and tell of no compilation.
        dump: Output of faulthandler in its stderr.
    """

    def __init__(self, label: str, pid: int) -> None:
        self._label = label
        self._pid = pid
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.dump = StackDump()
        self._stack: list[str] = []  # lines of a stack that may continue
        self._traceback = False  # its exception has not come yet
        self._seen, self._since = 0, 0.0  # lines of it, and when they were counted

    def record(self, logger: str, level: int, text: str, stack: str | None = None) -> None:
        if LOGGER.isEnabledFor(level):
            extra = {"device": self._label, "host": self._label, "host_pid": self._pid, "host_logger": logger}
            args = self._label, self._pid, logger, text
            record = LOGGER.makeRecord(
                LOGGER.name, level, __file__, 0, "[%s %d] %s: %s", args, None, None, extra, sinfo=stack
            )
            LOGGER.handle(record)

    def stdout(self, line: str) -> None:
        if _has_handler(LOGGER):
            self.record("stdout", logging.INFO, line)
        else:
            _print(line, sys.stdout)

    def stderr(self, line: str) -> None:
        rest = self.dump.take(line)
        if rest and not rest.startswith(NOTICE):
            self.tail.append(rest)
        if not _has_handler(LOGGER):
            _print(line, sys.stderr)
            return
        if rest == line and not self._continues(line):
            self.end()
            self.record("stderr", logging.WARNING, line)
            return
        if rest and rest != line:  # in front of a dump
            self.end()
            self.record("stderr", logging.WARNING, rest)
            line = line[len(rest) :].lstrip()
        self._stack.append(line)
        if len(self._stack) >= LONGEST_STACK:
            goes_on = self._traceback
            self.end()
            self._traceback = goes_on

    def _continues(self, line: str) -> bool:
        """True if a line that belongs to no dump is part of a traceback, or is empty between the parts of a stack."""
        if _TRACEBACK.fullmatch(line):
            self._traceback = True
            return True
        if self._traceback:
            self._traceback = line.startswith(" ")
            return True
        return not line and bool(self._stack)

    def settle(self, now: float) -> None:
        """Time has passed: record a stack that does not continue."""
        if len(self._stack) != self._seen:
            self._seen, self._since = len(self._stack), now
        elif self._stack and now - self._since >= SETTLED:
            self.end()

    def end(self) -> None:
        """Record a stack: no more of it will come."""
        lines, self._stack, self._traceback, self._seen = self._stack, [], False, 0
        text = "\n".join(lines).strip("\n")
        if text:
            fatal = lines[0].startswith("Fatal Python error")
            traceback = _TRACEBACK.fullmatch(lines[0]) is not None
            title = lines[0] if fatal else text.rpartition("\n")[2] if traceback else "the stacks of its threads"
            self.record("stderr", logging.WARNING, title, text)


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
