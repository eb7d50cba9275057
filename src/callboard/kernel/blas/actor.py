"""``BlasActor``: the actor that serves the messages of this package."""

__all__ = ["BlasActor"]


class BlasActor:
    """Serves the BLAS messages of a device: :mod:`level 1 <callboard.kernel.blas.level1>` to 3 and the batched ones."""
