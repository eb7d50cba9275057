"""The dump that faulthandler writes to a host's stderr when the process crashes, or on request.

A dump has a section per Python thread, newest thread first, so the section of the crashed thread may come late.
faulthandler shows at most 100 threads, and 100 frames of each. Before Python 3.14 it prints the ids of threads, not
their names. No section is marked as the current thread's if the crashed thread is unknown to Python, such as one of a
native library.
"""

import os
import re
import sysconfig
from pathlib import Path

__all__ = ["MOST", "StackDump"]

MOST = 64 << 10
"""Bytes of a dump that are kept, besides a line which notes that more was omitted."""

RESERVED = 16 << 10
"""Bytes of :data:`MOST` that only the section of the current thread may use, because it may come last."""

FRAMES = 100
"""Frames of a thread that are searched for user code: as many as faulthandler writes."""

MOST_PLACES = 3
"""Threads that are named as those where a process was."""

THREADS = 100
"""Threads whose frames are kept: as many as faulthandler writes."""

Frame = tuple[str, str, str]
"""File, line and function."""

SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
"""The signal that kills the process, by the text of a dump. All other fatal errors of Python end in abort()."""

_FATAL = re.compile(r"Fatal Python error: (.+)")
_CURRENT = re.compile(r"(?:Current thread (?P<id>0x[0-9a-f]+)(?: \[(?P<name>.*)\])?|Stack) \(most recent call first\):")
_OTHER = re.compile(
    r"Thread (?P<id>0x[0-9a-f]+)(?: \[(?P<name>.*)\])? \(most recent call first\):|Current thread's C stack trace .*"
    r"|Extension modules: .*"
)
_FRAME = re.compile(r'  File (?:"(?P<file>.*)"|\?\?\?), line (?P<line>\d+|\?\?\?) in (?P<name>.+)')
_REST = re.compile(
    r"  Garbage-collecting|  <.*>|<Cannot show all threads .*>|(?:  )?\.\.\.|  Binary file .*"
    r"|Python runtime state: .*"
)
_LIBRARIES = tuple(
    os.path.join(folder, "")
    for folder in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(__file__).parents[3]),  # callboard
    }
)
_CALL = os.path.join("callboard", "device", "host", "residents", "thread", "thread.py"), "outcome"
"""The function of callboard that runs a method of a resident actor."""
_ACTOR = _CALL[0], "_run"
"""The function of an actor's thread."""
_STREAM = os.path.join("callboard", "core", "backend", "workers.py"), "_work"
"""The function of a stream's thread."""
_PAUSE = os.path.join("callboard", "actors", "loops", "bell.py"), "wait"
"""What a stream's thread without work calls."""
_IDLE = (
    (os.path.join("callboard", "device", "host", "socketchannel.py"), "_wait"),
    (os.path.join("callboard", "device", "host", "helm.py"), "wait"),
)
"""What a serving thread without work calls."""
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class StackDump:
    """Recognises the lines of a dump among other lines, and keeps the last dump.

    Attributes:
        fatal: The failure that the dump reports, such as ``"Segmentation fault"``; empty for stacks that were
            requested.
    """

    __slots__ = ("_current", "_cut", "_frames", "_inside", "_lines", "_open", "_section", "_size", "_threads", "fatal")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Discard the kept lines: another dump is expected."""
        self.fatal = ""
        self._lines: list[str] = []
        self._size = 0
        self._frames: list[Frame] = []  # of the thread whose section this is
        self._current: tuple[str, list[Frame]] = "", []  # name and frames
        self._threads: list[tuple[str, list[Frame]]] = []  # of all threads
        self._inside = False  # a dump has begun
        self._section = False  # the current thread's
        self._open = False  # the list of extension modules continues on the next line
        self._cut = False  # some lines were not kept

    def take(self, line: str) -> str:
        """Keep lines that belong to a dump.

        Args:
            line: Without its end.

        Returns:
            The part of the line outside a dump: all of it, nothing, or output that a program wrote before the dump
            without ending its line (a progress bar).
        """
        if fatal := _FATAL.search(line):
            self.clear()
            self.fatal = fatal[1]
            self._inside = True
            self._keep(fatal[0])
            return line[: fatal.start()].rstrip()
        return "" if self._takes(line) else line

    def _takes(self, line: str) -> bool:
        if self._open:
            self._open = not line.endswith(")")
            self._keep(line)
            return True
        if current := _CURRENT.fullmatch(line):
            self._inside = self._section = True
            self._current = self._begins(current)
            self._keep("", line)
            return True
        if other := _OTHER.fullmatch(line):
            self._inside = True
            self._section = False
            self._begins(other)
            self._open = line.startswith("Extension modules: ") and not line.endswith(")")
            self._keep("", line)
            return True
        if not self._inside:
            return False
        if frame := _FRAME.fullmatch(line):
            if len(self._frames) < FRAMES:
                self._frames.append((frame["file"] or "???", frame["line"], frame["name"]))
        elif not _REST.fullmatch(line):
            return False
        self._keep(line)
        return True

    def _begins(self, header: re.Match[str]) -> tuple[str, list[Frame]]:
        self._frames = []
        thread = header["name"] or header["id"] or "", self._frames
        if len(self._threads) < THREADS:
            self._threads.append(thread)
        return thread

    def _keep(self, *lines: str) -> None:
        size = sum(len(line) + 1 for line in lines)  # faulthandler escapes non-ASCII characters
        if self._size + size <= (MOST if self._section else MOST - RESERVED):
            self._lines += lines
            self._size += size
        else:
            self._cut = True

    @property
    def text(self) -> str:
        """The dump, at most :data:`MOST` bytes of it; empty when there was none."""
        return "\n".join(self._lines + ["(more was left out)"] * self._cut).strip("\n")

    def explains(self, status: str) -> bool:
        """True if this is the dump of a process that ended with ``status``, not of a child that shared its stderr.

        Args:
            status: ``"signal SIGSEGV"``, ``"exit code 1"`` …
        """
        return bool(self.fatal) and status == f"signal {SIGNALS.get(self.fatal, 'SIGABRT')}"

    @property
    def place(self) -> str:
        """Where the process was.

        Of a crash, where the current thread was. Of stacks that were requested, where the threads were that run a
        method of a resident actor or an op: the current thread, which is the main one then, only waits for them, and is
        named if it does something else, or if there are no others.

        Of each thread, the top frame and, if that is library code, the first frame of user code below it. Library code
        is code in the standard library, in a folder of installed packages, or in callboard. Empty if the dump shows no
        frame of such a thread.
        """
        found = [] if self.fatal else [thread for thread in self._threads if _works(thread[1])]
        current = self._current
        if not found or (
            current not in found and not any(_is_in(frame, each) for frame in current[1] for each in _IDLE)
        ):
            found.append(current)
        return ", and ".join(filter(None, (_place(*thread) for thread in found[:MOST_PLACES])))


def _works(frames: list[Frame]) -> bool:
    """True if a thread that runs user's code or ops runs some."""
    above: list[Frame] = []
    for frame in frames:
        if _is_in(frame, _CALL):
            return True
        if _is_in(frame, _ACTOR):
            return any(not _is_library(file) for file, _, _ in above)  # setup, or a coroutine
        if _is_in(frame, _STREAM):
            return bool(above) and not _is_in(above[-1], _PAUSE)
        above.append(frame)
    return False


def _is_in(frame: Frame, function: tuple[str, str]) -> bool:
    return frame[2] == function[1] and frame[0].endswith(os.sep + function[0])


def _place(thread: str, frames: list[Frame]) -> str:
    if not frames:
        return ""
    end = next((at for at, frame in enumerate(frames) if at and _is_in(frame, _CALL)), 0)
    found = f"at {_named(frames[0])}"
    users = next((frame for frame in frames if not _is_library(frame[0])), frames[end - 1] if end else frames[0])
    if users is not frames[0]:
        found += f", called from {_named(users)}"
    return f"{found} (thread {thread})" if thread else found


def _named(frame: Frame) -> str:
    file, line, function = frame
    folder, name = os.path.split(file)
    if name in ("__init__.py", "__main__.py"):
        name = os.path.join(os.path.basename(folder), name)
    return f"{name}:{line} in {function}"


def _is_library(file: str) -> bool:
    return file.startswith(("<", "???", *_LIBRARIES)) or any(folder in file for folder in _PACKAGES)
