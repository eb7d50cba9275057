"""``Compiling``: C texts become functions, one after the other, on a thread beside the work."""

import atexit
import contextlib
import ctypes
import logging
import os
import signal
import struct
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Compiled", "Compiling"]

OPTIONS = (
    *("-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fsignaling-nans"),
    *("-shared", "-fPIC", "-x", "c"),
)
SECONDS = 60.0
"""Time of the compiler for one text."""
LAST = 1.0
"""Seconds that all has to be gone after the compiler was killed."""
SAID = 1000
"""Bytes of the compiler's messages that are reported."""

_log = logging.getLogger("callboard.cpu")


class Compiled:
    """A text's function, as soon as it has been compiled.

    Attributes:
        run: ``run(addresses, geometry, numbers)``; None until then, and for good if it cannot be compiled.
    """

    def __init__(self) -> None:
        self.run: Callable[..., Any] | None = None


class Compiling:
    """One compiler at a time. One that fails, hangs or writes no library is reported, and not started again.

    When the interpreter exits, the one that runs is killed, with the processes of its group.

    Args:
        command: Path of the compiler, and its first options.
        most: Texts that are compiled.
        seconds: Time for each.
    """

    def __init__(self, command: Sequence[str], most: int, seconds: float = SECONDS) -> None:
        self._command = command
        self._most = most
        self._seconds = seconds
        self._owner = os.getpid()
        self._known: dict[str, Compiled] = {}
        self._waiting: deque[tuple[str, Compiled]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._over = False
        atexit.register(self.close)

    def ask(self, source: str) -> Compiled | None:
        """Have a text compiled that has not been; None if there is no room for it. Any thread."""
        with self._lock:
            found = self._known.get(source)
            if found is None and len(self._known) < self._most and not self._over:
                found = self._known[source] = Compiled()
                self._waiting.append((source, found))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="callboard-compiler", daemon=True)
                    self._thread.start()
            return found

    def settle(self) -> None:
        """Wait until no text waits for the compiler."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def close(self) -> None:
        """Kill the compiler; no text is compiled any more."""
        if os.getpid() != self._owner:  # a forked process, where the thread does not exist
            return
        with self._lock:
            self._over = True
            thread, process = self._thread, self._process
            if process is not None:
                _kill(process)
        if thread is not None:
            thread.join(LAST)  # it deletes the folder

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._over or not self._waiting:
                    self._thread = None
                    return
                source, made = self._waiting.popleft()
            try:
                # A folder that is not there any more when the process ends, whichever way: the code is mapped then
                with tempfile.TemporaryDirectory(prefix="callboard-", ignore_cleanup_errors=True) as folder:
                    made.run = self._compiled(source, Path(folder))
            except Exception as e:  # whatever it is, NumPy goes on
                if not self._over:
                    _log.warning("expressions stay with NumPy: the C compiler %s: %s", self._command[0], e)
                self._over = True

    def _compiled(self, source: str, folder: Path) -> Callable[..., Any]:
        text, library, messages = folder / "expression.c", folder / "expression.so", folder / "messages"
        text.write_text(source)
        with messages.open("wb") as said, self._lock:
            if self._over:
                raise RuntimeError("the interpreter exits")
            process = self._process = subprocess.Popen(
                [*self._command, *OPTIONS, "-o", str(library), str(text), "-lm"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,  # Ctrl-C in the terminal is for the application
            )
        try:
            status = process.wait(self._seconds)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"did not end within {self._seconds} s") from None
        finally:
            with self._lock:
                _kill(process)
                self._process = None
            process.wait()
        if status:
            with messages.open("rb") as said_:
                raise RuntimeError(f"exit status {status}: {said_.read(SAID).decode(errors='replace').strip()!r}")
        return _function(library)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process that runs, and its group."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _function(library: Path) -> Callable[..., Any]:
    """The function ``run`` of a shared library.

    Raises:
        ValueError: It is not a whole library, or lacks the function.
        OSError: It cannot be read or loaded.
    """
    if not _whole(library.read_bytes()):
        raise ValueError("what it wrote is not a whole shared library")  # whose missing pages would end the process
    run: Any = getattr(ctypes.CDLL(str(library)), "run", None)
    if run is None:
        raise ValueError("the library that it wrote has no function `run`")
    run.restype = None
    run.argtypes = (ctypes.c_char_p,) * 3
    function: Callable[..., Any] = run
    return function


def _whole(content: bytes) -> bool:
    """True for a 64-bit ELF file that has all the segments and sections that its header promises (``man 5 elf``)."""
    if len(content) < 64 or content[:5] != b"\x7fELF\x02":
        return False
    segments, sections = struct.unpack_from("=QQ", content, 32)
    size, count, section_size, section_count = struct.unpack_from("=4H", content, 54)
    ends: list[int] = [segments + size * count, sections + section_size * section_count]
    if size < 56 or max(ends) > len(content):
        return False
    for i in range(count):
        offset, _, _, held = struct.unpack_from("=4Q", content, segments + size * i + 8)
        ends.append(offset + held)
    return max(ends) <= len(content)
