"""``NvrtcActor``: the actor that serves the messages of this package."""

__all__ = ["NvrtcActor"]


class NvrtcActor:
    """Compiles and launches kernels of the user's own on a device."""
