"""Uneven padding is stored, and the rest is even."""

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from callboard.backends.cuda.dnn.padding import is_even, widened
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.dnn import Conv
from callboard.kernel.dnn.conv import geometry_of


@pytest.mark.parametrize("layout, shape", [("NCHW", (2, 3, 4, 5)), ("NHWC", (2, 4, 5, 3))])
def test_an_image_with_its_zeros(layout: Any, shape: tuple[int, ...]) -> None:
    filters = (4, 3, 2, 2) if layout == "NCHW" else (4, 2, 2, 3)
    x, w = (Placeholder(layout_of(DTYPES["f32"], s)) for s in (shape, filters))
    geometry = geometry_of(Conv(x=x, w=w, padding=((1, 0), (1, 3)), layout=layout))
    assert not is_even(geometry)
    wide = widened(x.layout, geometry, layout)
    assert wide.padding == ((0, 0), (1, 1))
    image = np.arange(1, 121, dtype="f4").reshape(shape)
    whole = np.zeros(wide.whole.shape, "f4")
    inner = as_strided(whole.ravel()[wide.offset // 4 :], shape, [4 * step for step in wide.inner.strides])
    inner[...] = image
    pads = [(1, 0), (0, 2)]
    edges = [(0, 0), (0, 0), *pads] if layout == "NCHW" else [(0, 0), *pads, (0, 0)]
    np.testing.assert_array_equal(whole, np.pad(image, edges))
