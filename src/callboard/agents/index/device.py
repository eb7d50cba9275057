"""``DeviceVectorIndex``: exact nearest neighbours by a device, which can be lost."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.agents.checks import matrix, positive
from callboard.agents.index.cpu import CpuVectorIndex
from callboard.agents.index.exact import by_score_and_id, exact_scores, nearest
from callboard.agents.index.protocol import Id, Metadata, Metric, Neighbours, Where
from callboard.agents.index.snapshot import Snapshot
from callboard.agents.index.threshold import at_least, checked_score
from callboard.core.errors import ContextLost
from callboard.core.ref.handle import GpuRef
from callboard.device.client.handle import Device
from callboard.patterns.contract.atcall import at_the_call

__all__ = ["DeviceVectorIndex"]

BLOCK = 1 << 18
"""Rows of one product."""
QUERIES = 1024
"""Queries of one product, whose result is 1 GiB then."""
GROUP = 64
"""Scores whose maximum is compared first."""
SENT = 32 << 20
"""Bytes of rows that are sent at once."""
SORTED = 1 << 14
"""Ids that are sorted at once."""
ATTEMPTS = 3
"""Contexts that a search may lose before it fails."""


@dataclass(frozen=True, eq=False)
class Copy:
    """The rows of a snapshot on a device, in the order of their ids: of equal scores, the device prefers the first.

    Attributes:
        snapshot: What was copied.
        generation: The context that holds it.
        numbers: The host's number of each row.
        rows: Blocks of f16 or f32.
        squares: Squares of the norms, of an index of distances.
    """

    snapshot: Snapshot
    generation: int
    numbers: NDArray[np.intp]
    rows: list[GpuRef]
    squares: list[GpuRef]


class DeviceVectorIndex:
    """Exact nearest neighbours, computed by a device: ``dev.blas.gemm`` and ``dev.dnn.top_k``.

    The rows stay in a :class:`CpuVectorIndex`, and the device has a copy. It is made by the first search, and made
    again when the context is lost: a search then takes longer, and does not fail. Vectors that are written later are
    searched on the host, until they are more than an eighth of the copy. Rows of i8 are f16 on the
    device, and products of f16 are ``dev.blas_lt.matmul``, whose results are f32.

    ::

        index = cb.DeviceVectorIndex(gpu, cb.CpuVectorIndex(384, dtype="f16"))
        index.upsert(ids, vectors)
        found = await index.search(queries, 10)

    Args:
        device: Computes the searches.
        host: Holds the rows. It may be written to directly, and be loaded from a file.
    """

    def __init__(self, device: Device, host: CpuVectorIndex) -> None:
        if not isinstance(host, CpuVectorIndex):
            raise TypeError(f"host is {host!r}; pass a CpuVectorIndex, which keeps the rows when the device is lost")
        self.host, self._device = host, device
        self._copy: Copy | None = None
        self._copying = asyncio.Lock()

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self.host.dim

    @property
    def metric(self) -> Metric:
        """What nearness is."""
        return self.host.metric

    def upsert(self, ids: Sequence[Id], vectors: Any, metadata: Sequence[Metadata | None] | None = None) -> None:
        """See :meth:`CpuVectorIndex.upsert`."""
        self.host.upsert(ids, vectors, metadata)

    def delete(self, ids: Sequence[Id]) -> int:
        """See :meth:`CpuVectorIndex.delete`."""
        return self.host.delete(ids)

    @at_the_call
    async def search(
        self, queries: Any, k: int = 10, *, where: Where | None = None, min_score: float | None = None
    ) -> Neighbours:
        """The ``k`` nearest vectors of each query; see :meth:`CpuVectorIndex.search`.

        Scores may differ from the host's by the rounding of the device's products; distances are computed on the host.
        """
        k, least = positive("k", k), checked_score(min_score, self.metric, queries=np.ndim(queries))
        rows = matrix("queries", queries, columns=self.dim, unit=self.metric == "cosine")
        snapshot, numbers, scores = await self._searched(rows, k, where)
        ids = snapshot.ids[numbers]
        if np.ndim(queries) == 1:
            return at_least(Neighbours(ids[0], scores[0]), least)
        return Neighbours(ids, scores)

    def scores(self, query: Any, ids: Sequence[Id]) -> NDArray[np.float32]:
        """See :meth:`CpuVectorIndex.scores`."""
        return self.host.scores(query, ids)

    async def _searched(self, rows: Any, k: int, where: Where | None) -> tuple[Any, Any, Any]:
        """A snapshot, and numbers and scores of its nearest rows; again when the device is lost meanwhile."""
        for attempt in range(ATTEMPTS):
            snapshot = self.host.snapshot()
            try:
                copy = await self._copied(snapshot)
                return snapshot, *await self._nearest(copy, snapshot, rows, k, where)
            except ContextLost:
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def __len__(self) -> int:
        return len(self.host)

    def __contains__(self, id: object) -> bool:
        return id in self.host

    def __repr__(self) -> str:
        return f"<DeviceVectorIndex of {len(self)} vectors on {self._device.name}, {self.metric}>"

    # -- the copy ------------------------------------------------------------------------------------------------------

    async def _copied(self, snapshot: Snapshot) -> Copy:
        async with self._copying:  # searches at the same time share a copy
            copy = self._copy
            if copy is None or copy.generation != self._device.generation or _is_outdated(copy, snapshot):
                self._copy = None  # its memory may be needed for the next one
                copy = self._copy = await self._make(snapshot)
            return copy

    async def _make(self, snapshot: Snapshot) -> Copy:
        generation, dtype = self._device.generation, np.float32 if self.host.dtype == "f32" else np.float16
        numbers = await asyncio.to_thread(_by_id, snapshot)

        def stored(part: NDArray[np.intp]) -> NDArray[Any]:
            return snapshot.rows[part] if snapshot.rows.dtype == dtype else snapshot.decoded(part).astype(dtype)

        rows, squares = [], []
        for start in range(0, len(numbers), BLOCK):
            part = numbers[start : start + BLOCK]
            block, step = (
                self._device.empty((len(part), self.dim), dtype),
                max(1, SENT // (self.dim * dtype().itemsize)),
            )
            for at in range(0, len(part), step):  # the host's shared memory is as small as that
                some = await asyncio.to_thread(stored, part[at : at + step])
                await self._device.put(some, out=block[at : at + step], non_blocking=True)
            rows.append(block)
            if self.metric == "l2":
                squares.append(await self._device.put(snapshot.squares[part]))
        return Copy(snapshot, generation, numbers, rows, squares)

    # -- searches ------------------------------------------------------------------------------------------------------

    async def _nearest(
        self, copy: Copy, snapshot: Snapshot, queries: Any, k: int, where: Where | None
    ) -> tuple[Any, Any]:
        """Rows and scores by the snapshot, of which the device has an earlier copy."""
        allowed = snapshot.allowed(where) if where is None else await asyncio.to_thread(snapshot.allowed, where)
        mask = None if allowed is None else allowed[copy.numbers]
        of_copy = len(copy.numbers) if mask is None else int(np.count_nonzero(mask))
        parts = [
            await self._by_device(copy, queries[start : start + QUERIES], min(k, of_copy), mask)
            for start in range(0, max(1, len(queries)), QUERIES)
        ]
        numbers, scores = (np.concatenate(each) for each in zip(*parts, strict=True))

        def joined() -> tuple[Any, Any]:
            rows, values = _distances(snapshot, queries, numbers) if self.metric == "l2" else (numbers, scores)
            later = snapshot.alive.copy() if allowed is None else allowed.copy()
            later[: copy.snapshot.count] = False
            return _merged(snapshot, rows, values, nearest(snapshot, queries, k, self.metric, later), self.metric, k)

        has_later = snapshot.count > copy.snapshot.count
        return await asyncio.to_thread(joined) if has_later or self.metric == "l2" else joined()

    async def _by_device(self, copy: Copy, queries: Any, k: int, mask: NDArray[np.bool_] | None) -> tuple[Any, Any]:
        if not k or not len(queries):
            return np.empty((len(queries), k), np.intp), np.empty((len(queries), k), np.float32)
        device, xp, found = self._device, self._device.xp, []
        half = self.host.dtype != "f32"
        sent, within = device.put(queries.astype(np.float16 if half else np.float32)), xp.arange(GROUP)
        for block, rows in enumerate(copy.rows):
            if half:  # summed in f32: results of f16 would be equal too often
                scores = device.blas_lt.matmul(sent, rows, transpose_b=True, out_dtype="f32")
            else:
                scores = device.blas.gemm(sent, rows, transpose_b=True, tf32=False)
            if copy.squares:
                scores = scores * 2 - copy.squares[block]
            start, extent = block * BLOCK, rows.shape[0]
            if mask is not None:
                scores = xp.where(device.put(mask[start : start + extent]), scores, -np.inf)
            best, places = self._best(scores, min(k, extent), within)
            found.append((best, places + start))
        best, places = (xp.concat(each, axis=1) for each in zip(*found, strict=True)) if len(found) > 1 else found[0]
        top = device.dnn.top_k(best, k)  # equal ones stay in the order of their ids
        values, order = await asyncio.gather(top.values.get(), xp.take_along_axis(places, top.indices, axis=1).get())
        nearest_rows: NDArray[np.intp] = copy.numbers[order]
        return nearest_rows, values

    def _best(self, scores: GpuRef, k: int, within: GpuRef) -> tuple[GpuRef, GpuRef]:
        """The ``k`` largest scores of each row, and their places, of equal ones the first.

        They are in the ``k`` groups of the largest maxima, so most scores are read once only.

        Args:
            scores: ``[queries, rows]``.
            k: Number of results.
            within: 0, 1, … of a group.
        """
        device, xp, (queries, extent) = self._device, self._device.xp, scores.shape
        if extent % GROUP or extent < 4 * k * GROUP:
            top = device.dnn.top_k(scores, k)
            return top.values, top.indices
        maxima = xp.max(xp.reshape(scores, (queries, extent // GROUP, GROUP)), axis=-1)
        groups = xp.astype(device.dnn.top_k(maxima, k).indices, xp.float32)
        groups = xp.astype(device.dnn.top_k(groups, k, largest=False).values, xp.int64)  # in the order of rows
        places = xp.reshape(xp.expand_dims(groups, axis=-1) * GROUP + within, (queries, k * GROUP))
        top = device.dnn.top_k(xp.take_along_axis(scores, places, axis=1), k)
        return top.values, xp.take_along_axis(places, top.indices, axis=1)


def _by_id(snapshot: Snapshot) -> NDArray[np.intp]:
    """The numbers of the rows that are alive, in the order of their ids."""
    living = np.flatnonzero(snapshot.alive)
    if snapshot.ids.dtype == object:  # no other thread runs while objects are sorted: so many at once
        ids = snapshot.ids[living].tolist()
        numbers = (range(start, min(start + SORTED, len(ids))) for start in range(0, len(ids), SORTED))
        parts = [sorted(each, key=ids.__getitem__) for each in numbers]
        return living[[*merge(*parts, key=ids.__getitem__)]]
    ordered: NDArray[np.intp] = living[np.argsort(snapshot.ids[living], kind="stable")]
    return ordered


def _is_outdated(copy: Copy, snapshot: Snapshot) -> bool:
    """Whether too much was written since the copy was made."""
    if copy.snapshot.numbering is not snapshot.numbering or snapshot.count < copy.snapshot.count:
        return True
    later = snapshot.count - copy.snapshot.count
    return later > max(1024, copy.snapshot.count // 8) or 2 * snapshot.living < len(copy.numbers)


def _distances(snapshot: Snapshot, queries: Any, numbers: Any) -> tuple[Any, Any]:
    """The same rows with their distances: the device's products differ by too little near 0."""
    found = exact_scores(snapshot.decoded, queries, numbers, "l2")
    order = np.argsort(found, axis=1, kind="stable")
    return np.take_along_axis(numbers, order, 1), np.take_along_axis(found, order, 1)


def _merged(
    snapshot: Snapshot, numbers: Any, scores: Any, later: tuple[Any, Any], metric: Metric, k: int
) -> tuple[Any, Any]:
    """The best of the copy's results and of those that were written later."""
    if not later[0].size:
        return numbers, scores
    numbers, scores = np.concatenate([numbers, later[0]], axis=1), np.concatenate([scores, later[1]], axis=1)
    best = by_score_and_id(scores, snapshot.ids[numbers], metric)[:, :k]
    return np.take_along_axis(numbers, best, 1), np.take_along_axis(scores, best, 1)
