"""``RngActor``: the actor that serves the messages of this package."""

__all__ = ["RngActor"]


class RngActor:
    """Serves the random numbers of a device: :mod:`fills <callboard.kernel.rng.transforms>` of arrays."""
