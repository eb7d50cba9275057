"""``rolls``: SIGUSR2, which asks ``callboard serve`` to replace its workers, remembered until it can be obeyed."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio  # not at run time: the signal is handled before slow imports

__all__ = ["ROLL", "Rolls", "rolls"]

ROLL = "SIGUSR2"
"""The signal at which ``callboard serve`` replaces its workers. Windows has none."""


class Rolls:
    """The handler of the signal. Without one, the signal would end the process."""

    def __init__(self) -> None:
        self._asked = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._obeyed: Callable[[], object] | None = None

    def remember(self) -> None:
        """Handle the signal from now on, if this is the main thread."""
        if hasattr(signal, ROLL) and threading.current_thread() is threading.main_thread():
            signal.signal(getattr(signal, ROLL), self._handle)

    def obey(self, loop: "asyncio.AbstractEventLoop", function: Callable[[], object]) -> None:
        """Have this loop call a function at each signal, and now if one has come.

        Args:
            loop: The running loop.
            function: What to do.
        """
        asked, self._asked = self._asked, False
        self._loop, self._obeyed = loop, function
        if asked:
            function()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._loop is None or self._obeyed is None or self._loop.is_closed():
            self._asked = True
        else:
            self._loop.call_soon_threadsafe(self._obeyed)


rolls = Rolls()
"""Of this process."""
