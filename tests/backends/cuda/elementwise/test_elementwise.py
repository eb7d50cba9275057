"""The generated kernels as they are: compiled by g++ and run on host memory, thread by thread.

The conformance suites show the numbers on a GPU; here it is where each thread reads and writes, and every launch on
whatever machine has a compiler.
"""

from typing import Any

import numpy as np
import pytest
from host_backend import HostSession
from host_compiler import CompilingDriver

from callboard.backends.cuda.elementwise import across, mapping, shape
from callboard.backends.cuda.elementwise.axes import divider, walk_of
from callboard.kernel.elementwise import Map, MapMany, Reduce


def small(shape: tuple[int, ...], dtype: str = "f4", seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-5, 6, shape).astype(dtype)


def grids(host: HostSession) -> list[tuple[int, int]]:
    assert isinstance(host.driver, CompilingDriver)
    return host.driver.grids


@pytest.mark.parametrize("size", [1, 5, 4096, 9001])
def test_packs_and_what_lies_behind_them(host: HostSession, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "MAX_BLOCKS", 2)  # the kernel steps over the rest
    x, y = small((size,)), small((size,), seed=1)
    refs = host.put(x), host.put(y)
    op = Map(expression="alpha * x + max(y, 0)", operands=refs, scalars=(2.5,), numbers=("alpha",))
    np.testing.assert_array_equal(host.get(host.submit(op)), np.float32(2.5) * x + np.maximum(y, 0))
    assert grids(host)[-1] == (min(2, -(-size // 1024)), 1)


def test_addresses_that_no_pack_has(host: HostSession) -> None:
    x = small((4097,))
    shifted = host.put(x)[1:]
    np.testing.assert_array_equal(host.get(host.submit(Map(expression="x * x", operands=(shifted,)))), (x * x)[1:])


def test_rows_columns_and_transposed_views(host: HostSession) -> None:
    x, row, column = small((24, 36)), small((36,), seed=1), small((24, 1), seed=2)
    refs = host.put(x), host.put(row), host.put(column)
    got = host.get(host.submit(Map(expression="x * r + c", operands=refs)))
    np.testing.assert_array_equal(got, x * row + column)
    turned = host.put(np.ascontiguousarray(x.T)).T[::-1]
    got = host.get(host.submit(Map(expression="x + y", operands=(refs[0], turned))))
    np.testing.assert_array_equal(got, x + x[::-1])


def test_large_operands_that_lie_across_are_transposed_first(
    host: HostSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(across, "LARGE", 64)
    x, y, z = small((24, 36)), small((36, 24), seed=1), small((36, 24), "i2", seed=2)
    at_x, at_y, at_z = (host.put(a) for a in (x, y, z))
    calls = host.driver.calls
    calls.clear()
    got = host.get(host.submit(Map(expression="x * y + z", operands=(at_x, at_y.T, at_z.T))))
    np.testing.assert_array_equal(got, x * y.T + z.T)
    assert sum("transpose" in call for call in calls) == 2
    host.submit(Map(expression="y = x - y", operands=(at_x.T, at_y), out=at_y))
    np.testing.assert_array_equal(host.get(at_y), x.T - y)


def test_indices_of_64_bits(host: HostSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from callboard.backends.cuda.elementwise import axes

    monkeypatch.setattr(axes, "is_wide", lambda *_: True)
    x, row = small((24, 37)), small((37,), seed=1)
    refs = host.put(x), host.put(row)
    np.testing.assert_array_equal(host.get(host.submit(Map(expression="x - r", operands=refs))), x - row)
    np.testing.assert_array_equal(
        host.get(host.submit(Reduce(expression="sum(x - r)", operands=refs))), (x - row).sum()
    )


def test_results_of_several_dtypes_in_one_pass(host: HostSession) -> None:
    x = small((1003,), "f2")
    outs = host.empty(x.shape, "bool"), host.empty(x.shape, "f64"), host.empty(x.shape, "f16")
    text = "p = x > 0; d = f64(x) / 3; x = x * 2"
    host.submit(MapMany(expression=text, operands=(host.put(x),), outs=outs, keep=("p", "d", "x")))
    for out, want in zip(outs, (x > 0, x.astype("f8") / 3, x * 2), strict=True):
        np.testing.assert_array_equal(host.get(out), want)


@pytest.mark.parametrize(
    "shape_, axis",
    [
        ((70_001,), None),
        ((5000, 3), 0),
        pytest.param((3, 5000), 1, marks=pytest.mark.slow),
        pytest.param((40, 30, 20), 1, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("text", ["sum(x * x)", "argmin(x)"])
@pytest.mark.few(2)
def test_reductions_in_parts(host: HostSession, text: str, shape_: tuple[int, ...], axis: int | None) -> None:
    x = small(shape_)
    axes = None if axis is None else (axis,)
    got = host.get(host.submit(Reduce(expression=text, operands=(host.put(x),), axes=axes)))
    want = (x * x).sum(axis) if text.startswith("sum") else x.argmin(axis)
    np.testing.assert_array_equal(got, want)


def test_a_plan_gives_its_part_of_the_workspace_back(host: HostSession) -> None:
    op = Reduce(expression="max(x)", operands=(host.put(small((300_000,))),))
    host.submit(op)
    assert grids(host)[-2][1] > 1, "divided among blocks"
    library: Any = host._libraries["elementwise"]
    before = sum(room.plans for room in library.workspace._rooms)
    plan = library.prepare(op)
    assert sum(room.plans for room in library.workspace._rooms) == before + 1
    plan.close()
    plan.close()
    assert sum(room.plans for room in library.workspace._rooms) == before


def test_dividers_divide() -> None:
    numbers = np.array([0, 1, 6, 7, 8, 1000, 2**31 - 1, 2**30 + 7], np.uint64)
    for d in (1, 2, 3, 7, 10, 641, 65_537, 2**31 - 1):
        divisor, factor, shift = divider(d)
        assert divisor == d
        high = numbers * np.uint64(factor) >> np.uint64(32)
        assert ((high + numbers >> np.uint64(shift)) == numbers // np.uint64(d)).all()


def test_shapes_of_reductions_depend_on_extents_alone() -> None:
    assert shape.shape_of(1, 25_000_000, along=True).splits > 100
    assert shape.shape_of(10_000, 2500, along=True).splits == 1
    assert shape.shape_of(10**7, 10, along=False).lanes == 1
    for outputs, packs in ((1, 1), (1, 0), (7, 100_000), (5000, 3)):
        for along in (True, False):
            one = shape.shape_of(outputs, packs, along)
            assert one.share * one.splits >= packs > one.share * (one.splits - 1) or packs == 0
            assert one.lanes & one.lanes - 1 == 0


def test_walks_take_neighbours_at_once_where_all_arrays_have_them() -> None:
    assert walk_of((100,), [(1,), (1,)], [4, 4], 1).pack == 4
    assert walk_of((100,), [(1,), (1,)], [8, 1], 1).pack == 4
    assert walk_of((101,), [(1,), (1,)], [4, 4], 1).tail == 1
    assert walk_of((10, 6), [(0, 1), (6, 1)], [4, 4], 1).pack == 2
    assert walk_of((10, 7), [(0, 1), (8, 1)], [4, 4], 1).pack == 1
    assert walk_of((10, 8), [(1, 10), (8, 1)], [4, 4], 1).pack == 1


@pytest.mark.parametrize("shape", [(7,), (4, 6), (3, 1, 5)])
def test_rolled_operands(host: HostSession, shape: tuple[int, ...]) -> None:
    """A stencil is one launch; the places are arguments, so that one kernel serves all of them."""
    x, y = small(shape), small(shape[::-1], "i4", seed=1)
    refs = host.put(x), host.put(x), host.put(y).T
    compiled = len(host.driver.grids) if isinstance(host.driver, CompilingDriver) else 0
    for by in (1, -2, 9, 0):
        places = (by,) * len(shape)
        op = Map(expression="a + 2 * b - c", operands=refs, shifts=(places, (0,) * len(shape), (1,) * len(shape)))
        axes = tuple(range(len(shape)))
        wanted = np.roll(x, places, axes) + 2 * x - np.roll(y.T, (1,) * len(shape), axes)
        np.testing.assert_array_equal(host.get(host.submit(op)), wanted)
    assert len(grids(host)) == compiled + 4
