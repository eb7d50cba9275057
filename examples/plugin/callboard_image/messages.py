"""The messages of ``device.image``, with their shapes and dtypes."""

from typing import ClassVar

from callboard.core.dtype import DType, dtypes_of
from callboard.core.errors import ShapeError
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef

__all__ = ["Grayscale", "ImageActor"]

CHANNELS = 3


class ImageActor:
    """The actor that these messages address."""


class Grayscale(Op[ImageActor, GpuRef], tag="image.grayscale"):
    """The brightness of each pixel, ``0.2126 r + 0.7152 g + 0.0722 b`` (ITU-R BT.709).

    Args:
        image: ``[height, width, 3]``, f32, without gaps.
        out: ``[height, width]``, f32, without gaps; a new array when None.
    """

    dtypes: ClassVar[tuple[DType, ...]] = dtypes_of("f32")

    image: In
    out: Out | None = None

    def infer(self) -> Outputs:
        image = self.image.layout
        if image.ndim != 3 or image.shape[2] != CHANNELS or image.dtype.name != "f32" or not image.contiguous:
            raise ShapeError(f"image.grayscale: image is {image!r}; expected f32[height, width, 3] without gaps")
        if self.out is not None and not self.out.layout.contiguous:
            raise ShapeError(f"image.grayscale: out is {self.out.layout!r}; write to an array without gaps")
        return {"out": layout_of(image.dtype, image.shape[:2])}
