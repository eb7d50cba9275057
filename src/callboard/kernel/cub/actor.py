"""``CubActor``: the actor that serves the messages of this package."""

__all__ = ["CubActor"]


class CubActor:
    """Serves the parallel primitives of a device: reductions, scans, sorts, selections, histograms."""
