"""Transfers of rows: what they copy is what NumPy copies, and what is none is refused."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import as_dtype
from callboard.core.layout import MIN_ROW, Layout, layout_of, rows_of

BASE = (4, 6, 5, 32)


def layout(array: "np.ndarray[Any, Any]") -> Layout:
    item = array.itemsize
    return layout_of(as_dtype(array.dtype), array.shape, tuple(s // item for s in array.strides))


@st.composite
def views(draw: Any) -> Any:
    """Two views of one shape, of arrays of one dtype."""
    extents = [draw(st.integers(1, n)) for n in BASE]
    pair = []
    for _ in range(2):
        index = []
        for n, extent in zip(BASE, extents, strict=True):
            step = draw(st.integers(1, max(1, (n - 1) // max(extent - 1, 1))))
            start = draw(st.integers(0, n - 1 - (extent - 1) * step))
            index.append(slice(start, start + (extent - 1) * step + 1, step))
        pair.append(tuple(index))
    return pair, draw(st.sampled_from(["i8", "i32", "f64"]))


@given(views())
def test_rows_copy_what_numpy_copies(drawn: Any) -> None:
    (src_index, out_index), kind = drawn
    dtype = as_dtype(kind).np
    src = np.random.default_rng(0).integers(1, 100, BASE).astype(dtype)
    out = np.zeros(BASE, dtype)
    a, b = src[src_index], out[out_index]
    rows = rows_of(layout(a), layout(b))
    if rows is None:
        return
    octets_in, octets_out = src.reshape(-1).view(np.uint8), out.reshape(-1).view(np.uint8)
    first_in = a.ctypes.data - src.ctypes.data
    first_out = b.ctypes.data - out.ctypes.data
    for plane in range(rows.depth):
        for row in range(rows.height):
            at = first_in + (plane * rows.src_rows + row) * rows.src_pitch
            to = first_out + (plane * rows.out_rows + row) * rows.out_pitch
            octets_out[to : to + rows.width] = octets_in[at : at + rows.width]
    expected = np.zeros(BASE, dtype)
    expected[out_index] = a
    np.testing.assert_array_equal(out, expected)


def test_what_counts_as_rows() -> None:
    x = np.zeros((8, 10, 64), np.float32)
    whole = layout(x)
    assert rows_of(whole, whole) == (x.nbytes, 1, 1, x.nbytes, x.nbytes, 1, 1)
    assert rows_of(layout(x[:0]), layout(x[:0])) == (0,) * 7
    assert rows_of(layout(x[0, :, :16]), layout(x[1, :, 20:36])) == (MIN_ROW, 10, 1, 256, 256, 10, 10)
    assert rows_of(layout(x[:, 2:5, :16]), layout(x[:, :3, 9:25])) == (MIN_ROW, 3, 8, 256, 256, 10, 10)
    for src, out in (
        (x[0, :, :15], x[1, :, :15]),  # short rows
        (x[0, :, ::2], x[1, :, ::2]),  # not adjacent
        (x[0, ::-1], x[1]),  # backwards
        (x[:, :, :16].transpose(1, 0, 2), x[:, :, :16].transpose(1, 0, 2)),  # slices within rows
    ):
        assert rows_of(layout(src), layout(out)) is None
