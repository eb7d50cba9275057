"""``CudnnActor``: the actor that serves the messages of this package."""

__all__ = ["CudnnActor"]


class CudnnActor:
    """Serves the deep-learning primitives of a device: convolutions, pooling, norms, losses, recurrent layers."""
