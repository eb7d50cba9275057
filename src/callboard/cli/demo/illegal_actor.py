"""``IllegalWrite``: a resident actor that poisons the context of its device, as a faulty kernel of a user would."""

from collections.abc import Callable

import callboard
from callboard.cli.demo.illegal_write import load_illegal_write

__all__ = ["IllegalWrite"]


class IllegalWrite(callboard.ResidentActor):
    """Launches the illegal write in the context host of a CUDA device."""

    def __init__(self) -> None:
        self._stream = 0
        self._launch: Callable[[int], None] | None = None

    def setup(self, ctx: "callboard.HostContext") -> None:
        """Load the kernel ahead of time, so that a measurement starts at its launch."""
        self._stream = ctx.stream.native
        self._launch = load_illegal_write()

    def ready(self) -> bool:
        """Answered when the kernel is loaded."""
        return self._launch is not None

    def strike(self) -> None:
        """Launch it."""
        if self._launch is not None:
            self._launch(self._stream)
