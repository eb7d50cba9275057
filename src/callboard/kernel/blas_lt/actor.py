"""``BlasLtActor``: the actor that serves the messages of this package."""

__all__ = ["BlasLtActor"]


class BlasLtActor:
    """Serves the fused matrix products of a device (:mod:`callboard.kernel.blas_lt`)."""
