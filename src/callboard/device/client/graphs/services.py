"""Statistics of a recording, and the device services it uses."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

import msgspec

__all__ = ["RecordingServices", "RecordingStats"]

T = TypeVar("T")


class RecordingStats(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of a recording in the context host; reset with each context.

    Attributes:
        steps: Ops of one replay.
        buffers: Sets of buffers that it has graphs for.
        replays: Replays so far.
        recorded: Graphs made.
        updated: Graphs that took other buffers instead of being made.
        launches: Launches of graphs.
        single: Ops launched one by one: fills with random numbers, and all ops of a set of buffers that is used for the
            first time.
        device_nodes: Nodes of the graphs in the device's own description, if it has one.
    """

    steps: int = 0
    buffers: int = 0
    replays: int = 0
    recorded: int = 0
    updated: int = 0
    launches: int = 0
    single: int = 0
    device_nodes: list[str] = []


class RecordingServices(Protocol):
    """The device services for recordings."""

    def _patiently(self, call: Callable[[], T]) -> T:
        """Call it; a blocking device waits while there is no room."""
        ...

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> Any:
        """The coroutine; a blocking device gives its result."""

    def _recording_stats(self, recording: int) -> Any:
        """A :class:`RecordingStats`, or a coroutine that returns it."""
