"""Signals that end a system in order: actors stop, devices close, the process leaves with the signal's status."""

import asyncio
import logging
import signal
from collections.abc import Callable, Collection
from typing import Any

__all__ = ["StopSignals"]

_log = logging.getLogger("callboard.actors")


class StopSignals:
    """Takes signals while a system runs and restores the previous handlers when it has ended.

    A service manager sends SIGTERM and waits; without this the process ends at once, and nothing is drained. Off by
    default: a web server that runs the system has handlers of its own, and ends it through its lifespan.

    Args:
        loop: The system's loop; it must run on the main thread.
        signals: The signals to handle.
        end: Called once, on the loop, with ``SystemExit(128 + signal)``; later signals change nothing.

    Raises:
        RuntimeError: The loop does not run on the main thread, or takes no signals (Windows).
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, signals: Collection[int], end: Callable[[BaseException], None]
    ) -> None:
        self._loop = loop
        self._end: Callable[[BaseException], None] | None = end
        self._before: dict[int, Any] = {}
        for number in signals:
            before = signal.getsignal(number)
            try:
                loop.add_signal_handler(number, self._arrived, number)
            except (NotImplementedError, RuntimeError, ValueError) as error:
                self.close()
                raise RuntimeError(
                    f"{signal.Signals(number).name} cannot end the system: {error}; start it on the main thread of a "
                    "POSIX system, or leave stop_signals empty"
                ) from error
            self._before[number] = before

    def _arrived(self, number: int) -> None:
        end, self._end = self._end, None
        if end is None:
            _log.warning("%s again: the system is stopping", signal.Signals(number).name)
            return
        _log.info("%s: the system stops", signal.Signals(number).name)
        end(SystemExit(128 + number))

    def close(self) -> None:
        """Give the signals back; on the loop."""
        before, self._before = self._before, {}
        for number, handler in before.items():
            self._loop.remove_signal_handler(number)
            if handler is not None:  # None: set by other than Python, which Python cannot restore
                signal.signal(number, handler)
