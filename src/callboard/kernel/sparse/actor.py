"""``SparseActor``: the actor that serves the messages of this package."""

__all__ = ["SparseActor"]


class SparseActor:
    """Serves the sparse messages of a device: products, conversions and checks of sparse matrices."""
