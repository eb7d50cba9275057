"""``TensorActor``: the actor that serves the messages of this package."""

__all__ = ["TensorActor"]


class TensorActor:
    """Serves the tensor messages of a device: contractions, ``einsum``, reductions, permutations, element-wise ops."""
