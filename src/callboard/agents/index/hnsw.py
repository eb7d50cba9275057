"""``HnswVectorIndex``: approximate nearest neighbours by a graph of faiss, beside exact rows."""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.agents.checks import positive
from callboard.agents.index.coding import RowType
from callboard.agents.index.cpu import CpuVectorIndex
from callboard.agents.index.exact import by_score_and_id, exact_scores
from callboard.agents.index.pages import in_large_pages
from callboard.agents.index.protocol import Metric, Where
from callboard.agents.index.scanning import faiss
from callboard.agents.index.snapshot import Snapshot

__all__ = ["HnswVectorIndex"]

ADDED = 64
"""Rows that are added between two searches: they wait for each other."""
BUILT = 2048
"""Rows that are added at once to a graph that nothing searches yet."""
FEWEST = 1024
"""Rows of an index that is searched by its graph: fewer are searched as fast without it."""
BRIEF = 256
"""Candidates of a search that is done on the event loop: it takes about as long as to call a thread."""


class HnswVectorIndex(CpuVectorIndex):
    """Approximate nearest neighbours in host memory, by a hierarchical graph (HNSW); for 100,000 vectors and more.

    As :class:`CpuVectorIndex`, with the same methods and files. The graph finds candidates; their scores are exact.
    Deleted and replaced vectors stay in the graph, and in its file, and are left out of results; the graph is made anew
    when half of it is such.
    A filter that fewer than an eighth of the vectors pass is searched exactly.

    ::

        index = cb.HnswVectorIndex(384, ef=64)
        index.upsert(ids, vectors)
        found = await index.search(query, 10)

    Args:
        dim: Length of a vector.
        metric: ``"cosine"``, ``"l2"``, or ``"ip"``, which finds less where the vectors' lengths differ much.
        dtype: Of the rows that give the scores, see :class:`CpuVectorIndex`. The graph has a copy in f32.
        links: Neighbours of a vector in the graph.
        ef_build: Candidates that are looked at for them.
        ef: Candidates of a search; more of them find more and take longer.

    Raises:
        ImportError: faiss is not installed.
        ValueError: A setting is out of its range.
    """

    def __init__(
        self,
        dim: int,
        *,
        metric: Metric = "cosine",
        dtype: RowType | None = None,
        links: int = 16,
        ef_build: int = 128,
        ef: int = 64,
    ) -> None:
        if faiss() is None:
            raise ImportError("HnswVectorIndex needs faiss: pip install 'callboard[index]'")
        super().__init__(dim, metric=metric, dtype=dtype)
        if positive("links", links) < 2:
            raise ValueError("links is 1; it must be at least 2")
        self.links, self.ef_build, self.ef = links, positive("ef_build", ef_build), positive("ef", ef)
        self._graph: _Graph | None = None

    def _grow(self, now: Snapshot) -> None:
        graph = self._graph
        if graph is None or graph.numbering is not now.numbering:
            # Of rows of length 1 products order as distances do, so the graph is the same, and they cost less.
            kind = faiss().METRIC_L2 if self.metric == "l2" else faiss().METRIC_INNER_PRODUCT
            made = faiss().IndexHNSWFlat(self.dim, self.links, kind)
            made.hnsw.efConstruction = self.ef_build
            graph = _Graph(made, now.numbering)
        step = ADDED if graph is self._graph else BUILT  # no search waits for a graph that it does not know
        try:
            for start in range(graph.count, now.count, step):
                graph.add(now.decoded(slice(start, min(start + step, now.count))))
        except BaseException:  # it has rows that no snapshot will have
            self._graph = None
            raise
        self._graph = graph

    def _is_short(self, queries: int, where: Where | None) -> bool:
        by_graph = where is None and len(self) >= FEWEST
        return queries * self.ef <= BRIEF if by_graph else super()._is_short(queries, where)

    def _nearest(
        self, snapshot: Snapshot, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None
    ) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        graph, living = self._graph, snapshot.count if allowed is None else int(np.count_nonzero(allowed))
        usable = graph is not None and graph.numbering is snapshot.numbering
        if graph is not None and usable and living >= max(FEWEST, 4 * k, snapshot.count // 8) and len(queries):
            found = graph.search(queries, k, max(self.ef, k), snapshot.count, allowed)
            if min(found[:, -1].tolist()) >= 0:  # else fewer were found
                scores = exact_scores(graph.rows, queries, found, self.metric)
                order = by_score_and_id(scores, snapshot.ids.take(found), self.metric)
                if len(queries) > 1:
                    order += np.arange(0, found.size, k)[:, None]
                return found.take(order), scores.take(order)
        return super()._nearest(snapshot, queries, k, allowed)

    def _save_more(self, now: Snapshot, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        header["hnsw"] = {"links": self.links, "ef_build": self.ef_build, "ef": self.ef}
        graph = self._graph
        if graph is not None and graph.numbering is now.numbering:
            arrays["graph"] = graph.data()
            if now.living < now.count:
                arrays["alive"] = now.alive

    def _load_more(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        settings = header.get("hnsw", {})
        self.links, self.ef_build, self.ef = (settings.get(n, getattr(self, n)) for n in ("links", "ef_build", "ef"))
        now, data = self._snapshot, arrays.get("graph")
        if data is not None:
            self._graph = _Graph(faiss().deserialize_index(np.array(data, np.uint8)), now.numbering)
        elif now.count:
            self._grow(now)


class _Graph:
    """A graph of the first rows of snapshots of one numbering."""

    def __init__(self, index: Any, numbering: object) -> None:
        self.numbering = numbering
        self._index = index
        self._lock = threading.Lock()  # faiss must not search a graph that grows
        self._ef = self._place = self._large = 0
        self._note()

    def add(self, rows: NDArray[np.float32]) -> None:
        module = faiss()
        threads = module.omp_get_max_threads()  # of this thread's work only
        with self._lock:
            if len(rows) <= ADDED:  # more would wait for each other, and keep cores busy meanwhile
                module.omp_set_num_threads(1)
            try:
                self._index.add(np.ascontiguousarray(rows))
            finally:
                module.omp_set_num_threads(threads)
            self._note()

    def _note(self) -> None:
        """Know the rows where faiss has them, until it adds more. Its attributes take longer than ours."""
        self.count, dim, module = int(self._index.ntotal), self._index.d, faiss()
        flat = module.downcast_index(self._index.storage)
        self._rows = module.rev_swig_ptr(flat.get_xb(), self.count * dim).reshape(self.count, dim)
        if (place := self._rows.ctypes.data) != self._place:
            self._place, self._large = place, 0
        self._large += in_large_pages(self._rows.reshape(-1)[self._large :])

    def rows(self, numbers: NDArray[np.intp]) -> NDArray[np.float32]:
        """Copies of rows: a search has just read them, while those of the index are elsewhere."""
        with self._lock:
            found: NDArray[np.float32] = self._rows.take(numbers, axis=0)
            return found

    def data(self) -> NDArray[np.uint8]:
        """The graph as bytes."""
        with self._lock:
            return np.asarray(faiss().serialize_index(self._index))

    def search(
        self, queries: NDArray[np.float32], k: int, ef: int, count: int, allowed: NDArray[np.bool_] | None
    ) -> NDArray[np.intp]:
        """Rows of the best ``k`` of each query among the first ``count``; -1 where fewer were found."""
        module, distances = faiss(), np.empty((len(queries), k), np.float32)
        found, pointer = np.empty((len(queries), k), np.int64), module.swig_ptr
        with self._lock:
            if allowed is None and self.count > count:  # a write is under way
                allowed = np.ones(count, np.bool_)
            options = None
            if allowed is not None:
                bits = np.packbits(allowed, bitorder="little")
                chosen = module.IDSelectorBitmap(len(bits), pointer(bits))  # kept until the search has ended
                options = module.SearchParametersHNSW(efSearch=ef, sel=chosen)
            elif ef != self._ef:
                self._index.hnsw.efSearch = self._ef = ef  # cheaper than an object of options
            self._index.search_c(len(queries), pointer(queries), k, pointer(distances), pointer(found), options)
        return found.astype(np.intp, copy=False)
