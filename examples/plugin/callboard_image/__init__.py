"""Image operations, as an example of a library from another distribution."""

from callboard_image.messages import Grayscale, ImageActor

__all__ = ["Grayscale", "ImageActor"]
