"""``FftActor``: the actor that serves the messages of this package."""

__all__ = ["FftActor"]


class FftActor:
    """Serves the Fourier transforms of a device."""
