"""``CpuVectorIndex``: exact nearest neighbours in host memory."""

import asyncio
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from callboard.agents.checks import matrix, positive
from callboard.agents.index import files
from callboard.agents.index.coarse import CoarseRows
from callboard.agents.index.coding import RowType, encode
from callboard.agents.index.exact import exact_scores, nearest
from callboard.agents.index.filters import Columns, metadata_of
from callboard.agents.index.protocol import Id, Metadata, Metric, Neighbours, Where
from callboard.agents.index.snapshot import Snapshot
from callboard.agents.index.threshold import at_least, checked_score
from callboard.patterns.contract.atcall import at_the_call

__all__ = ["CpuVectorIndex"]

SHORT = 1 << 24
"""Products of a search that is done on the event loop: it takes about as long as to call a thread."""


class CpuVectorIndex:
    """Exact nearest neighbours of vectors in host memory.

    Methods may be called from any thread. A search sees the index as it was when the search began.

    ::

        index = cb.CpuVectorIndex(384)
        index.upsert([1, 2], vectors, [{"lang": "en"}, {"lang": "fr"}])
        found = await index.search(query, 10, where={"lang": "en"})
        print(found.ids, found.scores)

    Args:
        dim: Length of a vector.
        metric: ``"cosine"``, ``"ip"`` (inner product) or ``"l2"`` (Euclidean distance).
        dtype: Of the rows in memory: ``"f32"``, ``"f16"``, or ``"i8"`` with a scale for each row. By default f16 in a
            cosine index, whose numbers are 1 at most, else f32. Lone queries are fastest where faiss is installed
            (``pip install 'callboard[index]'``); in a cosine index they then add a byte for each number.

    Raises:
        ValueError: A setting is unknown.
    """

    def __init__(self, dim: int, *, metric: Metric = "cosine", dtype: RowType | None = None) -> None:
        if metric not in get_args(Metric):
            raise ValueError(f"metric is {metric!r}; it must be 'cosine', 'ip' or 'l2'")
        if dtype is None:
            dtype = "f16" if metric == "cosine" else "f32"
        if dtype not in get_args(RowType):
            raise ValueError(f"dtype is {dtype!r}; it must be 'f32', 'f16' or 'i8'")
        self.dim = positive("dim", dim)
        self.metric: Metric = metric
        self.dtype: RowType = dtype
        self._lock = threading.Lock()  # of writers
        self._numbers: dict[Id, int] = {}
        self._snapshot = self._empty(np.int64)

    # -- writes --------------------------------------------------------------------------------------------------------

    def upsert(self, ids: Sequence[Id], vectors: Any, metadata: Sequence[Metadata | None] | None = None) -> None:
        """Add vectors, or replace those of the same ids, with their metadata. Searches see all of them or none.

        Args:
            ids: All ints, or all str, as those in the index; each once.
            vectors: ``[len(ids), dim]``.
            metadata: For each vector None, or a dict of str, numbers, bools, None, or lists of these, such as tags.

        Raises:
            ShapeError: The vectors have another shape.
            ValueError: A vector is not finite, or is zero in a cosine index; an id occurs twice.
            TypeError: The metadata is something else.
        """
        given, kind = _checked_ids(ids)
        described = metadata_of(metadata, len(given))
        if not given:
            return
        rows = matrix("vectors", vectors, columns=self.dim, rows=len(given), unit=self.metric == "cosine")
        stored, scales = encode(rows, self.dtype)
        with self._lock:
            now = self._snapshot
            if not self._numbers:
                now = self._empty(kind)
            elif now.ids.dtype != kind:
                has, got = ("int", "str") if kind.kind == "O" else ("str", "int")
                raise TypeError(f"ids holds {got} ids, and the index has {has} ids; use one kind")
            elif now.count > 1024 and 2 * now.living < now.count:
                now = self._snapshot = self._compacted(now)
            self._append(now, given, stored, scales, described)

    def _append(
        self, now: Snapshot, ids: list[Id], stored: NDArray[Any], scales: Any, metadata: list[Metadata | None]
    ) -> None:
        start, end = now.count, now.count + len(ids)
        now = _with_room(now, end)
        now.rows[start:end] = stored
        if now.scales is not None:
            now.scales[start:end] = scales
        rows = now.decoded(slice(start, end))
        now.squares[start:end] = np.einsum("ij,ij->i", rows, rows)
        now.ids[start:end] = ids
        self._grow(replace(now, count=end))
        now.columns.extend(start, metadata)
        alive = np.ones(end, np.bool_)
        alive[:start] = now.alive
        replaced = [self._numbers[each] for each in ids if each in self._numbers]
        alive[replaced] = False
        self._numbers.update(zip(ids, range(start, end), strict=True))
        largest = max(now.largest, float(np.sqrt(now.squares[start:end].max())))
        living = now.living + len(ids) - len(replaced)
        self._snapshot = replace(now, count=end, alive=alive, living=living, largest=largest)

    def _grow(self, now: Snapshot) -> None:
        """Take the rows of a snapshot, the last of which no search sees yet, before all else that a write changes."""

    def delete(self, ids: Sequence[Id]) -> int:
        """Remove the vectors of these ids; the number of those that were there."""
        given, _ = _checked_ids(ids, once=False)
        with self._lock:
            now = self._snapshot
            numbers = [number for each in given if (number := self._numbers.pop(each, None)) is not None]
            if numbers:
                alive = now.alive.copy()
                alive[numbers] = False
                self._snapshot = replace(now, alive=alive, living=now.living - len(numbers))
            return len(numbers)

    # -- reads ---------------------------------------------------------------------------------------------------------

    @at_the_call
    async def search(
        self, queries: Any, k: int = 10, *, where: Where | None = None, min_score: float | None = None
    ) -> Neighbours:
        """The ``k`` nearest vectors of each query. A long search runs on a thread.

        Args:
            queries: ``[queries, dim]``, or a single vector.
            k: Number of results; fewer are found if there are fewer.
            where: What the metadata must satisfy: ``{"lang": "en", "year": {"$gte": 2020}}``. A list is for any of its
                values. The operators are ``$eq``, ``$ne``, ``$in``, ``$nin``, ``$gt``, ``$gte``, ``$lt``, ``$lte``,
                ``$contains`` (an element of a list) and ``$not``, and ``$and``, ``$or`` and ``$not`` of filters. Or a
                function of the metadata, which is slow.
            min_score: Least score of a result, for a single query and a metric other than ``"l2"``.

        Raises:
            ShapeError: A query has another length than the vectors.
            ValueError: A query is not finite, or is zero in a cosine index; ``min_score`` cannot be compared; ``where``
                has an unknown operator.
        """
        if self._is_short(np.size(queries) // self.dim, where):
            return self.search_now(queries, k, where=where, min_score=min_score)
        return await asyncio.to_thread(self.search_now, queries, k, where=where, min_score=min_score)

    def search_now(
        self, queries: Any, k: int = 10, *, where: Where | None = None, min_score: float | None = None
    ) -> Neighbours:
        """As :meth:`search`, on the calling thread."""
        k, snapshot = positive("k", k), self._snapshot
        dimensions = np.ndim(queries)
        least = checked_score(min_score, self.metric, queries=dimensions)
        rows = matrix("queries", queries, columns=self.dim, unit=self.metric == "cosine")
        numbers, scores = self._nearest(snapshot, rows, k, snapshot.allowed(where))
        if dimensions == 1:
            return at_least(Neighbours(snapshot.ids[numbers[0]], scores[0]), least)
        return Neighbours(snapshot.ids[numbers], scores)

    def _is_short(self, queries: int, where: Where | None) -> bool:
        """Whether a search of so many queries may be done on the event loop."""
        return len(self) * self.dim * queries <= SHORT and not callable(where)

    def _nearest(
        self, snapshot: Snapshot, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None
    ) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        return nearest(snapshot, queries, k, self.metric, allowed)

    def metadata(self, id: Id) -> Metadata:
        """The metadata of a vector.

        Raises:
            KeyError: There is no vector of this id.
        """
        with self._lock:
            return self._snapshot.columns.rows[self._numbers[id]] or {}

    def rows(self, ids: Sequence[Id]) -> NDArray[np.float32]:
        """The vectors of these ids, as they are stored: of length 1 in a cosine index.

        Raises:
            KeyError: There is no vector of an id.
        """
        with self._lock:
            return self._snapshot.decoded(np.array([self._numbers[each] for each in ids], np.intp))

    def scores(self, query: Any, ids: Sequence[Id]) -> NDArray[np.float32]:
        """The scores of these ids for a query, as a search gives them.

        Raises:
            KeyError: There is no vector of an id.
            ValueError: See :meth:`search`.
        """
        asked = matrix("query", query, columns=self.dim, rows=1, unit=self.metric == "cosine")
        with self._lock:
            snapshot, numbers = self._snapshot, np.array([self._numbers[each] for each in ids], np.intp)
        return exact_scores(snapshot.decoded, asked, numbers[:, None], self.metric)[:, 0]

    def snapshot(self) -> Snapshot:
        """The content now, which later writes do not change."""
        return self._snapshot

    def __len__(self) -> int:
        return self._snapshot.living

    def __contains__(self, id: object) -> bool:
        return id in self._numbers

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} vectors, {self.dtype}[{self.dim}], {self.metric}>"

    # -- files ---------------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the index to a file, which replaces one of this name when it is complete."""
        header: dict[str, Any] = {"format": 1, "dim": self.dim, "metric": self.metric, "dtype": self.dtype}
        arrays: dict[str, NDArray[Any]] = {}
        with self._lock:
            now = self._snapshot
            self._save_more(now, header, arrays)
        kept = np.arange(now.count) if "alive" in arrays else np.flatnonzero(now.alive)
        if len(kept) > now.living:
            header["format"] = 2
        strings = now.ids.dtype == object
        arrays |= {"rows": now.rows[kept], "squares": now.squares[kept]}
        if now.scales is not None:
            arrays["scales"] = now.scales[kept]
        if not strings:
            arrays["ids"] = now.ids[kept]
        described = [now.columns.rows[number] for number in kept]
        header["ids"] = list(now.ids[kept]) if strings else None
        header["metadata"] = [None if each is None else dict(each) for each in described] if any(described) else None
        files.write(Path(path), header, arrays)

    def _save_more(self, now: Snapshot, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Add what a kind of index has beside its rows; with ``alive``, also those that are not alive are kept."""

    @classmethod
    def load(cls, path: str | PathLike[str], *, mmap: bool = True, verify: bool = True) -> Self:
        """An index from its file.

        Args:
            path: The file.
            mmap: Map the rows into memory, so that they are read when a search needs them; the first write after
                that copies them. The file must not be changed meanwhile; :meth:`save` replaces it instead.
            verify: Compare the arrays with their checksums, for which all of the file is read now, with ``mmap`` too.

        Raises:
            ValueError: It is not the file of an index, not all of it, or damaged.
        """
        header, arrays = files.read(Path(path), mapped=mmap, verify=verify)
        if header["format"] not in (1, 2):
            raise ValueError(f"{path} has format {header['format']}; this version reads formats 1 and 2")
        index = cls(header["dim"], metric=header["metric"], dtype=header["dtype"])
        ids = arrays["ids"] if header["ids"] is None else np.array(header["ids"], object)
        count, squares = len(ids), arrays["squares"]
        metadata: list[Metadata | None] = header["metadata"] or [None] * count
        alive = np.array(arrays["alive"]) if "alive" in arrays else np.ones(count, np.bool_)
        living = np.flatnonzero(alive)
        index._numbers = dict(zip(ids[living].tolist(), living.tolist(), strict=True))
        index._snapshot = Snapshot(
            count=count,
            rows=arrays["rows"],
            scales=arrays.get("scales"),
            squares=squares,
            ids=ids,
            alive=alive,
            columns=Columns(metadata),
            living=len(living),
            largest=float(np.sqrt(squares.max(initial=0))),
            numbering=CoarseRows(),
        )
        try:
            index._load_more(header, arrays)
        except RuntimeError as error:  # of faiss, whose checks the file has not passed
            raise ValueError(f"{path}: its array 'graph' is damaged; save the index again: {error}") from error
        return index

    def _load_more(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Read what :meth:`_save_more` has added."""

    def _empty(self, kind: Any) -> Snapshot:
        stored, scales = encode(np.empty((0, self.dim), np.float32), self.dtype)
        squares, alive = np.empty(0, np.float32), np.empty(0, np.bool_)
        return Snapshot(0, stored, scales, squares, np.empty(0, kind), alive, Columns([]), 0, 0.0, CoarseRows())

    def _compacted(self, now: Snapshot) -> Snapshot:
        """The living rows only, with other numbers."""
        living = np.flatnonzero(now.alive)
        metadata = [now.columns.rows[number] for number in living]
        self._numbers = dict(zip(now.ids[living].tolist(), range(len(living)), strict=True))
        return Snapshot(
            count=len(living),
            rows=now.rows[living],
            scales=None if now.scales is None else now.scales[living],
            squares=now.squares[living],
            ids=now.ids[living],
            alive=np.ones(len(living), np.bool_),
            columns=Columns(metadata),
            living=len(living),
            largest=now.largest,
            numbering=CoarseRows(),
        )


def _with_room(now: Snapshot, end: int) -> Snapshot:
    """The same content in arrays of at least ``end`` rows."""
    if end <= len(now.rows):
        return now

    def longer(array: NDArray[Any]) -> NDArray[Any]:
        found = np.empty((max(end, 3 * now.count // 2), *array.shape[1:]), array.dtype)
        found[: now.count] = array[: now.count]
        return found

    scales = None if now.scales is None else longer(now.scales)
    return replace(now, rows=longer(now.rows), scales=scales, squares=longer(now.squares), ids=longer(now.ids))


def _checked_ids(ids: Iterable[Id], *, once: bool = True) -> tuple[list[Id], Any]:
    if isinstance(ids, str | int):
        raise TypeError(f"ids is {ids!r}; pass a list of ids")
    given: list[Id] = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    kinds = {type(each) for each in given}
    if not kinds <= {int} and not kinds <= {str}:
        bad = next(each for each in given if type(each) not in (int, str) or type(each) is not type(given[0]))
        raise TypeError(f"ids holds {bad!r}, of {type(bad).__name__}; use ints only, or str only")
    if kinds == {int} and not all(-(1 << 63) <= int(each) < 1 << 63 for each in given):
        raise ValueError("ids holds an int beyond 64 bits with a sign; use smaller ints, or str")
    if once and len(set(given)) < len(given):
        twice = next(each for n, each in enumerate(given) if each in given[:n])
        raise ValueError(f"ids holds {twice!r} twice; give each id once in a call")
    return given, np.dtype(object if kinds == {str} else np.int64)
