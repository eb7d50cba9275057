"""Programs of their own for fault runs: started, talked to line by line, and watched until nothing of them is left."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

BOUND = 30.0

ROOT = Path(__file__).parents[2]


class Program:
    """A Python program in a session of its own; what it prints is read by line.

    Args:
        arguments: Of the interpreter.
        text: Given to its stdin, which is then closed.
        folder: Where it runs.
        descriptors: Those it inherits, under their numbers.
    """

    def __init__(
        self,
        *arguments: str,
        text: str | None = None,
        folder: Path | None = None,
        descriptors: Sequence[int] = (),
    ) -> None:
        path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, "-u", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
            cwd=folder,
            pass_fds=descriptors,
        )
        assert self.process.stdin is not None
        if text is not None:
            self.process.stdin.write(text.encode())
            self.process.stdin.close()
        self.output = ""
        self._read = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(BOUND)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        if error is not None:
            error.add_note(f"the program said:\n{self.output}")

    def line(self, beginning: str) -> str:
        """The rest of the next line that begins so."""
        deadline = time.monotonic() + BOUND
        while True:
            while (end := self.output.find("\n", self._read)) >= 0:
                line, self._read = self.output[self._read : end], end + 1
                if line.startswith(beginning):
                    return line[len(beginning) :].strip()
            if not self._more(deadline - time.monotonic()):
                raise AssertionError(f"the program ended or was silent, and never said {beginning!r}")

    def end(self) -> int:
        """Wait for its end and read what is left; gives its exit code."""
        deadline = time.monotonic() + BOUND
        while self._more(deadline - time.monotonic()):
            pass
        return self.process.wait(max(0.0, deadline - time.monotonic()))

    def _more(self, seconds: float) -> bool:
        out = self.process.stdout
        assert out is not None
        if not select.select([out], [], [], max(0.0, seconds))[0]:
            return False
        data = os.read(out.fileno(), 65536)
        self.output += data.decode(errors="replace")
        return bool(data)


class Watched:
    """A process that is not our child: its end can be awaited."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)

    def gone(self, seconds: float = BOUND) -> bool:
        """Whether it ends in time."""
        return bool(select.select([self._pidfd], [], [], seconds)[0])

    def close(self) -> None:
        os.close(self._pidfd)
