"""Treatment of an item that fails in a pipeline."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["ItemError", "OnError"]

Outcome = Literal["fail", "skip", "item"]


@dataclass(frozen=True, slots=True)
class ItemError:
    """An item that failed; with ``on_error="item"`` it takes the place of the result.

    Attributes:
        index: Position in the source, from 0.
        item: The item.
        stage: Name of the stage that failed.
        error: The reason.
        attempts: The number of times it was tried.
    """

    index: int
    item: Any
    stage: str
    error: Exception
    attempts: int


OnError = Outcome | Callable[[ItemError], Outcome]
"""``"fail"``: the error is raised to the reader, after the results before it, and the pipeline ends. ``"skip"``: the
item is left out, counted and logged. ``"item"``: an :class:`ItemError` is the result. Or a function that returns one of
these."""

OUTCOMES = ("fail", "skip", "item")
