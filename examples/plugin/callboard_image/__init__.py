"""Images: a library that callboard does not have."""

from callboard_image.messages import Grayscale, ImageActor

__all__ = ["Grayscale", "ImageActor"]
