"""Layouts of images, filters and per-channel arrays as ``[n, c, *spatial]``, independent of their order."""

from callboard.core.layout import Layout, layout_of
from callboard.kernel.dnn.checks import DataLayout

__all__ = ["channels_first", "of_channels"]


def channels_first(array: Layout, layout: DataLayout) -> Layout:
    """The same elements with the channels after the batch."""
    if layout == "NCHW":
        return array
    order = (0, array.ndim - 1, *range(1, array.ndim - 1))
    return layout_of(array.dtype, tuple(array.shape[i] for i in order), tuple(array.strides[i] for i in order))


def of_channels(vector: Layout, ndim: int) -> Layout:
    """A number for each channel, as ``[1, c, 1, ...]`` with ``ndim`` axes."""
    (c,), (step,) = vector.shape, vector.strides
    ones = (1,) * (ndim - 2)
    return layout_of(vector.dtype, (1, c, *ones), (c * step, step, *ones))
