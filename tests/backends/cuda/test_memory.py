"""Fills and copies over a stand-in for the driver that works on host memory.

The kernels themselves run on a GPU only; here their arguments are executed as the kernels would.
"""

import itertools
from typing import Any

import numpy as np
import pytest
from host_driver import HostDriver

from callboard.core.dtype import DTYPES
from callboard.core.errors import DriverError, ShapeError, UnsupportedOp
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.memory import Copy, Empty, Fill
from callboard.testing.session import LibrarySession, SessionArray


def values(shape: tuple[int, ...], dtype: str) -> "np.ndarray[Any, Any]":
    kind = DTYPES[dtype]
    count = int(np.prod(shape))
    octets = np.random.default_rng(count).integers(0, 256, count * kind.itemsize, np.uint8)
    if dtype == "f4_e2m1":
        octets &= 0xF
    if kind.kind == "bool":
        octets &= 1
    return octets.view(kind.np).reshape(shape)


def same_bytes(got: "np.ndarray[Any, Any]", want: "np.ndarray[Any, Any]") -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(np.ascontiguousarray(got).view(np.uint8), np.ascontiguousarray(want).view(np.uint8))


# Of an array [12, 10, 20]; the second part names those that become one call of the driver.
VIEWS = {
    "all": lambda x: x,
    "rows": lambda x: x[2:9],
    "backwards": lambda x: x[::-1],
    "part of a row": lambda x: x[4, 3, 2:],
    "one": lambda x: x[4, 3, 2:3],
    "pitched": lambda x: x[4, 1:9, 2:19],
    "pitched planes": lambda x: x[:, 2:, :],
    "narrow": lambda x: x[3, :, 5:7],
    "pairs": lambda x: x[3, :, 4:6],
    "column": lambda x: x[:, 4, 3],
    "every third": lambda x: x[0, 0, ::3],
    "all backwards": lambda x: x[::-1, ::-1, ::-1],
    "steps": lambda x: x[::2, ::3, ::-1],
    "transposed": lambda x: x.T,
    "transposed part": lambda x: x[3:, 2:9, 1:19:2].T,
    "empty": lambda x: x[:, 3:3],
}


@pytest.mark.parametrize("dtype", [*DTYPES])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_copies_of_views(session: LibrarySession, dtype: str, view: Any) -> None:
    base = values((12, 10, 20), dtype)
    same_bytes(session.get(session.submit(Copy(src=view(session.put(base))))), view(base))
    room, room_host = session.put(values((12, 10, 20), dtype)[::-1]), values((12, 10, 20), dtype)[::-1].copy()
    session.submit(Copy(src=session.put(view(base)), out=view(room)))
    view(room_host)[...] = view(base)
    same_bytes(session.get(room), room_host)


def test_a_new_array_is_not_written(session: LibrarySession) -> None:
    made = session.submit(Empty(shape=(3, 2), dtype="i32"))
    np.testing.assert_array_equal(session.get(made), np.full((3, 2), -1))  # as the session fills what it allocates


@pytest.mark.parametrize("source, target", list(itertools.permutations(["backwards", "all", "all backwards"], 2)))
def test_copies_between_views(session: LibrarySession, source: str, target: str) -> None:
    base, room_host = values((12, 10, 20), "i32"), np.zeros((12, 10, 20), "i4")
    room = session.put(room_host)
    session.submit(Copy(src=VIEWS[source](session.put(base)), out=VIEWS[target](room)))
    VIEWS[target](room_host)[...] = VIEWS[source](base)
    same_bytes(session.get(room), room_host)


@pytest.mark.parametrize(
    "view, call",
    [
        ("all", "memcpy_dtod"),
        ("rows", "memcpy_dtod"),
        ("pitched", "memcpy_2d"),
        ("pitched planes", "memcpy_2d"),
        ("narrow", "kernel copy_4"),  # not at a multiple of what would be an item of two
        ("pairs", "kernel copy_8"),
        ("transposed", "kernel transpose_4"),
        ("steps", "kernel copy_4"),
        ("backwards", "kernel copy_16"),
    ],
)
def test_the_cheapest_call_is_taken(session: LibrarySession, driver: HostDriver, view: str, call: str) -> None:
    src = VIEWS[view](session.put(values((12, 10, 20), "f32")))
    out = session.empty(src.shape, "f32")
    driver.calls.clear()
    session.submit(Copy(src=src, out=out))
    assert driver.calls == [call]


@pytest.mark.parametrize(
    "shape, last, call",
    [
        ((12, 10, 2), slice(None), "kernel transpose_8"),
        ((12, 10, 4), slice(None), "kernel transpose_16"),
        ((12, 10, 20), slice(None), "kernel copy_16"),
        ((12, 10, 20), slice(4, 6), "kernel copy_8"),
        ((12, 10, 20), slice(5, 7), "kernel copy_4"),  # 20 bytes on: not at a multiple of 8
        ((12, 10, 20), slice(4, 7), "kernel copy_4"),
    ],
)
def test_neighbours_on_both_sides_are_one_item(
    session: LibrarySession, driver: HostDriver, shape: tuple[int, ...], last: slice, call: str
) -> None:
    base = values(shape, "f32")
    part = session.put(base)[:, :, last]
    (m, n, k), (i, j, one) = part.layout.shape, part.layout.strides
    turned = SessionArray(part.block, layout_of(part.dtype, (n, m, k), (j, i, one)), part.offset)
    out = session.empty(turned.shape, "f32")
    driver.calls.clear()
    session.submit(Copy(src=turned, out=out))
    assert driver.calls == [call]
    same_bytes(session.get(out), base[:, :, last].swapaxes(0, 1))


def test_more_axes_than_the_kernels_take_are_refused(session: LibrarySession) -> None:
    base = values((3,) * 9, "u8")
    same_bytes(session.get(session.put(base)[(slice(None, None, 2),) * 9]), base[(slice(None, None, 2),) * 9])
    apart = layout_of(DTYPES["u8"], (2,) * 33, tuple(3**k for k in range(33)))
    for op in (Copy(src=Placeholder(apart)), Fill(out=Placeholder(apart))):
        assert "33 axes that cannot be merged; at most 32" in (session.why_not(op) or "")


def numbers(dtype: str) -> tuple[Any, ...]:
    match DTYPES[dtype].kind:
        case "float":
            special = {"f8_e4m3": (float("nan"),), "f4_e2m1": ()}.get(dtype, (float("inf"), float("nan")))
            return (0.0, -0.0, 1.5, -3.0, *special)
        case "complex":
            return (0.0, 1.5 - 2.0j, 3.0)
        case "int":
            return (0.0, 5.0, -2.0)
    return (0.0, 1.0, 5.0)


@pytest.mark.parametrize("dtype", [*DTYPES])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_fills_of_views(session: LibrarySession, dtype: str, view: Any) -> None:
    base = values((12, 10, 20), dtype)
    for number in numbers(dtype):
        x, want = session.put(base), base.copy()
        session.submit(Fill(out=view(x), fill_value=number))
        with np.errstate(all="ignore"):
            view(want)[...] = number
        same_bytes(session.get(x), want)


@pytest.mark.parametrize(
    "dtype, number, call",
    [("f64", 0.0, "memset"), ("f64", 1.0, "kernel fill_8"), ("c128", 0.0, "memset"), ("f32", 1.0, "memset")],
)
def test_zeros_are_memory_sets(
    session: LibrarySession, driver: HostDriver, dtype: str, number: float, call: str
) -> None:
    x = session.empty((5, 6), dtype)
    driver.calls.clear()
    session.submit(Fill(out=x, fill_value=number))
    assert driver.calls == [call]


@pytest.mark.parametrize("source, target", list(itertools.product(DTYPES, DTYPES)))
def test_fills_from_the_device(session: LibrarySession, source: str, target: str) -> None:
    value = np.asarray(3).astype(DTYPES[source].np)
    op = Fill(out=session.empty((4, 6), target).T[::-1], fill_value=session.put(value))
    if DTYPES[source].is_complex and not DTYPES[target].is_complex:
        with pytest.raises(UnsupportedOp, match="take its real part first"):
            session.submit(op)
        return
    got = session.get(session.submit(op))
    same_bytes(got, np.broadcast_to(value.astype(DTYPES[target].np), (6, 4)))


def test_a_complex_number_needs_a_complex_array(session: LibrarySession) -> None:
    with pytest.raises(ShapeError, match="complex"):
        session.submit(Fill(out=session.empty(3, "f32"), fill_value=1j))


def test_a_broadcast_source(session: LibrarySession) -> None:
    row = session.put(values((6,), "c64"))
    spread = SessionArray(row.block, layout_of(row.dtype, (5, 6), (0, 1)))
    same_bytes(session.get(session.submit(Copy(src=spread))), np.broadcast_to(session.get(row), (5, 6)))


@pytest.mark.parametrize("name", ["memcpy_htod", "memcpy_dtoh", "memcpy_dtod"])
def test_a_refused_copy_is_a_driver_error(session: LibrarySession, driver: HostDriver, name: str) -> None:
    x = session.put(values((4, 4), "f32"))
    driver.statuses[name] = 1
    with pytest.raises(DriverError, match="INVALID_VALUE") as caught:
        session.get(session.submit(Copy(src=session.put(values((4, 4), "f32")), out=x)))
    assert caught.value.code == 1
