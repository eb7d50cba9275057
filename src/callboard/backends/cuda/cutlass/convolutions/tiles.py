"""The tilings of the templates of convolutions."""

from callboard.backends.cuda.cutlass.tilings import Tiling
from callboard.kernel.cutlass import ConvKind

__all__ = ["tilings_of_conv"]

PIXELS = (
    Tiling(128, 128, 128, (2, 1), "Pingpong", raster=1),
    Tiling(128, 256, 128, (2, 1), "Cooperative", raster=1),
    Tiling(128, 64, 128, (2, 1), "Pingpong", raster=1),
)
"""Rows are pixels, of which there are many, and columns channels."""
TAPS = (
    Tiling(128, 128, 128, (1, 1), "Cooperative", splits=1),
    Tiling(128, 64, 128, (1, 1), "Cooperative", splits=1),
)
"""Rows and columns are channels. Few tiles, and all pixels are the inner axis, which blocks share (stream-K)."""


def tilings_of_conv(kind: ConvKind) -> tuple[Tiling, ...]:
    """The tilings of a convolution; the first serves where none is measured."""
    return TAPS if kind == "wgrad" else PIXELS
