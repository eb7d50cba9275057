"""Errors of trainers."""

from callboard.actors.errors import AccelError
from callboard.core.errors import NumericalError

__all__ = ["NotFinite", "TrainerClosed"]


class NotFinite(NumericalError):
    """A gradient has NaN or infinity, and the trainer was told to stop at that, or it happened ten times in a row."""


class TrainerClosed(AccelError):
    """The trainer is closed, or has not been opened."""
