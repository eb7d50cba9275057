import itertools
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, c_strides, layout_from_wire, layout_of

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    shape = draw(shapes)
    strides = draw(st.none() | st.tuples(*(st.integers(-9, 9) for _ in shape)))
    return Layout(draw(st.sampled_from(list(DTYPES.values()))), shape, c_strides(shape) if strides is None else strides)


def reached(layout: Layout) -> list[int]:
    """Element offsets, one by one."""
    ranges = (range(n) for n in layout.shape)
    return [sum(i * s for i, s in zip(at, layout.strides, strict=True)) for at in itertools.product(*ranges)]


@given(layouts())
def test_sizes_and_spans(layout: Layout) -> None:
    offsets = reached(layout)
    assert layout.size == len(offsets)
    assert layout.nbytes == len(offsets) * layout.dtype.itemsize
    assert (layout.first, layout.last) == ((min(offsets), max(offsets)) if offsets else (0, -1))
    assert layout.span == (layout.first * layout.dtype.itemsize, (layout.last + 1) * layout.dtype.itemsize)
    assert layout.contiguous == (offsets == list(range(len(offsets))))


@given(layouts())
def test_the_wire_form_is_the_layout(layout: Layout) -> None:
    assert layout_from_wire(*msgspec.msgpack.decode(layout.wire)) == layout
    assert msgspec.msgpack.decode(msgspec.msgpack.encode([layout.raw])) == [msgspec.msgpack.decode(layout.wire)]


@given(layouts(), layouts())
def test_equal_means_same_dtype_shape_and_strides(a: Layout, b: Layout) -> None:
    same = (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides)
    assert (a == b) == same
    if same:
        assert hash(a) == hash(b)
    assert a != a.wire


@given(shapes)
def test_row_major_strides_are_numpys(shape: tuple[int, ...]) -> None:
    array: Any = np.empty(shape, np.int8)
    if array.size:
        assert c_strides(shape) == array.strides
    assert layout_of(DTYPES["i8"], shape).contiguous


def test_equal_layouts_are_one_object() -> None:
    assert layout_of(DTYPES["f32"], (2, 3)) is layout_of(DTYPES["f32"], (2, 3))


def test_repr_shows_strides_only_where_they_matter() -> None:
    assert repr(layout_of(DTYPES["f32"], (2, 3))) == "f32[2, 3]"
    assert repr(layout_of(DTYPES["bf16"], ())) == "bf16[]"
    assert repr(layout_of(DTYPES["f32"], (2, 3), (1, 2))) == "f32[2, 3], strides (1, 2)"


@pytest.mark.parametrize("code", [-1, len(DTYPES)])
def test_an_unknown_dtype_code_is_refused(code: int) -> None:
    with pytest.raises(ValueError, match=f"unknown dtype code {code}"):
        layout_from_wire(code, [], [])


@pytest.mark.parametrize("shape", [(2**61,), (2**40, 2**40), (2**40, 0, 2**40), (2**70,)])
def test_what_no_buffer_holds_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="too large: no array has 2\\*\\*63 bytes or more"):
        layout_of(DTYPES["f32"], shape)
    layout_of(DTYPES["i8"], (2**62,))
