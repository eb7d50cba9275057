"""The living actors of a system, read from their cells."""

from collections.abc import Iterator
from time import monotonic_ns
from typing import Any

from callboard.actors import ActorSystem
from callboard.telemetry.sampling.counting import Counts, Handled
from callboard.telemetry.sampling.snapshot import ActorFigures

__all__ = ["actor_figures"]

NONE = Handled()


def actor_figures(system: ActorSystem, counts: Counts, label: str) -> list[ActorFigures]:
    """Figures of all living actors, parents first.

    Args:
        system: The system.
        counts: Counts of their messages.
        label: What their paths begin with, in place of the system's name.
    """
    found, living, now = [], set(), monotonic_ns()
    skip = 0 if label == system.name else len(system.name) + 1
    for cell in _cells(system._guardian):
        path = cell.path
        living.add(path)
        handled = counts.handled.get(path, NONE)
        if handled is not NONE:
            handled.measure(now)
        depth = len(cell.lane.items)
        found.append(
            ActorFigures(
                f"/{label}{path[skip:]}" if skip else path,
                _class_of(cell),
                "stopping" if cell.stopping else "suspended" if cell.suspended else "running",
                depth,
                counts.restarts.get(path, 0),
                handled.count,
                handled.failed,
                handled.nanoseconds / 1e9,
                depth / handled.rate if handled.rate else 0.0,
            )
        )
    counts.forget_all_but(living)
    return found


def _cells(root: Any) -> Iterator[Any]:
    waiting = [] if root is None else [root]
    while waiting:
        cell = waiting.pop()
        yield cell
        waiting.extend(reversed(cell.children.cells()))


def _class_of(cell: Any) -> str:
    return type(cell.actor).__qualname__ if cell.actor is not None else str(cell.props.label)
