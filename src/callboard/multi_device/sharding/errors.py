"""Errors of a region."""

from callboard.core.errors import AccelError

__all__ = ["RegionStopped"]


class RegionStopped(AccelError):
    """The region has been stopped, or has no device left; its entities take no more calls."""
