"""``ArrayActor``: the actor that serves the messages of this package."""

__all__ = ["ArrayActor"]


class ArrayActor:
    """Serves the movement of elements of a device: conversions, ranges, gathers and scatters."""
