"""Assignments that their data refuse: an error that names them, and the array as it was."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import callboard as cb

HOST = np.arange(12, dtype="f4").reshape(4, 3)
FLAGS = HOST > 4
ROWS = np.array([True, False, True, True])
View = Callable[[Any], Any]
VIEWS: dict[str, View] = {"all": lambda x: x, "reversed": lambda x: x[::-1], "transposed": lambda x: x.T}


def lines(n: int) -> Any:
    return np.arange(n, dtype="f4") + 100


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("on_device", [True, False])
@pytest.mark.parametrize("wrong", [0, 2, 6, 8, 12])
def test_a_mask_with_another_number_of_places(session: cb.sync.Device, view: str, on_device: bool, wrong: int) -> None:
    x, flags = session.array(HOST), VIEWS[view](FLAGS)
    mask = session.array(flags) if on_device else flags
    with pytest.raises(cb.ShapeError, match=f"selects 7 elements .*, and the value is f32\\[{wrong}\\]"):
        VIEWS[view](x)[mask] = session.array(lines(wrong))
    np.testing.assert_array_equal(x.get(), HOST)
    want = HOST.copy()
    VIEWS[view](x)[mask] = session.array(lines(7))
    VIEWS[view](want)[flags] = lines(7)
    np.testing.assert_array_equal(x.get(), want)
    VIEWS[view](x)[mask] = session.array(lines(1))
    VIEWS[view](want)[flags] = lines(1)
    np.testing.assert_array_equal(x.get(), want)


@pytest.mark.parametrize("on_device", [True, False])
def test_a_mask_of_lines(session: cb.sync.Device, on_device: bool) -> None:
    x, mask = session.array(HOST), session.array(ROWS) if on_device else ROWS
    with pytest.raises(cb.ShapeError, match=r"selects 3 elements|broadcast"):
        x[mask] = session.array(HOST[:2])
    np.testing.assert_array_equal(x.get(), HOST)
    x[mask] = session.array(-HOST[:3])
    want = HOST.copy()
    want[ROWS] = -HOST[:3]
    np.testing.assert_array_equal(x.get(), want)


def test_masks_that_hold_nowhere(session: cb.sync.Device) -> None:
    x = session.array(HOST)
    for mask in (session.xp.zeros((4, 3), dtype=bool), np.zeros((4, 3), bool)):
        x[mask] = session.array(lines(0))
        with pytest.raises(cb.ShapeError, match="selects 0 elements"):
            x[mask] = session.array(lines(2))
    empty = session.xp.zeros((0, 3))
    empty[empty > 0] = session.array(lines(0))
    with pytest.raises(cb.ShapeError, match="selects 0 elements"):
        empty[empty > 0] = session.array(lines(2))
    np.testing.assert_array_equal(x.get(), HOST)


INDICES: dict[str, Callable[[Any], Any]] = {
    "rows": lambda array: array([0, 4]),
    "from the end": lambda array: array([-5, 1]),
    "both axes": lambda array: (array([0, 1]), array([2, 3])),
    "columns": lambda array: (slice(None), array([3])),
}


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("on_device", [True, False])
def test_indices_out_of_range(session: cb.sync.Device, index: str, on_device: bool) -> None:
    x, at = session.array(HOST), INDICES[index](session.array if on_device else np.array)
    with pytest.raises(cb.ShapeError if on_device else IndexError, match="out of range"):
        x[at] = 7
    np.testing.assert_array_equal(x.get(), HOST)
    y = x + 1
    y += 1
    np.testing.assert_array_equal(y.get(), HOST + 2)
    with pytest.raises(cb.ShapeError, match="out of range"):
        x[at].get()


def test_a_list_out_of_range_is_an_index_error(session: cb.sync.Device) -> None:
    x = session.array(HOST)
    for at in ([4], [[0, -5]], (0, [3])):
        with pytest.raises(IndexError, match="is out of range for axis"):
            x[at]
        with pytest.raises(IndexError, match="is out of range for axis"):
            x[at] = 1
    assert x[[]].shape == (0, 3)


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_a_program_that_does_not_wait_is_told_once(isolation: str) -> None:
    async with cb.System("told") as system:
        dev = await system.device("cpu", isolation=isolation, standby=None)
        x = dev.array(HOST)

        async def refused(write: Callable[[], None], match: str) -> None:
            write()
            with pytest.raises(cb.ShapeError, match=match):
                await x.get()
            np.testing.assert_array_equal(await x.get(), HOST)

        await refused(lambda: x.__setitem__(dev.array([0, 4]), 7), "out of range")
        for count in (0, 6, 8):
            write = lambda count=count: x.__setitem__(dev.array(FLAGS), dev.array(lines(count)))
            await refused(write, "array.scatter: ")
        x[dev.array([9])] = 7
        x[dev.array([0])] = 7  # is written, and hands the error on
        with pytest.raises(cb.ShapeError, match="holds 9, out of range"):
            await x.get()
        want = HOST.copy()
        want[0] = 7
        assert (await x.get())[1:].tolist() == want[1:].tolist()
        x[dev.array(FLAGS)] = dev.array(lines(7))
        assert (await x.get())[FLAGS].tolist() == lines(7).tolist()
        with pytest.raises(cb.ShapeError, match="selects 7 elements"):
            x[FLAGS] = dev.array(lines(6))
        x[dev.array(np.zeros((4, 3), bool))] = dev.array(lines(0))
        assert (await x.get())[FLAGS].tolist() == lines(7).tolist()


async def test_a_scatter_hands_its_error_to_the_next_reader_only(cpu_device: cb.Device) -> None:
    x = cpu_device.put(HOST)
    written = cpu_device.array.scatter(out=x, values=cpu_device.zeros((1, 3)), indices=(cpu_device.put(np.array([4])),))
    after = cpu_device.copy(written)
    for ref in (written, after):
        with pytest.raises(cb.ShapeError, match="out of range"):
            await ref
    np.testing.assert_array_equal(await x.get(), HOST)
