"""``Interrupts``: SIGTERM and Ctrl-C end a run after the step that is being done, with a checkpoint."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["GRACE", "Interrupts"]

GRACE = 25.0
"""Seconds that the step and its checkpoint may take; container runtimes kill 30 s after SIGTERM."""
HANDLED = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Handlers during a block. The second Ctrl-C ends the process at once, whatever it does.

    Args:
        stop: Called by the first signal.
        grace: Seconds after which the process ends all the same; checkpoints are complete or not there.

    Attributes:
        code: 128 and the number of the first signal, the exit code; None: there was none.
    """

    def __init__(self, stop: Callable[[], None], grace: float = GRACE) -> None:
        self.code: int | None = None
        self._stop = stop
        self._grace = grace
        self._before: dict[signal.Signals, Any] = {}
        self._watch: threading.Timer | None = None

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._handle) for number in HANDLED}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self.code is None:  # else another signal is no reason for another exit code
            for number, before in self._before.items():
                signal.signal(number, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.code is not None:
            if number == signal.SIGINT:
                self._end()
            return
        self.code = 128 + number
        self._watch = threading.Timer(self._grace, self._end, ["the step or its checkpoint took too long; "])
        self._watch.daemon = True
        self._watch.start()
        _say("ends after this step, with a checkpoint; Ctrl-C ends at once")
        self._stop()

    def _end(self, why: str = "") -> None:
        _say(f"{why}ended without a checkpoint of the last steps")
        os._exit(self.code or 1)


def _say(what: str) -> None:
    if sys.stderr is not None:
        os.write(2, f"callboard train: {what}\n".encode())  # also inside a write to the stream that was interrupted
