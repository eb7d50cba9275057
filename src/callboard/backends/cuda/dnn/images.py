"""Layouts of arrays with channels and spatial axes, as cuDNN describes them: ``[n, c, *spatial]`` with steps."""

from callboard.core.layout import Layout, layout_of
from callboard.kernel.dnn.checks import DataLayout

__all__ = ["channels_first"]


def channels_first(array: Layout, layout: DataLayout) -> Layout:
    """The same elements with the channels behind the batch."""
    if layout == "NCHW":
        return array
    order = (0, array.ndim - 1, *range(1, array.ndim - 1))
    return layout_of(array.dtype, tuple(array.shape[i] for i in order), tuple(array.strides[i] for i in order))
