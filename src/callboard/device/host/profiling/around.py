"""``Around``: what is done around launches. ``Profiling``: the requests that turn it on and off."""

from collections.abc import Callable
from typing import Any, Protocol

from callboard.device.host.profiling.activity import CuptiActivity
from callboard.device.host.profiling.ranges import Ranges

__all__ = ["Around", "Profiling"]


class Around(Protocol):
    """Called by the admitting thread."""

    def begin(self, op: int, tag: str) -> None:
        """An op is about to be launched."""

    def end(self) -> None:
        """It has been launched, or refused."""


class _All:
    def __init__(self, parts: list[Around]) -> None:
        self._parts = parts

    def begin(self, op: int, tag: str) -> None:
        for part in self._parts:
            part.begin(op, tag)

    def end(self) -> None:
        for part in reversed(self._parts):
            part.end()


class Profiling:
    """The profilers of one context.

    Args:
        install: Called with what is to be done around launches; None: nothing.

    Attributes:
        asks: The control requests, by their names.
    """

    def __init__(self, install: Callable[[Around | None], None]) -> None:
        self._install = install
        self._activity: CuptiActivity | None = None
        self._ranges: Ranges | None = None
        self.asks: dict[str, Callable[[Any], Any]] = {
            "nvtx": self._set_ranges,
            "cupti-start": self._start,
            "cupti-stop": lambda _: self._stop(),
            "cupti-drain": self._drain,
        }

    def _set_ranges(self, domain: str | None) -> None:
        self._ranges = None if domain is None else Ranges(domain)
        self._installed()

    def _start(self, kinds: list[str]) -> None:
        if self._activity is not None:
            self._activity.stop()
        self._activity = None
        self._installed()
        self._activity = CuptiActivity(kinds)
        self._installed()

    def _stop(self) -> None:
        if self._activity is not None:
            self._activity.stop()
            self._installed()

    def _drain(self, most: int) -> tuple[list[Any], int]:
        return ([], 0) if self._activity is None else self._activity.drain(most)

    def _installed(self) -> None:
        activity = self._activity
        parts: list[Around] = [] if self._ranges is None else [self._ranges]
        if activity is not None and activity.on:
            parts.append(activity)
        self._install(parts[0] if len(parts) == 1 else _All(parts) if parts else None)

    def close(self) -> None:
        """End all of it; the context ends."""
        self._stop()
        self._activity = self._ranges = None
        self._install(None)
