"""The living actors of a system, read from their cells."""

from time import monotonic_ns
from typing import Any

from callboard.actors import ActorSystem
from callboard.telemetry.sampling.counting import Counts, Handled
from callboard.telemetry.sampling.snapshot import ActorFigures

__all__ = ["Actors"]

NONE = Handled()
RATED = 500_000_000
"""Nanoseconds between two measurements of the rates of messages: views sample ten times a second."""


class Actors:
    """Figures of one system's actors.

    Args:
        system: The system.
        counts: Counts of their messages.
        label: What their paths begin with, in place of the system's name.
    """

    def __init__(self, system: ActorSystem, counts: Counts, label: str) -> None:
        self._system = system
        self._counts = counts
        self._label = label
        self._skip = 0 if label == system.name else len(system.name) + 1
        self._rated = 0
        self._latest: tuple[int, list[ActorFigures]] = 0, []

    def figures(self, recent: float) -> list[ActorFigures]:
        """Figures of all living actors, parents first. A few microseconds each: there may be thousands.

        Args:
            recent: Seconds that they may be old.
        """
        taken, latest = self._latest
        if recent and monotonic_ns() - taken < recent * 1e9:
            return latest
        now, counted, restarts, skip = monotonic_ns(), self._counts.handled, self._counts.restarts, self._skip
        rated = now - self._rated >= RATED
        if rated:
            self._rated = now
        found, living = [], set()
        waiting: list[Any] = [] if self._system._guardian is None else [self._system._guardian]
        while waiting:
            cell = waiting.pop()
            children = cell.children.cells()
            if children:
                children.reverse()
                waiting += children
            path, depth, actor = cell.path, len(cell.lane.items), cell.actor
            living.add(path)
            handled = counted.get(path, NONE)
            if rated and handled is not NONE:
                handled.measure(now)
            found.append(
                ActorFigures(
                    f"/{self._label}{path[skip:]}" if skip else path,
                    str(cell.props.label) if actor is None else type(actor).__qualname__,
                    "stopping" if cell.stopping else "suspended" if cell.suspended else "running",
                    depth,
                    restarts.get(path, 0),
                    handled.count,
                    handled.failed,
                    handled.nanoseconds / 1e9,
                    depth / handled.rate if depth and handled.rate else 0.0,
                )
            )
        self._counts.forget_all_but(living)
        self._latest = now, found
        return found
