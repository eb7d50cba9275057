"""``SpatialIndexActor``: against SciPy's cKDTree, and what the original did wrong."""

import asyncio
import importlib
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree
from tests.realtime.text_lab import run_text

import callboard as cb
from callboard.realtime.base import live
from callboard.realtime.cloth import plain as cloth
from callboard.realtime.spatial import cuda, plain
from callboard.realtime.spatial.grid import grid_of

pytestmark = pytest.mark.timeout(180)  # where Numba is installed, it compiles a blueprint once


def sets(found: cb.Neighbors) -> list[list[int]]:
    return [sorted(row.tolist()) for row in np.split(found.ids, found.offsets[1:-1])]


async def same(index: cb.SpatialIndexActor, x: Any, box: float, places: Any) -> None:
    tree = cKDTree(x, boxsize=box or None)
    for radius in (0.0, 0.15, 3.0):
        wanted = [sorted(row) for row in tree.query_ball_point(places, radius)]
        found = await index.within(places, radius)
        assert sets(found) == wanted
        assert (await index.count_within(places, radius)).tolist() == [len(row) for row in wanted]
    distances, ids = tree.query(places, 4)
    near = await index.nearest(places, 4)
    np.testing.assert_array_equal(near.ids, ids)
    np.testing.assert_allclose(near.distances, distances, rtol=1e-12)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("box", [0.0, 1.0])
@pytest.mark.parametrize("cell, outliers", [(None, 0), (0.15, 0), (0.15, 2)])
async def test_searches_find_what_a_tree_finds(dims: int, box: float, cell: float | None, outliers: int) -> None:
    draw = np.random.default_rng(dims)
    x = draw.uniform(0, 1, (60, dims))
    x[:outliers] *= 1e6 if not box else 1.0
    places = np.concatenate([x[:6], draw.uniform(0, 1, (6, dims))])
    async with cb.device("cpu", isolation=None) as gpu:
        index = cb.SpatialIndexActor(gpu, cell, dims=dims, box=box)
        assert index.rebuild(x) == 60
        await same(index, x, box, places)
        index.move([5, 3], places[-2:])
        x[[5, 3]] = places[-2:]
        await same(index, x, box, places[-5:-2])
        stats = index.stats()
        assert (stats.points, stats.uploads, stats.updates) == (60, 1, 1)
        assert stats.hashed == (bool(outliers) and not box)


@pytest.mark.parametrize("isolation", [None, "thread", "process"])
async def test_many_searches_and_points_find_what_a_tree_finds(isolation: Any) -> None:
    draw = np.random.default_rng(7)
    x, places = draw.uniform(0, 1, (25_000, 3)), draw.uniform(0, 1, (25_000, 3))
    assert places.nbytes > live.LARGE
    tree = cKDTree(x)
    async with cb.device("cpu", isolation=isolation) as gpu:
        index = cb.SpatialIndexActor(gpu, 0.04)
        index.rebuild(x)
        found = await index.count_within(places, 0.04)
        wanted = tree.query_ball_point(places, 0.04, return_length=True)
        np.testing.assert_array_equal(found, wanted)
        places[:] = 0.0  # they are the caller's, and so are the counts
        found += 1
        kept = await index.count_within(places[:3], 0.04)
        assert kept.tolist() == [len(tree.query_ball_point((0, 0, 0), 0.04))] * 3


async def test_searches_go_by_other_memory_where_none_of_the_devices_is_left(monkeypatch: Any) -> None:
    x = np.random.default_rng(8).uniform(0, 1, (25_000, 3))
    async with cb.device("cpu", isolation="process") as gpu:
        index = cb.SpatialIndexActor(gpu, 0.04)
        index.rebuild(x)
        wanted = await index.count_within(x, 0.03)

        def full(*shape: Any) -> Any:
            raise cb.MailboxFull("no room")

        monkeypatch.setattr(gpu, "host_empty", full)
        np.testing.assert_array_equal(await index.count_within(x, 0.03), wanted)


async def test_boxes_reach_over_the_edge_of_a_periodic_one() -> None:
    draw = np.random.default_rng(5)
    x, low = draw.uniform(0, 1, (50, 3)), draw.uniform(-0.5, 0.8, (9, 3))
    high = low + draw.uniform(0, 0.9, (9, 3))
    async with cb.device("cpu", isolation=None) as gpu:
        for box in (0.0, 1.0):
            index = cb.SpatialIndexActor(gpu, 0.2, box=box)
            index.rebuild(x)
            inside = [
                np.mod(x - a, 1.0) <= b - a if box else (x >= a) & (x <= b) for a, b in zip(low, high, strict=True)
            ]
            found = await index.inside(low, high)
            assert sets(found) == [np.flatnonzero(one.all(1)).tolist() for one in inside]
            assert found.distances is None


async def test_distance_decides_and_ids_are_the_callers() -> None:
    """The original gave every point of 27 cells, and had no ids but rows."""
    async with cb.device("cpu", isolation=None) as gpu:
        index = cb.SpatialIndexActor(gpu, 1.0)
        assert sets(await index.within([(0, 0, 0)], 1.0)) == [[]]
        assert (await index.nearest([(0, 0, 0)], 2)).ids.tolist() == [[-1, -1]]
        with pytest.raises(ValueError, match="ids has 18446744073709551615; they are kept in i8"):
            index.rebuild([(0, 0, 0)], ids=np.array([2**64 - 1], "u8"))
        index.rebuild([(0, 0, 0), (1.9, 0, 0), (0.5, 0, 0)], ids=[70, -3, 9])
        found = await index.within([(0, 0, 0), (1.9, 0, 0), (50, 0, 0)], [1.0, 0.0, 2.0])
        assert (found.offsets.tolist(), found.ids.tolist()) == ([0, 2, 3, 3], [70, 9, -3])
        assert found.distances.tolist() == [0, 0.5, 0]
        near = await index.nearest([(2, 0, 0)], 4)
        assert near.ids.tolist() == [[-3, 9, 70, -1]]
        np.testing.assert_allclose(near.distances, [[0.1, 1.5, 2, np.inf]])


async def test_operands_that_do_not_fit_change_nothing() -> None:
    async with cb.device("cpu", isolation=None) as gpu:
        index = cb.SpatialIndexActor(gpu, dims=2)
        index.rebuild([(0, 0), (1, 1)], [4, 5])
        with pytest.raises(ValueError, match="ids has 7 twice"):
            index.rebuild([(0, 0), (1, 1)], [7, 7])
        with pytest.raises(ValueError, match=r"points: row 1 is \[nan, 0.0\]"):
            index.rebuild([(0, 0), (np.nan, 0)])
        with pytest.raises(ValueError, match=r"ids\[1\] is 6, which is no point"):
            index.move([5, 6], [(0, 0), (0, 0)])
        with pytest.raises(cb.ShapeError, match=r"points has shape \[1, 3\]; expected \[rows, 2\]"):
            await index.within([(0, 0, 0)], 1)
        with pytest.raises(ValueError, match="radius is -1"):
            await index.within([(0, 0)], -1)
        with pytest.raises(ValueError, match="high: row 0 is"):
            await index.inside([(0, 1)], [(0, 0)])
        with pytest.raises(cb.ShapeError, match="box has 3 periods for 2 dimensions"):
            cb.SpatialIndexActor(gpu, dims=2, box=(1, 1, 1))
        assert sets(await index.within([(0, 0)], 9)) == [[4, 5]]


async def test_a_lost_device_costs_no_point() -> None:
    async with cb.device("cpu", isolation="process") as gpu:
        index = cb.SpatialIndexActor(gpu, 0.5)
        index.rebuild(np.eye(3))
        assert sets(await index.within([(1, 0, 0)], 0.1)) == [[0]]
        index.move([2], [(1, 0.05, 0)])
        pid = gpu.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        found = await asyncio.gather(*(index.within([(1, 0, 0)], radius) for radius in (0.1, 2.0)))
        assert [sets(one) for one in found] == [[[0, 2]], [[0, 1, 2]]]


class Texts:
    """The CUDA texts, called as :mod:`.plain` is; threads take searches in some order, or their own."""

    def __init__(self, turned: bool = True) -> None:
        self.turned = turned

    def turn(self, size: int) -> Any:
        return np.random.default_rng(size).permutation(size if self.turned else 0).astype("i4")

    def keyed(self, p: Any, world: Any, key: Any, index: Any, size: int) -> None:
        launch(cuda.KEYED, "keyed", len(key), p, world, key, index, len(key), size)

    def places(self, p: Any, order: Any, out: Any) -> None:
        launch(cuda.PLACES, "places", len(order), p, order, out, len(order))

    def count(self, a: Any, b: Any, points: Any, starts: Any, world: Any, counts: Any) -> None:
        turn = self.turn(len(a))
        numbers = len(a), *b.shape, len(turn), points.shape[1], len(starts)
        launch(cuda.COUNT, "count", len(a), a, b, turn, points, starts, world, counts, *numbers)
        if b.shape[1] == 1 and world[12] == 0 and not world[9:12].any():
            found = np.zeros_like(counts)
            numbers = len(a), len(b), len(turn), points.shape[1]
            launch(cuda.NEAR, "near", len(a), a, b, turn, points, starts, world, found, *numbers)
            np.testing.assert_array_equal(found, counts)

    def fill(self, a: Any, b: Any, *more: Any) -> None:
        turn = self.turn(len(a))
        numbers = len(a), *b.shape, len(turn), more[0].shape[1], len(more[2])
        launch(cuda.FILL, "fill", len(a), a, b, turn, *more, *numbers)

    def nearest(self, a: Any, points: Any, order: Any, starts: Any, world: Any, first: float, *out: Any) -> None:
        turn = self.turn(len(a))
        numbers = len(a), len(turn), points.shape[1], len(starts), out[0].shape[1], first
        launch(cuda.NEAREST, "nearest", len(a), a, turn, points, order, starts, world, *out, *numbers)


def launch(text: str, name: str, size: int, *args: Any) -> None:
    run_text(text, name, *args, blocks=-(-size // 8), threads=8)


def compiled() -> Any:
    pytest.importorskip("numba", reason="Numba compiles these: pip install 'callboard[realtime]'")
    return importlib.import_module("callboard.realtime.spatial.compiled")


@pytest.mark.parametrize("make", [compiled, Texts, partial(Texts, turned=False)], ids=["Numba", "turned", "CUDA"])
def test_the_other_bodies_find_what_numpy_does(make: Callable[[], Any]) -> None:
    draw = np.random.default_rng(1)
    for scale, period in ((1.0, 0.0), (1e5, 0.0), (1.0, 1.0)):
        x = draw.uniform(0, 1, (40, 3))
        x[:2] *= scale
        grid = grid_of(x, 0.2, np.full(3, period))
        a = np.concatenate([x[:3], x[20:26] + 0.01])
        boxes = a + draw.uniform(0, 0.5, a.shape)
        outcomes = []
        for by in (plain, make()):
            key, index, placed = np.zeros(40, "u4"), np.zeros(40, "i4"), np.zeros((3, 40))
            by.keyed(x, grid.world, key, index, grid.buckets)
            order = np.argsort(key, kind="stable").astype("i4")
            by.places(x, order, placed)
            starts = np.zeros(grid.buckets + 1, "i4")
            cloth.begins(key[order], starts)
            seen: list[Any] = [key, index, placed]
            for b in (np.full((1, 1), 0.25), np.linspace(0, 4, 9)[:, None], np.full((1, 1), 4.0), boxes):
                counts = np.zeros(9, "i8")
                by.count(a, b, placed, starts, grid.world, counts)
                ends = np.cumsum(counts)
                rows, distances = np.zeros(ends[-1], "i4"), np.zeros(ends[-1])
                by.fill(a, b, placed, order, starts, grid.world, ends - counts, rows, distances)
                seen += [counts, rows, distances]
            for k in (3, 41):
                rows, distances = np.zeros((9, k), "i4"), np.zeros((9, k))
                by.nearest(a, placed, order, starts, grid.world, 0.1, rows, distances)
                seen += [rows, distances]
            outcomes.append(seen)
        for one, other in zip(*outcomes, strict=True):
            np.testing.assert_array_equal(one, other)


@given(
    n=st.integers(1, 60),
    m=st.integers(1, 12),
    edge=st.floats(0.05, 1.0),
    radius=st.floats(0.0, 2.0),
    each=st.booleans(),
    scale=st.sampled_from([1.0, 1e-3, 1e5]),
    period=st.sampled_from([0.0, 1.0]),
    turned=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_counts_of_the_cuda_texts_are_those_of_numpy(
    n: int, m: int, edge: float, radius: float, each: bool, scale: float, period: float, turned: bool, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    x = np.round(draw.uniform(0, 1, (n, 3)), 1)  # some in one place, and at the same distance
    x[:1] *= 1.0 if period else scale
    a = np.concatenate([x[: m // 2], draw.uniform(0, 1, (m - len(x[: m // 2]), 3))])
    b = draw.uniform(0, radius, (m, 1)) if each else np.full((1, 1), np.round(radius, 1))
    grid = grid_of(x, edge, np.full(3, period))
    key, index, placed = np.zeros(n, "u4"), np.zeros(n, "i4"), np.zeros((3, n))
    starts, found, wanted = np.zeros(grid.buckets + 1, "i4"), np.zeros(m, "i8"), np.zeros(m, "i8")
    by = Texts(turned)
    by.keyed(x, grid.world, key, index, grid.buckets)
    order = np.argsort(key, kind="stable").astype("i4")
    by.places(x, order, placed)
    cloth.begins(key[order], starts)
    by.count(a, b, placed, starts, grid.world, found)
    plain.count(a, b, placed, starts, grid.world, wanted)
    np.testing.assert_array_equal(found, wanted)
