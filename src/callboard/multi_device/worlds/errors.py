"""Errors of a world, other than :class:`callboard.WorldLost`."""

from callboard.core.errors import AccelError

__all__ = ["WorldStopped"]


class WorldStopped(AccelError):
    """The world has been closed, or cannot be formed any more; it takes no collectives."""
