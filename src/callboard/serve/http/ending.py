"""``Signals``: what SIGTERM, SIGHUP and Ctrl-C ask of a server, from the first one to the third."""

import asyncio
import faulthandler
import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["INIT", "Signals", "obey_while_starting"]

INIT = 1
"""Process id of the first process of a container: the kernel gives it no signal that it has no handler for."""
HANDLED = ("SIGINT", "SIGTERM", "SIGHUP")
"""Windows has no SIGHUP."""

_log = logging.getLogger("callboard.serve")


class Signals:
    """Handlers of SIGTERM, SIGHUP and SIGINT during a block, if this is the main thread.

    SIGHUP, which comes when the terminal is closed, is left alone where it is ignored, as by ``nohup``.

    The first of these signals asks the server to drain. A SIGINT after it asks it not to wait for running requests. The
    next one ends the process at once, as a SIGINT does without a handler, even if Python code cannot run any more.

    Args:
        lasting: The handlers stay when one of the signals was the reason for the block's end: the process ends, too,
            and another SIGTERM is no reason for another exit code.

    Attributes:
        stop: Set by the first signal.
        hurry: Set by a SIGINT after it.
        last: Called before the next one ends the process; None: the kernel ends it, without Python.
    """

    def __init__(self, *, lasting: bool = False) -> None:
        self._lasting = lasting
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.last: Callable[[], None] | None = None
        self._interrupted = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            numbers = [getattr(signal, name) for name in HANDLED if hasattr(signal, name)]
            taken = [each for each in numbers if each.name != "SIGHUP" or signal.getsignal(each) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._handle) for number in taken}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lasting and self.stop.is_set():
            return
        for number, before in self._before.items():
            signal.signal(number, before)

    def explain(self) -> None:
        """Tell what a further Ctrl-C does, if the first signal was one."""
        if self._interrupted and not self.hurry.is_set():
            _log.warning(
                "press Ctrl-C again to end the running requests with status 503, and a third time to end the process"
            )

    def _handle(self, number: int, frame: FrameType | None) -> None:
        interrupt = number == signal.SIGINT
        if not self.stop.is_set():
            self._interrupted = interrupt
            self._call(self.stop.set)
        elif interrupt and not self.hurry.is_set():
            self._call(self.hurry.set)
            if os.getpid() != INIT and self.last is None:
                signal.signal(number, signal.SIG_DFL)  # also effective in native code that does not return
        elif interrupt:
            if self.last is not None:
                self.last()
            os._exit(128 + number)

    def _call(self, function: Callable[[], None]) -> None:
        function()  # at once, as the next signal may come before the loop's next iteration
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(lambda: None)  # the loop may wait for events


def obey_while_starting() -> None:
    """Let SIGUSR1 write the stacks of all threads to stderr, and SIGTERM end the process, while it imports an app too.

    The first process of a container has no default handlers: without this one, the runtime would wait for its grace
    period and kill. It exits with 143 (128 + SIGTERM), as the runtime reports for other processes that SIGTERM ended.
    """
    if hasattr(signal, "SIGUSR1") and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    if os.getpid() == INIT and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))
