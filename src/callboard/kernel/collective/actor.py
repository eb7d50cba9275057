"""``CollectiveActor``: the actor that serves the messages of this package."""

__all__ = ["CollectiveActor"]


class CollectiveActor:
    """Serves one rank's part of the collectives of the worlds that a device belongs to."""
