"""``x[…]`` and ``x[…] = y`` with arrays and masks, against NumPy."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import callboard as cb

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)

HOST = np.arange(60.0).reshape(3, 4, 5)


def on(session: cb.sync.Device, index: Any) -> Any:
    """The index with its arrays on the device."""
    if isinstance(index, tuple):
        return tuple(on(session, item) for item in index)
    return session.array(index) if isinstance(index, np.ndarray) else index


@st.composite
def indices(draw: Any) -> Any:
    """Up to three items: integers, slices, new axes, and arrays of integers of shapes that broadcast."""
    shape = draw(st.sampled_from([(2,), (3, 2), (), (1,)]))
    items: list[Any] = []
    for extent in HOST.shape[: draw(st.integers(1, 3))]:
        kind = draw(st.sampled_from(["int", "slice", "array", "array", "new"]))
        if kind == "new":
            items.append(None)
        if kind == "array":
            dtype = draw(st.sampled_from(["i1", "i4", "i8", "u1"]))
            low = 0 if dtype == "u1" else -extent
            seed = draw(st.integers(0, 99))
            items.append(np.random.default_rng(seed).integers(low, extent, shape).astype(dtype))
        elif kind == "int":
            items.append(draw(st.integers(-extent, extent - 1)))
        else:
            items.append(draw(st.sampled_from([slice(None), slice(None, None, -1), slice(1, None), slice(0, 2)])))
    return tuple(items)


@SHARED
@given(index=indices())
def test_index_by_arrays_is_numpys(session: cb.sync.Device, index: Any) -> None:
    got = session.array(HOST)[on(session, index)]
    np.testing.assert_array_equal(got.get(), HOST[index])


@SHARED
@given(index=indices(), number=st.booleans())
def test_assignment_by_arrays_is_numpys(session: cb.sync.Device, index: Any, number: bool) -> None:
    x, want = session.array(HOST), HOST.copy()
    shape = want[index].shape
    places = np.arange(60).reshape(HOST.shape)[index]
    if np.unique(places).size < places.size:
        number = True  # an element that is named twice keeps any of its values
    value = np.float32(-1.5) if number else -1 - np.arange(float(np.prod(shape))).reshape(shape)
    want[index] = value
    x[on(session, index)] = float(value) if number else session.array(value)
    np.testing.assert_array_equal(x.get(), want)


def test_lists_are_taken_to_the_device(session: cb.sync.Device) -> None:
    np.testing.assert_array_equal(session.array(HOST)[[2, 0], :, [1, 1]].get(), HOST[[2, 0], :, [1, 1]])


@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 4), (3,)])
def test_masks(session: cb.sync.Device, shape: tuple[int, ...]) -> None:
    mask = np.random.default_rng(3).integers(0, 2, shape).astype(bool)
    x, on_device = session.array(HOST), session.array(mask)
    np.testing.assert_array_equal(x[on_device].get(), HOST[mask])
    want = HOST.copy()
    want[mask] = -1
    x[on_device] = -1
    np.testing.assert_array_equal(x.get(), want)
    values = np.random.default_rng(4).normal(size=HOST[mask].shape)
    want[mask] = values
    x[on_device] = session.array(values)
    np.testing.assert_array_equal(x.get(), want)
    x[session.xp.zeros(shape, dtype=bool)] = session.array(values[:0])
    np.testing.assert_array_equal(x.get(), want)


def test_assignment_through_views_and_dtypes(session: cb.sync.Device) -> None:
    x = session.array(np.zeros((3, 4), "f4"))
    x[1] = session.array([1, 2, 3, 4])  # integers to floats
    x[:, 0] = session.array([[7.0, 8.0, 9.0]])[0]
    x[2, 1:] = x[2, :-1]  # overlaps
    x[...] = x.get()[::-1].copy()  # values of the host are taken to the device
    want = np.zeros((3, 4), "f4")
    want[1] = [1, 2, 3, 4]
    want[:, 0] = [7, 8, 9]
    want[2, 1:] = want[2, :-1].copy()
    np.testing.assert_array_equal(x.get(), want[::-1])
    flags = session.xp.zeros(3, dtype=bool)
    flags[1] = True
    flags[session.array([0])] = 1
    np.testing.assert_array_equal(flags.get(), [True, True, False])


def test_wrong_indices_are_told(session: cb.sync.Device) -> None:
    x = session.array(HOST)
    for index, error, text in (
        (session.array([1.5]), TypeError, "indices are integers, or bools as a mask"),
        (session.xp.ones((4,), dtype=bool), IndexError, "its first axes must have that shape"),
        ((session.array([0]), 0, 0, 0), IndexError, "4 indices"),
        ((slice(None), session.xp.ones((3,), dtype=bool)), IndexError, "its axes from 1 on must have that shape"),
        ((..., 0, ...), IndexError, "only once"),
    ):
        with pytest.raises(error, match=text):
            x[index]
    with pytest.raises(cb.ShapeError, match="out of range"):
        x[session.array([3])].get()
    with pytest.raises(cb.ShapeError, match="broadcast"):
        x[0] = session.array(np.zeros(7))
    with pytest.raises(cb.ShapeError, match="selects 3 elements"):
        x[session.xp.ones((3,), dtype=bool)] = session.array(HOST[:2])  # fewer values than places
    np.testing.assert_array_equal(x.get(), HOST)


@pytest.mark.parametrize(
    "index",
    [
        True,
        False,
        (True, 1),
        (slice(1, None), False, 0),
        (True, np.array([1, 0])),
        (slice(None), np.array([True, False, True, True])),
        (np.array([True, False, True]), ..., 0),
        (np.array([True, False, True]), slice(None), np.array([0, 4])),
        (0, np.array([True, False, True, True]), None, [1]),
        (np.ones((3, 4), bool), np.array([1])),
        (np.array(1), 2),
        (np.array([2, 0]), ..., np.array([1, 1]), slice(1, 3)),  # the dots stand for no axis
        np.zeros((3, 4), bool),
    ],
)
def test_masks_and_bools_beside_other_items(session: cb.sync.Device, index: Any) -> None:
    for taken in (index, on(session, index)):
        np.testing.assert_array_equal(session.array(HOST)[taken].get(), HOST[index])
        want, x = HOST.copy(), session.array(HOST)
        want[index] = value = -np.arange(1.0 * HOST[index].size).reshape(HOST[index].shape)
        x[taken] = value
        np.testing.assert_array_equal(x.get(), want)


def test_a_mask_of_no_axes_and_one_without_elements(session: cb.sync.Device) -> None:
    x, empty = session.array(HOST), np.zeros((0, 2))
    np.testing.assert_array_equal(x[session.array(np.array(True)), 0].get(), HOST[np.array(True), 0])
    assert session.array(empty)[np.zeros((0, 2), bool)].shape == (0,)  # not taken for indices
    assert session.array(empty)[np.zeros(0, bool)].shape == (0, 2)


def test_values_of_a_mask_broadcast_and_are_counted(session: cb.sync.Device) -> None:
    mask = np.array([True, False, True])
    for shape in ((5,), (4, 5), (1, 4, 5), (1, 1, 4, 1), (2, 4, 5), (2, 1, 5), (1, 2, 4, 5)):
        x, want, values = session.array(HOST), HOST.copy(), np.random.default_rng(0).normal(size=shape)
        x[session.array(mask)], want[mask] = values, values
        np.testing.assert_array_equal(x.get(), want)
    for shape in ((0, 4, 5), (1, 3, 4, 5), (3, 4, 5)):
        x = session.array(HOST)
        with pytest.raises(cb.ShapeError, match="selects 2 elements"):
            x[session.array(mask)] = np.zeros(shape)
        np.testing.assert_array_equal(x.get(), HOST)
    with pytest.raises(cb.ShapeError, match=r"it must have the shape \(4, 5\), or one that broadcasts to it"):
        session.array(HOST)[session.array(mask)] = np.zeros((2, 3, 5))


def test_values_masks_and_indices_may_share_the_memory_that_is_written(session: cb.sync.Device) -> None:
    want, x = np.arange(10.0), session.array(np.arange(10.0))
    want[want > 5] = want[1]
    x[x > 5] = x[1]
    want[[3, 4, 5]] = want[[0, 1, 2]]
    x[[3, 4, 5]] = x[:3]
    np.testing.assert_array_equal(x.get(), want)
    flags = session.array(np.array([True, False, True]))
    flags[flags] = flags[1]
    assert not flags.get().any()
    turned = session.array(np.array([2, 0, 1]))
    turned[turned] = turned[::-1]
    np.testing.assert_array_equal(turned.get(), [0, 2, 1])


async def test_masks_of_the_host_need_no_await() -> None:
    async with cb.device("cpu", isolation="thread", standby=None) as device:
        x, mask = device.array(HOST), np.array([True, False, True, True])
        assert x[:, mask].shape == (3, 3, 5)
        np.testing.assert_array_equal(await x[:, mask].get(), HOST[:, mask])
        with pytest.raises(cb.ShapeError, match="take them in two steps"):
            x[:, device.array(mask)]


async def test_what_depends_on_data_is_awaited_first() -> None:
    async with cb.device("cpu", isolation="thread", standby=None) as device:
        xp, x = device.xp, device.array(HOST)
        kept = x[x > 50]
        with pytest.raises(cb.ShapeError, match="await it first"):
            _ = kept.shape
        assert (await kept).shape == (9,)
        np.testing.assert_array_equal(await kept.get(), HOST[HOST > 50])
        rows = x[:, 0, 0] > 10
        with pytest.raises(cb.ShapeError, match=r"take them in two steps, `i, = xp\.nonzero\(mask\); x\[await i\]`"):
            x[rows]
        (places,) = xp.nonzero(rows)
        np.testing.assert_array_equal(await x[await places].get(), HOST[1:])
        for what, use in (("bool", bool), ("float", float), ("item", lambda y: y.item())):
            with pytest.raises(TypeError, match=rf"{what}\(\) of a GpuRef .*`await ref\.get\(\)`"):
                use(x[0, 0, 0])
        with pytest.raises(TypeError, match=r"pass \(await repeats\.get\(\)\)"):
            xp.repeat(x[0, 0], device.array([1, 2, 3, 4, 5]))
        with pytest.raises(cb.DeviceMismatch):
            x.to_device("elsewhere")
        assert x.to_device(x.device) is x


def test_a_failed_operand_fails_what_reads_it_and_nothing_else(session: cb.sync.Device) -> None:
    """Also as the first of several in one field, which once ended the host."""
    x = session.array([1.0, 2.0])
    wrong = x[session.array([5])]
    chained = session.xp.exp(wrong + x[:1]) - session.xp.concat([x[:1], wrong])[:1]
    with pytest.raises(cb.ShapeError, match="indices\\[0\\] holds 5"):
        chained.get()
    np.testing.assert_array_equal((x + x).get(), [2.0, 4.0])


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (0, 0)])
@pytest.mark.parametrize("on_device", [True, False])
def test_a_mask_without_elements_selects_nothing(session: cb.sync.Device, shape: Any, on_device: bool) -> None:
    host = np.arange(12.0).reshape(3, 4)
    x = session.array(host)
    mask = np.zeros(shape, bool)
    there: Any = session.array(mask) if on_device else mask
    assert x[there].get().shape == host[mask].shape
    x[there] = 7
    np.testing.assert_array_equal(x.get(), host)
    with pytest.raises(IndexError, match="a mask is bool"):
        x[np.zeros((0, 5), bool)]


@pytest.mark.parametrize("index", [[[]], [[[]]], (slice(None), [[]]), ([], [])])
def test_nested_lists_without_items_select_nothing(session: cb.sync.Device, index: Any) -> None:
    host = np.arange(12.0).reshape(3, 4)
    assert session.array(host)[index].get().shape == host[index].shape
