"""Input and output of a step function: ``Slot``, and the marks ``DONE``, ``NOTHING`` and ``Last``."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, Literal, TypeVar

from callboard.patterns.requests.entries import Entry

__all__ = ["DONE", "NOTHING", "Last", "Slot"]

T = TypeVar("T")
P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)


class _Mark(Enum):
    DONE = "DONE"
    NOTHING = "NOTHING"

    def __repr__(self) -> str:
        return self.value


DONE: Final[Literal[_Mark.DONE]] = _Mark.DONE
"""In place of a part: the sequence has ended."""

NOTHING: Final[Literal[_Mark.NOTHING]] = _Mark.NOTHING
"""In place of a part: this step gives none, as while a long prompt is read in pieces."""


@dataclass(frozen=True)
class Last(Generic[P_co]):
    """A part after which the sequence has ended."""

    part: P_co


class Slot(Generic[T, P]):
    """A running sequence: the argument of a step function.

    Attributes:
        number: Number of the request; unique, and the same until the request ends.
        item: The submitted item.
        parts: Parts that the steps have returned so far, oldest first; not to be changed.
        fresh: This is its first step since it was admitted. If ``parts`` is not empty then, it was interrupted, and its
            state has to be computed again from ``item`` and ``parts``.
        state: The step function's own, None while ``fresh``.
        cost: Cost that it currently counts against ``max_batch_cost``.
    """

    __slots__ = ("cost", "entry", "fresh", "item", "number", "parts", "state")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.number: int = entry.number
        self.item: T = entry.item
        self.parts: list[P] = []
        self.fresh = True
        self.state: Any = None
        self.cost: float = entry.cost

    def __repr__(self) -> str:
        return f"<Slot {self.number}, {len(self.parts)} parts, cost {self.cost:g}{', fresh' if self.fresh else ''}>"
