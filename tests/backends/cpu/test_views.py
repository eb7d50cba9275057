from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.backends.cpu.views import array_at, viewer
from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import layout_of


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_dtype_reads_and_writes(dtype: DType) -> None:
    base = np.zeros(6, dtype.np)
    view = array_at(base.ctypes.data, layout_of(dtype, (2, 3)))
    assert (view.dtype, view.shape) == (dtype.np, (2, 3))
    view[1, 2] = 1
    assert base.view(np.uint8).any()
    assert (base[5], base[4]) == (view[1, 2], view[0, 0])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-5, 5)), max_size=4))
def test_any_strides(axes: list[tuple[int, int]]) -> None:
    layout = layout_of(DTYPES["i16"], tuple(n for n, _ in axes), tuple(s for _, s in axes))
    base = np.arange(layout.last - layout.first + 1, dtype=np.int16)
    view = array_at(base.ctypes.data - 2 * layout.first, layout)
    assert view.shape == layout.shape
    want: Any = np.full(layout.shape, -layout.first, np.int16)
    for axis, (extent, stride) in enumerate(axes):
        want += (np.arange(extent) * stride).astype(np.int16).reshape(-1, *[1] * (len(axes) - axis - 1))
    np.testing.assert_array_equal(view, want)


def test_an_empty_array_touches_nothing() -> None:
    for address in (0, 8, 1 << 62):
        assert array_at(address, layout_of(DTYPES["f64"], (3, 0), (-7, 9))).shape == (3, 0)


def test_0_d() -> None:
    base = np.array([1.5, 2.5])
    view = array_at(base.ctypes.data + 8, layout_of(DTYPES["f64"], ()))
    assert view == 2.5
    view[...] = 3
    assert base[1] == 3


def test_viewers_are_made_once_per_layout() -> None:
    layout = layout_of(DTYPES["f32"], (5, 7))
    assert viewer(layout) is viewer(layout)
