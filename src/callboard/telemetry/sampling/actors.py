"""The living actors of a system, read from their cells."""

from collections.abc import Iterator
from time import monotonic_ns
from typing import Any

from callboard.actors import ActorSystem
from callboard.telemetry.sampling.counting import Counts, Handled
from callboard.telemetry.sampling.snapshot import ActorFigures

__all__ = ["actor_figures"]

NONE = Handled()


def actor_figures(system: ActorSystem, counts: Counts) -> list[ActorFigures]:
    """Figures of all living actors, parents first."""
    found, now = [], monotonic_ns()
    for cell in _cells(system._guardian):
        handled = counts.handled.get(cell.path, NONE)
        if handled is not NONE:
            handled.measure(now)
        depth = len(cell.lane.items)
        found.append(
            ActorFigures(
                cell.path,
                _class_of(cell),
                "stopping" if cell.stopping else "suspended" if cell.suspended else "running",
                depth,
                counts.restarts.get(cell.path, 0),
                handled.count,
                handled.failed,
                handled.nanoseconds / 1e9,
                depth / handled.rate if handled.rate else 0.0,
            )
        )
    counts.forget_all_but({each.path for each in found})
    return found


def _cells(root: Any) -> Iterator[Any]:
    waiting = [] if root is None else [root]
    while waiting:
        cell = waiting.pop()
        yield cell
        waiting.extend(reversed(cell.children.cells()))


def _class_of(cell: Any) -> str:
    return type(cell.actor).__qualname__ if cell.actor is not None else str(cell.props.label)
