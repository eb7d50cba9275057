"""The actor whose task is running."""

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callboard.actors._runtime.cell import Cell

__all__ = ["CURRENT"]

CURRENT: ContextVar["Cell | None"] = ContextVar("callboard_current_cell", default=None)
