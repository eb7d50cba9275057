"""Progress of long work, on a terminal only."""

import sys
from types import TracebackType
from typing import Self, TextIO

__all__ = ["Progress"]

WIDTH = 30


class Progress:
    """A bar on the last line of stderr; writes nothing where stderr is not a terminal. A context manager.

    Args:
        what: Label in front of the bar.
        total: Steps; 0: unknown, the count alone is shown.
        stream: Instead of stderr.
    """

    def __init__(self, what: str, total: int = 0, stream: TextIO | None = None) -> None:
        self._what = what
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._shown = False
        self._visible = self._stream.isatty()

    def show(self, done: int, note: str = "") -> None:
        """``done`` steps are done; ``note`` is written behind the number."""
        if not self._visible:
            return
        if self._total:
            full = min(WIDTH, done * WIDTH // self._total)
            text = f"{self._what} {'█' * full}{'░' * (WIDTH - full)} {done}/{self._total}"
        else:
            text = f"{self._what} {done}"
        if note:
            text += f" {note}"
        self._stream.write(f"\r\x1b[K{text}")
        self._stream.flush()
        self._shown = True

    def clear(self) -> None:
        """Take the bar away, before other lines are written."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()
