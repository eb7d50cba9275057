import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, layout_of
from callboard.core.ref.views import indexed, reinterpreted, reshaped

Array = np.ndarray[Any, Any]

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def items(extent: int) -> st.SearchStrategy[Any]:
    ints = st.integers(-extent, extent - 1) if extent else st.nothing()
    return st.slices(extent) | ints


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """An index of this shape: a prefix and a suffix of its axes around ``...``, with new axes thrown in."""
    left = draw(st.integers(0, len(shape)))
    right = draw(st.integers(left, len(shape)))
    index: list[Any] = [draw(items(n)) for n in shape[:left]]
    if right < len(shape) or draw(st.booleans()):
        index += [..., *(draw(items(n)) for n in shape[right:])]
    for _ in range(draw(st.integers(0, 2))):
        index.insert(draw(st.integers(0, len(index))), None)
    return tuple(index) if len(index) != 1 or draw(st.booleans()) else index[0]


def of(base: Array, view: Array) -> tuple[Layout, int]:
    """Layout and byte offset of a NumPy view."""
    strides = tuple(s // view.itemsize for s in view.strides)
    offset = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return layout_of(DTYPES["i32"], view.shape, strides), offset if view.size else 0


def array(base: Array, layout: Layout, offset: int) -> Array:
    """What the layout names in ``base``."""
    assert offset + layout.span[0] >= 0
    assert offset + layout.span[1] <= base.nbytes
    return np.ndarray(layout.shape, base.dtype, base.data, offset, tuple(s * base.itemsize for s in layout.strides))


def base_of(shape: tuple[int, ...]) -> Array:
    return np.arange(max(1, math.prod(shape)), dtype=np.int32)


@given(st.data(), shapes)
def test_any_index_of_any_view_is_numpys(data: st.DataObject, shape: tuple[int, ...]) -> None:
    base = base_of(shape)
    want = base[: math.prod(shape)].reshape(shape)
    layout, offset = of(base, want)
    for _ in range(3):  # views of views: the strides become negative and large
        index = data.draw(indices(want.shape))
        want = want[index]
        if not isinstance(want, np.ndarray):
            want = np.ndarray((), np.int32, base.data, int(want) * 4)
        layout, step = indexed(layout, index)
        offset += step
        assert layout.shape == want.shape
        np.testing.assert_array_equal(array(base, layout, offset), want)


@pytest.mark.parametrize(
    "index, error, says",
    [
        (3, IndexError, "index 3 is out of range for axis 0"),
        (-4, IndexError, "index -4 is out of range for axis 0"),
        ((0, 0, 0), IndexError, "3 indices for f32[3, 4], which has 2 axes"),
        ((..., 0, ...), IndexError, "only once"),
        ([0, 1], TypeError, "a view takes integers, slices"),
        (np.array([True, False, True]), TypeError, "index array([ True, False,  True]): a view takes integers, slices"),
        ((0, np.array([1, 2])), TypeError, "index array([1, 2]): a view takes"),
        (1.5, TypeError, "index 1.5"),
        ("name", TypeError, "index 'name'"),
    ],
)
def test_a_wrong_index_says_what_is_wrong(index: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as caught:
        indexed(layout_of(DTYPES["f32"], (3, 4)), index)
    assert says in str(caught.value)


def test_a_step_of_0_is_refused() -> None:
    with pytest.raises(ValueError, match="zero"):
        indexed(layout_of(DTYPES["f32"], (3,)), slice(None, None, 0))


def test_numpy_integers_are_indices() -> None:
    assert indexed(layout_of(DTYPES["f32"], (3, 4)), np.int64(2))[1] == 32


def factorised(draw: st.DrawFn, size: int) -> list[int]:
    """A shape of this size."""
    shape: list[int] = []
    while size > 1 and len(shape) < 4:
        n = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
        shape.append(n)
        size //= n
    return [*shape, size] if size > 1 or not shape else shape


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[Array, Array, tuple[int, ...]]:
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple))
    base = base_of(shape)
    view = base.reshape(shape)
    view = view[tuple(draw(st.slices(n).filter(lambda cut, n=n: range(n)[cut])) for n in shape)]
    view = view.transpose(draw(st.permutations(range(view.ndim))))
    target = factorised(draw, view.size)
    for _ in range(draw(st.integers(0, 2))):
        target.insert(draw(st.integers(0, len(target))), 1)
    if draw(st.booleans()):
        target[draw(st.integers(0, len(target) - 1))] = -1
    return base, view, tuple(target)


@given(reshapes())
def test_a_view_of_another_shape_exists_exactly_where_numpy_finds_one(
    case: tuple[Array, Array, tuple[int, ...]],
) -> None:
    base, view, shape = case
    layout, offset = of(base, view)
    try:
        want = view.reshape(shape, copy=False)
    except ValueError:
        with pytest.raises(ShapeError, match="copy it first"):
            reshaped(layout, shape)
    else:
        got = reshaped(layout, shape)
        assert got.shape == want.shape
        np.testing.assert_array_equal(array(base, got, offset), want)


@given(shapes, shapes)
def test_another_size_is_refused(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    layout = layout_of(DTYPES["f32"], shape)
    if math.prod(shape) == math.prod(target):
        assert reshaped(layout, target).shape == target
    else:
        with pytest.raises(ShapeError, match=f"has {math.prod(shape)} elements"):
            reshaped(layout, target)


@given(shapes.filter(lambda shape: 0 in shape))
def test_an_empty_view_takes_any_empty_shape(shape: tuple[int, ...]) -> None:
    strided = layout_of(DTYPES["f32"], shape, tuple(7 for _ in shape))
    assert reshaped(strided, (0, 5)).shape == (0, 5)
    assert reshaped(strided, (3, -1)).shape == (3, 0)


@pytest.mark.parametrize(
    "shape, says",
    [
        ((-1, -1), "one may be -1"),
        ((-2, 6), "extents are >= 0"),
        ((-1, 0), "cannot be viewed"),
        ((5, -1), "12 elements"),
    ],
)
def test_a_wrong_shape_says_what_is_wrong(shape: tuple[int, ...], says: str) -> None:
    with pytest.raises(ShapeError) as caught:
        reshaped(layout_of(DTYPES["f32"], (3, 4)), shape)
    assert says in str(caught.value)


@pytest.mark.parametrize("shape", [(0,), (0, 3)])
def test_an_empty_array_leaves_an_unknown_extent_open(shape: tuple[int, ...]) -> None:
    """NumPy refuses it too: any number would do."""
    with pytest.raises(ShapeError, match="cannot be viewed"):
        reshaped(layout_of(DTYPES["f32"], shape), (0, -1))


@given(st.data(), shapes, st.sampled_from(["u8", "i16", "f32", "i32", "f64", "c128"]))
def test_another_dtype_is_numpys_view(data: st.DataObject, shape: tuple[int, ...], name: str) -> None:
    dtype = DTYPES[name]
    base = base_of(shape)
    view = base[: math.prod(shape)].reshape(shape)
    if data.draw(st.booleans()):
        index = data.draw(indices(shape))
        items = index if isinstance(index, tuple) else (index,)
        view = view[items if ... in items else (*items, ...)]  # with '...' even 0-d results are views
    layout, offset = of(base, view)
    try:
        want = view.view(dtype.np)
    except ValueError:
        with pytest.raises(ShapeError):
            reinterpreted(layout, dtype, offset)
        return
    steps = [s for s, n in zip(want.strides, want.shape, strict=True) if n > 1]
    if offset % dtype.itemsize or (want.size and any(s % dtype.itemsize for s in steps)):
        with pytest.raises(ShapeError, match="multiple of"):  # NumPy counts strides in bytes; we in elements
            reinterpreted(layout, dtype, offset)
        return
    got = reinterpreted(layout, dtype, offset)
    assert (got.dtype, got.shape) == (dtype, want.shape)
    strides = tuple(s * dtype.itemsize for s in got.strides)
    seen = np.ndarray(got.shape, dtype.np, base.data, offset, strides)
    assert seen.tobytes() == want.tobytes()


@pytest.mark.parametrize(
    "shape, strides, to, says",
    [
        ((), (), "f64", "0-d array has no axis"),
        ((4, 4), (4, 2), "u8", "last axis has gaps"),
        ((4, 3), (3, 1), "f64", "12 bytes of the last axis are not a multiple of 8"),
        ((4, 2), (3, 1), "f64", "axis 0 has a step of 12 bytes, not a multiple of 8"),
    ],
)
def test_a_view_as_another_dtype_says_what_does_not_fit(
    shape: tuple[int, ...], strides: tuple[int, ...], to: str, says: str
) -> None:
    with pytest.raises(ShapeError, match=says):
        reinterpreted(layout_of(DTYPES["f32"], shape, strides), DTYPES[to])
