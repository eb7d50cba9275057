"""``Opened``: a session of ONNX Runtime on the CPU, which contexts in the process of its host use, too."""

from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

__all__ = ["SHARED", "Opened"]

FORGETS = 1.02
"""Factor by which a longer execution raises what is known of the time at most."""
MOST_KNOWN = 256
"""Sets of shapes whose times are known."""

Shapes = tuple[tuple[int, ...], ...]


class Opened:
    """A session, and what its executions take.

    Args:
        session: An ``InferenceSession``, which any number of threads may run at once.

    Attributes:
        session: The same; None once it is closed. Executions that have begun keep it.
        recent: Seconds that the last executions took at least, by the shapes of all inputs: other threads may have held
            one up.
        bindings: Inputs and outputs that are bound, by what executes them and by addresses. The host's own.
    """

    __slots__ = ("__weakref__", "bindings", "recent", "session")

    def __init__(self, session: Any) -> None:
        self.session = session
        self.recent: dict[Shapes, float] = {}
        self.bindings: WeakKeyDictionary[Any, dict[tuple[int, ...], Any]] = WeakKeyDictionary()

    def took(self, shapes: Shapes, seconds: float) -> None:
        """An execution with inputs of these shapes took this long. Any thread."""
        recent = self.recent
        before = recent.get(shapes)
        if before is None and len(recent) >= MOST_KNOWN:
            self.recent = recent = {}
        recent[shapes] = seconds if before is None else min(seconds, FORGETS * before)

    def close(self) -> None:
        """Give the session up. On the host's thread."""
        self.session = None
        self.bindings.clear()


SHARED: "WeakValueDictionary[str, Opened]" = WeakValueDictionary()
"""The sessions that hosts in this process have open, by the tokens of the plans that they execute."""
