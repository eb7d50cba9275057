"""``IllegalWrite``: a resident actor that poisons the context of its device, as a faulty kernel of a user would."""

from collections.abc import Callable
from typing import Any

import callboard
from callboard.cli.illegal_write import load_illegal_write

__all__ = ["IllegalWrite"]


class IllegalWrite(callboard.ResidentActor):
    """Launches the illegal write in the context host of a CUDA device."""

    def __init__(self) -> None:
        self._launch: Callable[[], None] | None = None

    def setup(self, ctx: Any) -> None:
        """Load the kernel ahead of time, so that a measurement starts at its launch."""
        self._launch = load_illegal_write()

    def strike(self) -> None:
        """Launch it."""
        if self._launch is not None:
            self._launch()
