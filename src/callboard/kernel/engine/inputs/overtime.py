"""``Overtime``: ends executions of ONNX Runtime that take longer than their budget."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from callboard.core.errors import BudgetSpent
from callboard.kernel.engine.inputs.budget import over

__all__ = ["Overtime"]

TICK = 0.05
"""Seconds between two looks at what runs."""
LINGER = 0.1
"""Seconds that the thread waits for another execution before it ends."""


class Overtime:
    """Watches executions, on a thread that ends a tenth of a second after the last one.

    ONNX Runtime looks between two nodes, those of loops included, whether an execution is to be ended: one node is not
    interrupted.

    Args:
        clock: Gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: dict[int, tuple[float, Any]] = {}
        self._begun = threading.Event()
        self._lock = threading.Lock()
        self._watching = False

    @contextmanager
    def watch(self, title: str, budget: float, options: Any) -> Iterator[None]:
        """Around an execution with these ``RunOptions``.

        Args:
            title: Name of the model.
            budget: Seconds.
            options: Their ``terminate`` is set when the time is over.

        Raises:
            BudgetSpent: It was ended; from what ONNX Runtime raises.
        """
        with self._lock:
            self._running[id(options)] = self._clock() + budget, options
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._look, name="callboard-overtime", daemon=True).start()
        self._begun.set()
        try:
            yield
        except Exception as e:  # ONNX Runtime's own errors have no common base
            if options.terminate:
                raise BudgetSpent(f"{title}: {over(budget)}") from e
            raise
        finally:
            del self._running[id(options)]

    def end_late(self) -> None:
        """Ask those to end whose time is over."""
        now = self._clock()
        for end, options in list(self._running.values()):
            if now >= end:
                options.terminate = True

    def _look(self) -> None:
        while True:
            if self._running:
                time.sleep(TICK)
                self.end_late()
                continue
            self._begun.clear()
            if self._running or self._begun.wait(LINGER):
                continue
            with self._lock:
                if not self._running:
                    self._watching = False
                    return
