"""Errors of trainers."""

from callboard.actors.errors import AccelError
from callboard.core.errors import NumericalError

__all__ = ["NotFinite", "StaleGradient", "TrainerClosed"]


class NotFinite(NumericalError):
    """A gradient has NaN or infinity, and the trainer was told to stop at that, or it happened ten times in a row."""


class StaleGradient(AccelError):
    """A gradient is for weights that have had more than ``max_staleness`` updates since: pull and compute it again."""


class TrainerClosed(AccelError):
    """The trainer is closed, or has not been opened."""
