"""``TrtActor``: the actor that serves the messages of this package."""

__all__ = ["TrtActor"]


class TrtActor:
    """Builds plans from ONNX models, and executes them."""
