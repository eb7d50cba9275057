"""``SpatialIndexActor``: neighbours of points, on a device."""

import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from callboard.core.errors import ContextLost, MailboxFull, OutOfMemory, ShapeError
from callboard.core.ref.handle import GpuRef
from callboard.device.client.handle import Device
from callboard.realtime.base.asking import Asked
from callboard.realtime.base.checks import count, number, rows
from callboard.realtime.base.live import LARGE, fetched, lent
from callboard.realtime.cloth.kernels import begins
from callboard.realtime.spatial import kernels, messages
from callboard.realtime.spatial.answers import Nearest, Neighbors, SpatialStats
from callboard.realtime.spatial.grid import Grid, grid_of
from callboard.realtime.spatial.plain import cells

__all__ = ["SpatialIndexActor"]

R = TypeVar("R")
Floats = NDArray[np.float64]
LENDS = "cpu", "thread"
"""A device that reads any memory of this process; see :func:`.lent`."""
MANY = 1 << 13
"""Searches that take longer, each at other points than the next, than it takes to sort them."""
ATTEMPTS = 3
"""Contexts that a search may lose before it fails."""


class _Built(NamedTuple):
    points: GpuRef
    order: GpuRef
    starts: GpuRef
    world: GpuRef
    none: GpuRef
    ids: NDArray[np.int64]
    grid: Grid


class SpatialIndexActor(Asked):
    """Exact searches among points in two or three dimensions. The host keeps the points: a lost device costs none.

    ::

        index = cb.SpatialIndexActor(gpu, cell=0.1)
        index.rebuild(points)  # [n, 3]
        offsets, ids, distances = await index.within(places, 0.1)

    Coordinates are f64, and results are those of comparing every pair of points. A search at a point finds the point
    itself. Points may be anywhere; cells are hashed where there would be far more of them than points.

    Args:
        device: Open.
        cell: Edge of a cell, best about the radius that is asked for most; None: by the density of the points.
        dims: 2 or 3.
        box: The period of each axis, or one for all; 0: not periodic.

    Class attributes:
        Rebuild, QueryNeighbors, SpatialStatsOf: The messages that :meth:`ask` takes.

    Raises:
        ShapeError, TypeError, ValueError: An argument does not fit.
    """

    Rebuild: ClassVar = messages.Rebuild
    QueryNeighbors: ClassVar = messages.QueryNeighbors
    SpatialStatsOf: ClassVar = messages.SpatialStatsOf

    def __init__(
        self, device: Device, cell: float | None = None, *, dims: int = 3, box: float | Sequence[float] = 0.0
    ) -> None:
        super().__init__(device)
        self._dims = count("dims", dims, least=2, most=3)
        self._cell = None if cell is None else number("cell", cell, above=0.0)
        periods = [box] * self._dims if isinstance(box, int | float) else list(box)
        if len(periods) != self._dims:
            raise ShapeError(f"box has {len(periods)} periods for {self._dims} dimensions")
        self._box = np.zeros(3)
        self._box[: self._dims] = [number("box", period, least=0.0) for period in periods]
        self._points, self._ids = np.zeros((0, 3)), np.zeros(0, "i8")
        self._sorted = np.zeros(0, "i8")  # rows by id
        self._numbers = self._ids  # from 0 on
        self._raw: GpuRef | None = None
        self._built: _Built | None = None
        self._of = -1  # the generation of both
        self._moved: list[NDArray[np.int64]] = []
        self._uploads = self._updates = 0

    # -- points --------------------------------------------------------------------------------------------------------

    def rebuild(self, points: Any, ids: Any = None) -> int:
        """Have these points and no others, and return their number.

        Args:
            points: ``[n, dims]``.
            ids: Integers ``[n]``, each once; None: from 0 on.

        Raises:
            ShapeError, TypeError, ValueError: They do not fit; nothing is changed.
        """
        fresh = self._placed("points", points)
        if len(fresh) != len(self._numbers):
            self._numbers = np.arange(len(fresh))
        named = order = self._numbers
        if ids is not None:
            named = _ids(ids, len(fresh))
            order = np.argsort(named, kind="stable")
        twice = np.flatnonzero(np.diff(named[order]) == 0) if ids is not None else np.zeros(0, "i8")
        if twice.size:
            raise ValueError(f"ids has {named[order][twice[0]]} twice; give each point its own")
        self._points, self._ids, self._sorted = fresh, named, order
        self._raw, self._built, self._moved = None, None, []
        return len(fresh)

    def move(self, ids: Any, points: Any) -> None:
        """Put points elsewhere. Only these go to the device, where the cells are made again with the next search.

        Args:
            ids: Of points in the index, each once.
            points: ``[n, dims]``.

        Raises:
            ShapeError, TypeError, ValueError: They do not fit; nothing is changed.
        """
        to = self._placed("points", points)
        named = _ids(ids, len(to))
        ordered = self._ids[self._sorted]
        at = np.minimum(np.searchsorted(ordered, named), max(0, len(ordered) - 1))
        unknown = np.flatnonzero(ordered[at] != named) if len(ordered) else np.arange(len(named))
        if unknown.size:
            raise ValueError(f"ids[{unknown[0]}] is {named[unknown[0]]}, which is no point; add it with rebuild()")
        which = self._sorted[at]
        if len(np.unique(which)) < len(which):
            raise ValueError("ids has a point twice; move it once")
        if len(which):
            self._points[which] = to
            self._built = None
            self._moved.append(which)

    # -- searches ------------------------------------------------------------------------------------------------------

    async def within(self, points: Any, radius: Any) -> Neighbors:
        """All points within a radius of each place, the border included.

        Args:
            points: Places, ``[m, dims]``.
            radius: One for all, or ``[m]``.
        """
        return await self._listed(*self._balls(points, radius))

    async def count_within(self, points: Any, radius: Any) -> NDArray[np.int64]:
        """How many points :meth:`within` finds, i64 ``[m]``."""
        a, b = self._balls(points, radius)
        if not self._points.size or not len(a):
            return np.zeros(len(a), "i8")

        async def run() -> NDArray[np.int64]:
            built, device = self._grid(), self._device
            places = lent(device, a)
            return await fetched(device, _counts(places, device.put(b), self._turn(places, built), built))

        return await self._again(run)

    async def inside(self, low: Any, high: Any) -> Neighbors:
        """All points in each box, its border included; in a periodic box, boxes may reach over the edge.

        Args:
            low, high: Corners, ``[m, dims]``.
        """
        first, last = (rows(name, one, self._dims, dtype="f8") for name, one in (("low", low), ("high", high)))
        if first.shape != last.shape:
            raise ShapeError(f"high has {len(last)} rows for {len(first)} of low; give one for each")
        bad = np.flatnonzero((last < first).any(1))
        if bad.size:
            raise ValueError(f"high: row {bad[0]} is {last[bad[0]].tolist()}, below low, {first[bad[0]].tolist()}")
        begin = self._placed("low", first)
        end = np.where(self._box > 0, begin + self._in_three(last - first), self._in_three(last))
        found = await self._listed(begin, end)
        return found._replace(distances=None)

    async def nearest(self, points: Any, k: int) -> Nearest:
        """The ``k`` nearest points of each place; of equally near ones, those that come first in the index.

        Args:
            points: Places, ``[m, dims]``.
            k: How many.
        """
        a = self._placed("points", points, self._room)
        shape = len(a), count("k", k)
        if not self._points.size or not len(a):
            return Nearest(np.full(shape, -1), np.full(shape, np.inf))

        async def run() -> Nearest:
            built, device = self._grid(), self._device
            first = built.grid.spacing * ((k + 1) / 6) ** (1 / self._dims)
            found, far = device.empty(shape, "i32"), device.empty(shape, "f64")
            where = built.points, built.order, built.starts, built.world
            places = lent(device, a)
            found, far = kernels.nearest(places, self._turn(places, built), *where, found, far, first)
            reply, distances = found.get(), far.get()
            numbers = np.asarray(await reply)
            return Nearest(np.where(numbers < 0, -1, built.ids[numbers]), np.asarray(await distances))

        return await self._again(run)

    def stats(self) -> SpatialStats:
        """Figures now."""
        grid = grid_of(self._points, self._cell, self._box)
        occupied = len(np.unique(cells(self._points.T, grid.world), axis=1).T) if len(self._points) else 0
        hashed = bool(grid.world[12] < 0)
        return SpatialStats(len(self._points), occupied, hashed, self._uploads, self._updates)

    # -- messages ------------------------------------------------------------------------------------------------------

    @messages.Rebuild.handles
    async def _on_rebuild(self, m: messages.Rebuild) -> int:
        return self.rebuild(m.points, m.ids)

    @messages.QueryNeighbors.handles
    async def _on_query(self, m: messages.QueryNeighbors) -> Neighbors:
        return await self.within(m.points, m.radius)

    @messages.SpatialStatsOf.handles
    async def _on_stats(self, m: messages.SpatialStatsOf) -> SpatialStats:
        return self.stats()

    # -- how -----------------------------------------------------------------------------------------------------------

    def _in_three(self, points: Any) -> Floats:
        if self._dims == 3:
            return np.asarray(points, "f8")
        whole = np.zeros((len(points), 3))
        whole[:, : self._dims] = points
        return whole

    def _placed(self, name: str, points: Any, empty: Callable[..., Floats] = np.empty) -> Floats:
        """A copy of points in three dimensions, and in the box if it is periodic; ``empty(shape, dtype)`` makes it."""
        whole = self._in_three(rows(name, points, self._dims, dtype="f8", empty=empty if self._dims == 3 else np.empty))
        for axis in np.flatnonzero(self._box):
            period = self._box[axis]
            inside = np.mod(whole[:, axis], period)
            whole[:, axis] = np.where(inside < period, inside, 0.0)
        return whole

    def _balls(self, points: Any, radius: Any) -> tuple[Floats, Floats]:
        a = self._placed("points", points, self._room)
        given = np.asarray(radius)
        if given.dtype.kind not in "iuf" or given.shape not in ((), (len(a),)):
            raise ShapeError(
                f"radius is {given.dtype}{list(given.shape)} for {len(a)} places; pass a number, or one for each"
            )
        bad = np.flatnonzero(~((given >= 0) & np.isfinite(given)))
        if bad.size:
            raise ValueError(f"radius is {given.reshape(-1)[bad[0]]}; it must be finite and at least 0")
        return a, given.astype("f8").reshape(-1, 1)

    def _room(self, shape: tuple[int, int], dtype: str) -> Floats:
        """Memory that the device reads itself, if it is large: one copy less than by way of other memory."""
        device = self._device
        if math.prod(shape) * np.dtype(dtype).itemsize >= LARGE and (device.backend, device.isolation) != LENDS:
            with contextlib.suppress(MailboxFull, OutOfMemory):  # then any memory will do
                return device.host_empty(shape, dtype)
        return np.empty(shape, dtype)

    def _turn(self, places: GpuRef, built: _Built) -> GpuRef:
        """Searches in the order of the cells of their places, so that consecutive ones look at the same points.

        Empty if there are few, and on a CPU, which finds an order itself.
        """
        if self._device.backend != "cuda" or places.shape[0] < MANY:
            return built.none
        return self._device.cub.sort_pairs(*kernels.keyed(places, built.world, built.grid.buckets)).values

    def _grid(self) -> _Built:
        """The points on the device, in cells, as they are now."""
        device = self._device
        if self._of != device.generation:
            self._raw, self._built, self._of = None, None, device.generation
        if self._built is not None:
            return self._built
        if self._raw is None:
            self._raw = device.put(self._points)
            self._uploads += 1
        elif self._moved:
            which = np.unique(np.concatenate(self._moved))
            self._raw = kernels.moved(self._raw, device.put(which.astype("i4")), device.put(self._points[which]))
            self._updates += 1
        self._moved = []
        grid = grid_of(self._points, self._cell, self._box)
        world = device.put(grid.world)
        key, index = kernels.keyed(self._raw, world, grid.buckets)
        keys, order = device.cub.sort_pairs(key, index)
        starts = begins(keys, device.empty(grid.buckets + 1, "i32"))
        none = device.empty(0, "i32")
        self._built = _Built(kernels.places(self._raw, order), order, starts, world, none, self._ids, grid)
        return self._built

    async def _listed(self, a: Floats, b: Floats) -> Neighbors:
        """Count, then fill: there is room for all."""
        offsets = np.zeros(len(a) + 1, "i8")
        if not self._points.size or not len(a):
            return Neighbors(offsets, np.zeros(0, "i8"), np.zeros(0))

        async def run() -> Neighbors:
            built, device = self._grid(), self._device
            at = lent(device, a)
            places = at, device.put(b), self._turn(at, built)
            np.cumsum(await fetched(device, _counts(*places, built)), out=offsets[1:])
            size = int(offsets[-1])
            if not size:
                return Neighbors(offsets, np.zeros(0, "i8"), np.zeros(0))
            found, far = device.empty(size, "i32"), device.empty(size, "f64")
            where = built.order, built.starts, built.world, device.put(offsets[:-1])
            found, far = kernels.fill(*places, built.points, *where, found, far)
            reply, distances = found.get(), far.get()
            return Neighbors(offsets, built.ids[np.asarray(await reply)], np.asarray(await distances))

        return await self._again(run)

    async def _again(self, run: Callable[[], Awaitable[R]]) -> R:
        for attempt in range(ATTEMPTS):
            try:
                return await run()
            except ContextLost:
                self._of = -1
                if attempt == ATTEMPTS - 1:
                    raise
                await self._device.ready()
        raise AssertionError


def _counts(places: GpuRef, b: GpuRef, turn: GpuRef, built: _Built) -> GpuRef:
    """How many results each search has, i64."""
    world = built.grid.world
    plain = b.shape[1] == 1 and world[12] == 0 and not world[9:12].any()
    by = kernels.near if plain else kernels.count
    found: GpuRef = by(places, b, turn, built.points, built.starts, built.world)
    return found


def _ids(ids: Any, size: int) -> NDArray[np.int64]:
    given = np.asarray(ids)
    if given.size and given.dtype.kind not in "iu":
        raise TypeError(f"ids has dtype {given.dtype}; pass integers")
    if given.shape != (size,):
        raise ShapeError(f"ids has shape {list(given.shape)} for {size} points; give each one")
    if given.dtype == np.uint64 and given.size and given.max() > np.iinfo("i8").max:
        raise ValueError(f"ids has {given.max()}; they are kept in i8, so at most {np.iinfo('i8').max}")
    return given.astype("i8")
