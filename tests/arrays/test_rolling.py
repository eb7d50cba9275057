"""Rolls inside of expressions: computed in one kernel, with no observable effect but the time."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import callboard as cb
from callboard.core.ref import DeferredRef

SHAPES = (1,), (2,), (7,), (1, 5), (5, 1), (4, 6), (2, 3, 4), (3, 1, 2, 2)


def filled(shape: tuple[int, ...], dtype: str = "f4") -> Any:
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


@pytest.mark.few(8)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shift(session: cb.sync.Device, shape: tuple[int, ...]) -> None:
    a, xp = filled(shape), session.xp
    x = session.put(a)
    for axis, shift in itertools.product(range(len(shape)), (-9, -2, -1, 0, 1, 3)):
        found = xp.roll(x, shift, axis=axis) * 2 + x
        np.testing.assert_array_equal(found.get(), np.roll(a, shift, axis) * 2 + a)
        np.testing.assert_array_equal(xp.roll(x, shift, axis=axis).get(), np.roll(a, shift, axis))
    np.testing.assert_array_equal((xp.roll(x, 2) + x).get(), np.roll(a, 2) + a)


@settings(max_examples=30)
@given(st.data())
def test_any_stencil(session: cb.sync.Device, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    shifts = st.tuples(*[st.integers(-7, 7)] * len(shape))
    axes, xp = tuple(range(len(shape))), session.xp
    a, b = filled(shape, "i8"), filled(shape, "i4")[..., ::-1]
    x, y = session.put(a), session.put(b)
    found, wanted = x, a
    for by in data.draw(st.lists(shifts, min_size=1, max_size=5)):
        found, wanted = found + 3 * xp.roll(x, by, axis=axes), wanted + 3 * np.roll(a, by, axes)
        found, wanted = found - xp.roll(y, by, axis=axes), wanted - np.roll(b, by, axes)
    np.testing.assert_array_equal(found.get(), wanted)


def test_a_stencil_is_one_kernel(session: cb.sync.Device) -> None:
    a, xp = filled((8, 9)), session.xp
    x = session.put(a).result()
    before = session.stats().fused
    around = sum(xp.roll(x, n, axis=axis) for n in (1, -1) for axis in (0, 1)) - 4 * x
    assert isinstance(around, DeferredRef)
    np.testing.assert_array_equal(around.get(), sum(np.roll(a, n, axis) for n in (1, -1) for axis in (0, 1)) - 4 * a)
    assert session.stats().fused - before == 9


def test_views_are_rolled(session: cb.sync.Device) -> None:
    a, xp = filled((6, 8)), session.xp
    x = session.put(a)
    for view, wanted in ((x.T, a.T), (x[1:5, ::2], a[1:5, ::2]), (x[::-1], a[::-1])):
        np.testing.assert_array_equal((xp.roll(view, 1, axis=1) + view).get(), np.roll(wanted, 1, 1) + wanted)


def test_a_write_comes_after_the_roll(session: cb.sync.Device) -> None:
    a, xp = filled((3, 4)), session.xp
    x = session.put(a)
    rolled = xp.roll(x, 1, axis=1)
    twice = rolled * 2
    x += 100
    np.testing.assert_array_equal(rolled.get(), np.roll(a, 1, 1))
    np.testing.assert_array_equal(twice.get(), 2 * np.roll(a, 1, 1))
    np.testing.assert_array_equal(x.get(), a + 100)


def test_a_roll_is_a_copy(session: cb.sync.Device) -> None:
    a, xp = filled((3, 4)), session.xp
    x = session.put(a)
    rolled = xp.roll(x, 1, axis=0)
    rolled += 1
    rolled[0] = 7
    wanted = np.roll(a, 1, 0) + 1
    wanted[0] = 7
    np.testing.assert_array_equal(rolled.get(), wanted)
    np.testing.assert_array_equal(x.get(), a)


def test_other_uses_of_a_roll(session: cb.sync.Device) -> None:
    a, xp = filled((4, 5)), session.xp
    x = session.put(a)
    once = xp.roll(x, 1, axis=1)
    np.testing.assert_array_equal(xp.roll(once, 1, axis=0).get(), np.roll(np.roll(a, 1, 1), 1, 0))
    np.testing.assert_array_equal(xp.sum(once * x, axis=0).get(), (np.roll(a, 1, 1) * a).sum(0))
    row = session.put(filled((5,)))
    np.testing.assert_array_equal((xp.roll(x, 2, axis=0) + row).get(), np.roll(a, 2, 0) + filled((5,)))
    np.testing.assert_array_equal(
        (xp.roll(x * 2, 1, axis=0) - xp.roll(row, 1)).get(), np.roll(2 * a, 1, 0) - np.roll(filled((5,)), 1)
    )
    np.testing.assert_array_equal((once @ x.T).get(), np.roll(a, 1, 1) @ a.T)
    np.testing.assert_array_equal(once[1:, 2].get(), np.roll(a, 1, 1)[1:, 2])
    assert xp.roll(session.put(np.zeros((0, 3))), 1, axis=1).get().shape == (0, 3)


@pytest.mark.parametrize("dtype", ["bool", "f2", "u1", "c16", "i8"])
def test_dtypes_of_rolls(session: cb.sync.Device, dtype: str) -> None:
    a = (filled((3, 5)) % 2).astype(dtype)
    found = session.xp.roll(session.put(a), (1, -2), axis=(0, 1)).get()
    assert found.dtype == a.dtype
    np.testing.assert_array_equal(found, np.roll(a, (1, -2), (0, 1)))


def test_a_roll_precedes_the_free_of_its_array(session: cb.sync.Device) -> None:
    x = session.put(filled((3, 4)))
    rolled = session.xp.roll(x, 1, axis=0)
    x.free()
    np.testing.assert_array_equal(rolled.get(), np.roll(filled((3, 4)), 1, 0))
