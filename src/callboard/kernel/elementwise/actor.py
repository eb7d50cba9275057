"""``ElementwiseActor``: the actor that serves the messages of this package."""

__all__ = ["ElementwiseActor"]


class ElementwiseActor:
    """Serves expressions on elements, and reductions of them, each as one kernel."""
