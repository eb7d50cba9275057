"""Copies between views of host and device arrays: rows at a pitch, in slices, and what has to be packed."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sessions import CPU, HOSTS, opened

from callboard.core.errors import ShapeError
from callboard.testing.device_session import DeviceSession

BOUND = 60.0


@pytest.fixture(scope="module", params=[*CPU[1:], *HOSTS])
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Sessions with a host: those of a library alone have no arenas."""
    yield from opened(request.param)


# Of a device array [6, 40, 64] of 4 bytes, and of the host's: what becomes one transfer.
ROWS = {
    "all": (lambda x: x, lambda x: x),
    "one row": (lambda x: x[2, 3, 5:], lambda x: x[1, 1, :59]),
    "rows": (lambda x: x[2, 4:9], lambda x: x[5, :5]),
    "rows at a pitch": (lambda x: x[2, 4:9, 7:40], lambda x: x[0, :5, 31:]),
    "every other row": (lambda x: x[2, 4:10:2], lambda x: x[0, 1:4]),
    "slices": (lambda x: x[1:5, 3:9], lambda x: x[2:6, 10:16]),
    "slices of rows at a pitch": (lambda x: x[1:5, 3:9, :20], lambda x: x[2:, ::4, 44:][:4, :6]),
    "every third slice": (lambda x: x[::3], lambda x: x[4:]),
    "nothing": (lambda x: x[3:3], lambda x: x[:0]),
}


@pytest.mark.parametrize("views", ROWS.values(), ids=ROWS.keys())
def test_rows_are_one_transfer_each_way(session: DeviceSession, views: Any) -> None:
    of_device, of_host = views
    device = session.device
    values = np.arange(6 * 40 * 64, dtype=np.int32).reshape(6, 40, 64)
    host = device.host_empty((6, 40, 64), "i32")
    host[...] = -values
    target = device.put(values)
    view = device.put(of_host(host), out=of_device(target))
    assert view.layout == of_device(target).layout
    expected = values.copy()
    of_device(expected)[...] = of_host(-values)
    np.testing.assert_array_equal(session.get(target), expected)
    back = device.host_empty((6, 40, 64), "i32")
    back[...] = 7
    device.memcpy(of_host(back), view).result(BOUND)
    expected = np.full_like(values, 7)
    of_host(expected)[...] = of_host(-values)
    np.testing.assert_array_equal(back, expected)


# Of any [6, 7, 8, 9]: what is packed on the way.
PACKED = {
    "backwards": lambda x: x[::-1, :, ::-1],
    "columns": lambda x: x[..., 3],
    "every other element": lambda x: x[..., ::2],
    "transposed": lambda x: x.T,
    "four axes": lambda x: x[1:4, 2:5, 3:6, 4:7],
}


@pytest.mark.parametrize("kind", ["i8", "f64", "c128"])
@pytest.mark.parametrize("view", PACKED.values(), ids=PACKED.keys())
def test_other_views_are_packed(session: DeviceSession, view: Any, kind: str) -> None:
    device = session.device
    values = (np.arange(6 * 7 * 8 * 9) % 100).reshape(6, 7, 8, 9).astype(device.empty(1, kind).dtype.np)
    for host in (np.empty_like(values), device.host_empty(values.shape, kind)):
        host[...] = -values
        target = device.put(values)
        device.memcpy(view(target), view(host))
        expected = values.copy()
        view(expected)[...] = view(-values)
        np.testing.assert_array_equal(session.get(target), expected)
        host[...] = 5
        expected = np.full_like(values, 5)
        got = view(target).get(out=view(host)).result(BOUND)
        view(expected)[...] = view(-values)
        np.testing.assert_array_equal(host, expected)
        assert np.shares_memory(got, host)


def test_what_is_longer_than_a_chunk_goes_in_parts(session: DeviceSession) -> None:
    device = session.device
    values = np.arange(9_000_000, dtype=np.float64).reshape(3000, 3000)
    target = device.zeros((3000, 3100), "f64")
    view = device.put(values, out=target[:, 50:3050])
    np.testing.assert_array_equal(session.get(view), values)
    again = device.put(2 * values, out=view, non_blocking=True)
    np.testing.assert_array_equal(session.get(again), 2 * values)
    assert not session.get(target)[:, :50].any()


def test_bytes_are_set_in_views(session: DeviceSession) -> None:
    device = session.device
    target = device.zeros((4, 6, 8), "i32")
    assert device.memset(target[1:3, ::2, 2:5], 0x81).layout == target[1:3, ::2, 2:5].layout
    expected = np.zeros((4, 6, 8), np.uint32)
    expected[1:3, ::2, 2:5] = 0x81818181
    np.testing.assert_array_equal(session.get(target).view(np.uint32), expected)
    number = device.zeros((), "f64")
    device.memset(number, 0)
    assert session.get(number) == 0


def test_what_does_not_fit_is_refused(session: DeviceSession) -> None:
    device = session.device
    target, values = device.zeros((4, 6)), np.zeros((4, 5), np.float32)
    with pytest.raises(ShapeError, match=r"put: out is f32\[4, 6\], the array is f32\[4, 5\]"):
        device.memcpy(target, values)
    with pytest.raises(ShapeError, match=r"out is f32\[4, 6\], the array is f64\[4, 6\]"):
        device.put(np.zeros((4, 6)), out=target)
    with pytest.raises(TypeError, match="put: out is ndarray; pass a GpuRef"):
        device.put(values, out=values)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="one of them is a GpuRef"):
        device.memcpy(values, values)  # type: ignore[call-overload]
    with pytest.raises(ShapeError, match="255"):
        device.memset(target, 256)
    with pytest.raises(ShapeError, match="get: out is"):
        target.get(out=values)
